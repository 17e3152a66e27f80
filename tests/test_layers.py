"""What layers promise besides right gradients: caches, masks, sharing, recomputing, state, devices, clear errors."""

from __future__ import annotations

import copy
import functools
import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import draw as normal
from common import ordinary
from tiers import in_one

import minitransformer.core.arrays.strict  # noqa: F401 - registers the device "strict"
from minitransformer import ideas, layers, ops
from minitransformer.core.arrays.backend import to_device, to_numpy
from minitransformer.layers import Cache, KeyValueCache, Module, Parameter
from minitransformer.run.machines.parallel import in_threads
from minitransformer.run.machines.parallel.tensor import Cut

F64 = "float64"
SIZES: dict[str, Any] = {"d_model": 6, "n_heads": 2, "d_ff": 10}


def gradients_of(module: Module) -> dict[str, np.ndarray]:
    return {name: parameter.grad.copy() for name, parameter in module.parameters()}


def assert_identical(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


CHUNKS = {
    "token by token": [1] * 40,
    "in chunks": [3, 1, 15, 20, 1],  # beyond the first buffers
    "all at once": [40],
}


def in_chunks(x: np.ndarray, sizes: list[int], read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What `read` makes of the pieces of x, one after the other, joined along the axis of time."""
    assert sum(sizes) == x.shape[-2]
    pieces = np.split(x, np.cumsum(sizes)[:-1], axis=-2)
    return np.concatenate([read(piece) for piece in pieces], axis=-2)


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS.keys())
def test_cached_cross_attention_equals_full_attention(sizes: list[int]) -> None:
    """The memory is projected once, so that its numbers may be lost afterwards; but another memory is refused."""
    layer, x, memory = ordinary(layers.MultiHeadAttention(6, 2)), normal(2, 40, 6), normal(2, 7, 6, seed=1)
    mask = np.arange(7) < np.array([[[4]], [[7]]])
    cache, wanted = KeyValueCache(), layer(x, memory, mask=mask)[0]

    def read(piece: np.ndarray) -> np.ndarray:
        y = layer(piece, memory, mask=mask, cache=cache)[0]
        memory[...] = 1e6
        return y

    np.testing.assert_allclose(in_chunks(x, sizes, read), wanted, rtol=0.0, atol=1e-12)
    assert cache.length == 7
    with pytest.raises(ValueError, match="the cache holds another memory; start a new cache for a new source"):
        layer(x, memory.copy(), mask=mask, cache=cache)


def test_a_cache_grows_beyond_its_first_buffer_and_keeps_what_it_has() -> None:
    cache, everything, room = KeyValueCache(), normal(2, 3, 100, 4), [0]
    values = normal(2, 3, 100, 5, seed=1)
    for stop in range(1, 101):
        k, v = cache.extend(everything[:, :, stop - 1 : stop], values[:, :, stop - 1 : stop])
        assert cache.length == stop
        np.testing.assert_array_equal(k, everything[:, :, :stop])
        np.testing.assert_array_equal(v, values[:, :, :stop])
        room.append(len(cache.buffers()[0][0, 0]))
    np.testing.assert_array_equal(cache.read()[0], everything)
    grew = [(before, after) for before, after in itertools.pairwise(room) if after != before]
    assert all(room[before] == before and after > 2 * before for before, after in grew) and len(grew) == 4
    with pytest.raises(ValueError, match=f"from 0 to {room[-1]}, the room in its buffers, got {room[-1] + 1}"):
        cache.length = room[-1] + 1


def test_what_does_not_fit_a_cache_leaves_no_room_in_one_of_its_buffers_alone() -> None:
    cache = KeyValueCache()
    cache.extend(normal(2, 3, 8, 4), normal(2, 3, 8, 5))
    with pytest.raises(ValueError, match="start a new cache for another layer"):
        cache.extend(normal(2, 3, 9, 4), normal(2, 3, 9, 6))
    assert [len(buffer[0, 0]) for buffer in cache.buffers()] == [16, 16] and cache.length == 8


def test_a_cache_of_another_batch_is_refused_and_stays_as_it_was() -> None:
    layer, cache = ordinary(layers.MultiHeadAttention(6, 2)), KeyValueCache()
    layer(normal(2, 3, 6), causal=True, cache=cache)
    before = [array.copy() for array in cache.read()]
    with pytest.raises(ValueError, match=r"holds batch and heads \(2, 2\), but the new ones are \(3, 2\); start a new"):
        layer(normal(3, 1, 6), causal=True, cache=cache)
    assert cache.length == 3
    np.testing.assert_array_equal(cache.read(), before)


def test_positions_continue_where_a_prefix_ended() -> None:
    for positions in (layers.SinusoidalPositions(6), ordinary(layers.LearnedPositions(40, 6))):
        x = normal(2, 40, 6)
        whole = positions(x)[0]
        for start, stop in [(0, 1), (1, 2), (5, 21), (39, 40)]:
            np.testing.assert_array_equal(positions(x[:, start:stop], start)[0], whole[:, start:stop])


class Tied(Module):
    """ids to logits through one table, used at both ends under two names."""

    def __init__(self) -> None:
        self.tokens = layers.Embedding(5, 3)
        self.output = self.tokens
        self.again = [self.tokens, layers.Linear(3, 3)]

    def __call__(self, ids: np.ndarray) -> Any:
        vectors, embedding_backward = self.tokens(ids)
        hidden, linear_backward = self.again[1](vectors)
        logits, unembed_backward = self.output.unembed(hidden)
        return logits, lambda dlogits: embedding_backward(linear_backward(unembed_backward(dlogits)))


def test_a_shared_parameter_is_listed_once() -> None:
    assert [name for name, _ in Tied().parameters()] == ["tokens.table", "again.1.weight", "again.1.bias"]


def test_a_tie_survives_a_move_and_a_load() -> None:
    model = Tied()
    model.to("strict", F64)
    model.load_state({name: np.ones(array.shape) for name, array in model.state().items()})
    assert model.tokens.table is model.output.table
    np.testing.assert_array_equal(to_numpy(model.output.table.value), 1.0)


def test_a_layer_used_twice_collects_both_gradients() -> None:
    """They are those of two separate layers with the same numbers; each call holds its own dropout masks."""
    shared = ordinary(layers.EncoderLayer(**SIZES, dropout=0.3, attention_dropout=0.3))
    first, second = copy.deepcopy(shared), copy.deepcopy(shared)
    x, dy = normal(2, 4, 6), normal(2, 4, 6, seed=1)

    def run(lower: Module, upper: Module) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(3)
        middle, lower_backward = lower(x, rng=rng)
        y, upper_backward = upper(middle, rng=rng)
        return y, lower_backward(upper_backward(dy))

    y, dx = run(shared, shared)
    expected_y, expected_dx = run(first, second)
    np.testing.assert_array_equal(y, expected_y)
    np.testing.assert_array_equal(dx, expected_dx)
    separate = gradients_of(second)
    for name, gradient in gradients_of(first).items():
        np.testing.assert_allclose(gradients_of(shared)[name], gradient + separate[name], rtol=1e-12, atol=1e-14)


def test_pullbacks_may_be_called_in_any_order_and_again() -> None:
    """Nothing of a call is kept on the layer."""
    layer = ordinary(layers.EncoderLayer(**SIZES, dropout=0.4))
    rng = np.random.default_rng(0)
    x, other, dy = normal(2, 4, 6), normal(3, 2, 6, seed=1), normal(2, 4, 6, seed=2)
    backward = layer(x, rng=rng)[1]
    dx = backward(dy)
    gradients = gradients_of(layer)
    layer(other, rng=rng)[1](normal(3, 2, 6, seed=3))
    layer.zero_grad()
    np.testing.assert_array_equal(backward(dy), dx)
    assert_identical(gradients_of(layer), gradients)
    backward(dy)
    for name, gradient in gradients_of(layer).items():
        np.testing.assert_allclose(gradient, 2.0 * gradients[name], rtol=1e-14, atol=1e-300, err_msg=name)


def test_recompute_runs_its_layer_again_in_backward_and_keeps_nothing_of_it() -> None:
    class Counted(layers.Linear):
        calls = 0

        def __call__(self, x: np.ndarray, rng: Any = None) -> Any:
            Counted.calls += 1
            return super().__call__(x)

    layer = layers.Recompute(Counted(3, 2))
    y, backward = layer(normal(4, 3, dtype="float32"))
    assert Counted.calls == 1
    assert {type(cell.cell_contents) for cell in backward.__closure__ if callable(cell.cell_contents)} == {
        layers.Recompute
    }
    backward(y)
    assert Counted.calls == 2


def test_recompute_does_not_change_names() -> None:
    plain, wrapped = (layers.Encoder(2, **SIZES, recompute=recompute) for recompute in (False, True))
    assert plain.state().keys() == wrapped.state().keys()
    wrapped.load_state(plain.state())
    assert_identical(wrapped.state(), plain.state())


def test_parameters_come_by_dotted_names_in_the_order_they_were_set() -> None:
    assert [name for name, _ in layers.EncoderLayer(4, 2, 6, bias=False).parameters()] == [
        "self_attention.sublayer.query.weight",
        "self_attention.sublayer.key.weight",
        "self_attention.sublayer.value.weight",
        "self_attention.sublayer.output.weight",
        "self_attention.norm.gamma",
        "self_attention.norm.beta",
        "feed_forward.sublayer.inner.weight",
        "feed_forward.sublayer.output.weight",
        "feed_forward.norm.gamma",
        "feed_forward.norm.beta",
    ]
    stack = layers.Encoder(2, 4, 2, 6, norm_order="pre")
    names = [name for name, _ in stack.parameters()]
    assert len(names) == len(set(names)) == 2 * 16 + 2
    assert names[16] == "layers.1.self_attention.sublayer.query.weight"
    assert names[-2:] == ["final_norm.gamma", "final_norm.beta"]


def test_values_start_as_documented() -> None:
    rng = np.random.default_rng(0)
    linear = layers.Linear(300, 200, rng=rng)
    limit = np.sqrt(6.0 / 500.0)
    assert abs(linear.weight.value).max() <= limit
    assert linear.weight.value.std() == pytest.approx(limit / np.sqrt(3.0), rel=0.01)
    assert (linear.bias.value == 0.0).all()
    assert layers.Embedding(300, 100, rng=rng).table.value.std() == pytest.approx(0.1, rel=0.02)
    assert layers.Embedding(300, 100, std=0.5, rng=rng).table.value.std() == pytest.approx(0.5, rel=0.02)
    assert layers.LearnedPositions(300, 100, rng=rng).table.value.std() == pytest.approx(0.02, rel=0.02)
    assert (layers.LayerNorm(3).gamma.value == 1.0).all()
    assert (layers.LayerNorm(3).beta.value == 0.0).all()
    assert (layers.RMSNorm(3).gamma.value == 1.0).all()
    for module in (layers.Encoder(1, **SIZES), layers.Embedding(3, 2), layers.LearnedPositions(3, 2)):
        assert {p.value.dtype for _, p in module.parameters()} == {np.dtype("float32")}
        assert all((p.grad == 0.0).all() and p.grad.dtype == np.float32 for _, p in module.parameters())


def test_the_same_generator_state_gives_the_same_values() -> None:
    first, again, other = (layers.Decoder(1, **SIZES, rng=np.random.default_rng(seed)).state() for seed in (1, 1, 2))
    assert_identical(first, again)
    assert (
        first["layers.0.feed_forward.sublayer.inner.weight"] != other["layers.0.feed_forward.sublayer.inner.weight"]
    ).all()


def test_gradients_add_up_until_they_are_set_to_zero() -> None:
    layer, x, dy = ordinary(layers.Linear(3, 2)), normal(4, 3), normal(4, 2, seed=1)
    grad = layer.weight.grad
    for n in (1, 2):
        layer(x)[1](dy)
        np.testing.assert_allclose(layer.weight.grad, n * x.T @ dy, rtol=1e-14)
        np.testing.assert_allclose(layer.bias.grad, n * dy.sum(axis=0), rtol=1e-14)
    layer.zero_grad()
    assert layer.weight.grad is grad  # in place
    assert (grad == 0.0).all() and (layer.bias.grad == 0.0).all()


def test_state_is_a_copy_and_loads_back() -> None:
    first, second = layers.Encoder(2, **SIZES), layers.Encoder(2, **SIZES)
    x = normal(2, 3, 6, dtype="float32")
    state = first.state()
    expected = first(x)[0]
    assert (second(x)[0] != expected).any()
    second.load_state(state)
    np.testing.assert_array_equal(second(x)[0], expected)
    for array in state.values():
        assert type(array) is np.ndarray
        array += 1.0
    np.testing.assert_array_equal(first(x)[0], expected)
    np.testing.assert_array_equal(second(x)[0], expected)


def test_loading_keeps_the_arrays_their_dtype_and_their_device() -> None:
    layer = layers.Linear(2, 2).to("strict")
    value = layer.weight.value
    layer.load_state({"weight": np.array([[1.0, 2.0], [3.0, 4.0]]), "bias": np.array([5, 6])})
    assert layer.weight.value is value
    assert value.dtype == np.float32
    np.testing.assert_array_equal(to_numpy(value), [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(to_numpy(layer.bias.value), [5.0, 6.0])


GOOD = {"weight": np.ones((3, 2)), "bias": np.ones(2)}
UNFIT: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "missing": ({"weight": GOOD["weight"]}, r"this state does not fit Linear: bias is missing"),
    "unknown": ({**GOOD, "gain": np.ones(2)}, r"gain is unknown"),
    "shape": ({**GOOD, "weight": np.ones((2, 3))}, r"weight must have shape \(3, 2\), got \(2, 3\)"),
    "shape that would broadcast": ({**GOOD, "weight": np.ones(2)}, r"weight must have shape \(3, 2\), got \(2,\)"),
    "several": ({"bias": np.ones(3), "W": np.ones(1)}, r"weight is missing; W is unknown; bias must have shape \(2,\)"),
    "complex": ({**GOOD, "bias": np.ones(2, complex)}, r"bias must hold real numbers, got complex128"),
    "text": ({**GOOD, "bias": np.array(["a", "b"])}, r"bias must hold real numbers, got <U1"),
    "objects": ({**GOOD, "bias": np.array([None, 1])}, r"bias must hold real numbers, got object"),
    "nothing": ({}, r"weight is missing; bias is missing"),
}


@in_one("name", UNFIT)
def test_a_state_that_does_not_fit_changes_nothing(name: str) -> None:
    state, message = UNFIT[name]
    layer = layers.Linear(3, 2)
    before = layer.state()
    with pytest.raises(ValueError, match=message):
        layer.load_state(state)
    assert_identical(layer.state(), before)


def test_of_many_problems_the_first_five_are_named() -> None:
    with pytest.raises(ValueError, match=r"layers\.0\.self_attention\.sublayer\.query\.weight .* \(and 27 more\)$"):
        layers.Encoder(2, **SIZES).load_state({})


def test_to_another_device_and_back() -> None:
    layer = ordinary(layers.EncoderLayer(**SIZES))
    x = normal(2, 3, 6)
    y, backward = layer(x)
    backward(y)
    assert layer.to("strict") is layer
    assert all(repr(p).endswith("device=strict)") for _, p in layer.parameters())
    np.testing.assert_allclose(to_numpy(layer(to_device(x, "strict"))[0]), y, rtol=1e-13)
    layer.to("numpy")
    np.testing.assert_array_equal(layer(x)[0], y)
    assert all((p.grad == 0.0).all() for _, p in layer.parameters())  # gradients start again


def test_parameters_show_shape_dtype_and_device() -> None:
    assert repr(layers.Linear(2, 3).weight) == "Parameter(shape=(2, 3), dtype=float32, device=numpy)"


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def strict(x: np.ndarray) -> Any:
    return to_device(x, "strict")


class OneWide(Module):
    """A sub-layer whose output would broadcast."""

    def __call__(self, x: np.ndarray, rng: Any = None) -> Any:
        return x[..., :1], lambda dy: dy


def turned_by_nothing(heads: np.ndarray, start: int = 0, positions: np.ndarray | None = None) -> Any:
    """It turns, but it cannot say what it costs."""
    return heads, lambda dturned: dturned


X = f32(2, 3, 4)
IDS = np.array([[1, 0], [6, 1]])


def test_heads_of_maps_with_norms_add_up() -> None:
    """A norm over all heads reads them all, so a head alone still computes them."""
    normed = [ideas.Normed(layers.Linear(6, n), layers.RMSNorm(n)) for n in (8, 4)]
    value, output = layers.Linear(6, 4), layers.Linear(8, 6, bias=False)
    mix = ideas.Grouped(layers.ScaledDotProduct())
    attention = ordinary(layers.MultiHeadAttention.of(4, *normed, value, output, mix=mix))
    x = normal(2, 5, 6)
    alone = [attention.head(i) for i in range(4)]
    np.testing.assert_allclose(sum(each(x)[0] for each in alone), attention(x)[0], rtol=1e-12)
    assert [each.d_k for each in alone] == [2] * 4
    with pytest.raises(ValueError, match="cannot be cut"):
        in_threads(2, functools.partial(Cut, attention))


ATTENTION = layers.MultiHeadAttention(4, 2)
LINEAR = layers.Linear(4, 3)
SINUSOIDS = layers.SinusoidalPositions(4)
LEARNED = layers.LearnedPositions(5, 4)
ENCODER, DECODER = layers.Encoder(2, 4, 2, 6), layers.Decoder(2, 4, 2, 6)

Bad = tuple[Callable[[], Any], type[Exception], str]
BAD: dict[str, Bad] = {
    # sizes
    "positions of odd width": (lambda: layers.SinusoidalPositions(5), ValueError, r"width must be even .* got 5"),
    "heads that do not divide": (lambda: layers.MultiHeadAttention(4, 3), ValueError,
     r"d_model 4 cannot be divided into 3 equal heads; choose another n_heads, or give d_k and d_v"),
    "functions that turn": (lambda: layers.MultiHeadAttention(4, 2, turn=(turned_by_nothing, turned_by_nothing)),
     TypeError, r"MultiHeadAttention: turn must be a Turn \(core/layers/sockets\.py\), got <function"),
    "maps of other widths": (
        lambda: layers.MultiHeadAttention.of(2, *(layers.Linear(4, n) for n in (4, 4, 5, 4)), mix=ATTENTION.mix),
        ValueError, r"MultiHeadAttention: maps of 2 heads must give each an equal width, got \(4, 4, 5, 4\)",
    ),
    # options
    "an unknown activation": (lambda: layers.FeedForward(4, 6, "tanh"), ValueError,
     r"""FeedForward: activation must be "relu", "gelu", "gelu_tanh", "silu" or an op, got 'tanh'"""),
    "an activation that changes the shape": (lambda: layers.FeedForward(4, 6, ops.mean_pool)(X), ValueError,
     r"FeedForward: activation\(hidden\) must have shape \(2, 3, 6\), got \(2, 6\)"),
    "a stack of nothing": (
     lambda: layers.Encoder.of([]), ValueError, r"Encoder: a stack needs at least one layer, got none"),
    "an unknown order": (lambda: layers.Encoder(1, 4, 2, 6, norm_order="both"), ValueError,
     r'Residual: order must be "pre" or "post", got \'both\''),
    "a seed for a generator": (lambda: layers.Linear(4, 3, rng=0), TypeError,
     r"rng must be a numpy\.random\.Generator .* got int; make one with numpy\.random\.default_rng\(seed\)"),
    "a seed for dropout": (lambda: layers.EncoderLayer(4, 2, 6, dropout=0.1)(X, rng=0), TypeError,
     r"dropout: rng must be a numpy\.random\.Generator .* got int"),
    "an integer dtype": (lambda: layers.Linear(4, 3).to(dtype="int64"), TypeError,
     r"Linear: parameters must have a floating-point dtype, got 'int64'"),
    "an unknown device": (lambda: layers.Linear(4, 3).to("gpu"), ValueError, r'unknown device "gpu"; expected one of'),
    # shapes of x
    "Linear of another width": (lambda: LINEAR(f32(2, 5)), ValueError,
     r"Linear: the last axis of x must be 4 \(d_in\), got shape \(2, 5\)"),
    "LayerNorm of another width": (lambda: layers.LayerNorm(5)(X), ValueError, "the last axis of x must be 5"),
    "attention of another width": (
     lambda: ATTENTION(f32(2, 3, 5)), ValueError, r"MultiHeadAttention: the last axis of x must be 4 \(d_model\)"),
    "a vector for a sequence": (lambda: ATTENTION(f32(4)), ValueError, r"x must be \(\.\.\., T, 4\), got shape \(4,\)"),
    "more than the learned positions": (lambda: LEARNED(f32(6, 4)), ValueError,
     r"positions 0 to 5 were requested, but the table holds positions 0 to 4"),
    "a negative start": (
     lambda: SINUSOIDS(X, start=-1), ValueError, r"SinusoidalPositions: start must be at least 0, got -1"),
    "a memory of another width": (
     lambda: ATTENTION(X, f32(2, 3, 5)), ValueError, r"the last axis of memory must be 4 \(d_model\)"),
    "a memory of another batch": (lambda: DECODER(X, f32(3, 3, 4)), ValueError,
     r"the leading axes must be the same in x and memory, got the shapes \(2, 3, 4\) and \(3, 3, 4\)"),
    "no memory": (lambda: DECODER(X, None), TypeError, r"DecoderLayer: memory must be a NumPy or CuPy array, got None"),
    "a sub-layer of another width": (lambda: layers.Residual(OneWide(), layers.LayerNorm(4), "post")(X), ValueError,
     r"Residual: what the sub-layer returns must have shape \(2, 3, 4\), got \(2, 3, 1\)"),
    "a sub-layer of another width, pre-norm": (lambda: layers.Residual(OneWide(), layers.LayerNorm(4), "pre")(X),
     ValueError, r"Residual: what the sub-layer returns must have shape \(2, 3, 4\), got \(2, 3, 1\)"),
    # empty batches and sequences
    "an empty batch": (lambda: LINEAR(f32(0, 4)), ValueError, r"x is empty, its shape is \(0, 4\)"),
    "an empty memory": (lambda: DECODER(X, f32(2, 0, 4)), ValueError, r"memory is empty, its shape is \(2, 0, 4\)"),
    # dtypes
    "integers": (lambda: LINEAR(np.ones((2, 4), int)), TypeError, r"x must hold floating-point numbers, got int64"),
    "a list": (lambda: LINEAR([[1.0] * 4]), TypeError, r"x must be a NumPy or CuPy array, got list; convert it with"),
    "float64 in float32 layers": (lambda: ATTENTION(X.astype(F64)), TypeError,
     r"Linear: x is float64 but its parameters are float32; nothing is promoted silently"),
    "a float64 memory": (
     lambda: DECODER(X, X.astype(F64)), TypeError, r"MultiHeadAttention: memory is float64 but x is float32"),
    "a float64 gradient": (lambda: ENCODER(X)[1](X.astype(F64)), TypeError,
     r"the gradient must have the output's dtype float32, got float64"),
    "a gradient of another shape": (lambda: ENCODER(X)[1](X[:1]), ValueError,
     r"the gradient must have the output's shape \(2, 3, 4\), got \(1, 3, 4\)"),
    # ids
    "an id beyond where indices wrap": (
     lambda: layers.Embedding(7, 4).to("strict")(strict(IDS + 1)), ValueError, r"ids must be from 0 to 6 .* got 7"),
    # devices
    "x on another device": (
     lambda: LINEAR(strict(X)), TypeError, r"Linear: its parameter is on numpy but x is on strict; move one"),
    "a mask on another device": (
     lambda: ENCODER(X, mask=strict(np.ones((3, 3), bool))), TypeError, r"is on numpy but mask is on strict"),
    "ids on another device": (lambda: layers.Embedding(7, 4)(strict(IDS)), TypeError, "on numpy but ids is on strict"),
    "a gradient on another device": (lambda: ENCODER(X)[1](strict(X)), TypeError,
     r"must be a numpy array of shape \(2, 3, 4\), got an array of float32"),
    # masks
    "a mask of integers": (lambda: ATTENTION(X, mask=np.ones((3, 3), int)), TypeError,
     r"mask must be boolean \(True means 'may attend'\), got int64; convert it with mask\.astype\(bool\)"),
    "a mask as a list": (lambda: ENCODER(X, mask=[[True]]), TypeError,
     r"MultiHeadAttention: mask must be a NumPy or CuPy array, got list"),
    "a mask of another length": (lambda: ENCODER(X, mask=np.ones((3, 4), bool)), ValueError,
     r"mask of shape \(3, 4\) does not broadcast to \(2, 2, 3, 3\)"),
    "a memory mask of another length": (lambda: DECODER(X, f32(2, 5, 4), memory_mask=np.ones((3, 3), bool)), ValueError,
     r"mask of shape \(3, 3\) does not broadcast to \(2, 2, 3, 5\)"),
    # caches
    "a cache for too few layers": (lambda: ENCODER(X, causal=True, cache=Cache(1)), ValueError,
     r"Encoder: the cache is for 1 layers, but there are 2"),
    "a cache for one layer in a stack": (lambda: DECODER(X, X, cache=KeyValueCache()), TypeError,
     r"Decoder: cache must be a Cache\(2\), got KeyValueCache"),
    "a cache for a stack in one layer": (lambda: ATTENTION(X, cache=Cache(2)), TypeError,
     r"MultiHeadAttention: cache must be a KeyValueCache, got Cache"),
}  # fmt: skip


@in_one("name", BAD)
def test_bad_input_is_a_clear_error(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error  # no subclass that comes from somewhere below, as UnicodeError


class PlainMix(layers.Module):
    """A mix that is no more than core/layers/sockets.py asks for: its generator has no default."""

    scale, alike = None, True

    def __call__(self, q: Any, k: Any, v: Any, mask: Any, causal: bool, rng: Any) -> Any:
        return ops.attention(q, k, v, mask, causal=causal)

    def cost(self, batch: int, length: int, n_heads: int, d_k: int, d_v: int) -> Any: ...

    def head(self, i: int) -> Any:
        return self


def test_a_mix_as_the_socket_describes_it_works_with_a_cache() -> None:
    attention = ordinary(layers.MultiHeadAttention(6, 2, mix=PlainMix()))
    x, cache = normal(5, 6), KeyValueCache()
    pieces = [attention(x[i : i + 1], causal=True, cache=cache)[0] for i in range(5)]
    np.testing.assert_allclose(np.concatenate(pieces), attention(x, causal=True)[0], atol=1e-12)


def test_recompute_replays_a_generator_by_whatever_name_or_place_it_came() -> None:
    """A generator among the inputs was not copied: the gradient was that of another mask."""
    layer = ordinary(layers.EncoderLayer(**SIZES, dropout=0.4))
    x, dy = normal(3, 6), normal(3, 6, seed=1)
    modules = (layer, layers.Recompute(layer))
    by_place = [module(x, None, np.random.default_rng(2)) for module in modules]
    by_name = [module(x, mask=None, rng=np.random.default_rng(2)) for module in modules]
    for (y, backward), (again, recomputed) in (by_place, by_name):
        np.testing.assert_array_equal(again, y)
        np.testing.assert_array_equal(recomputed(dy), backward(dy))


def test_who_only_computes_outputs_takes_no_memory_for_gradients() -> None:
    """Generation with a published model needs its values alone."""
    layer = layers.Linear(300, 400).to(dtype="float32")
    x = np.ones((2, 300), np.float32)
    layer(x)
    tracemalloc.start()
    try:
        y, backward = layer(x)
        before = tracemalloc.get_traced_memory()[0]
        assert before < 300 * 400 * 4 / 10
        backward(np.ones_like(y))
        assert tracemalloc.get_traced_memory()[0] - before >= 300 * 400 * 4
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(layer.weight.grad, 2.0)


def test_a_gradient_is_like_the_value_that_it_belongs_to() -> None:
    parameter = Parameter(np.broadcast_to(np.float32(0.0), (2, 3)))
    parameter.grad[0, 0] = 1.0
    assert parameter.grad.sum() == 1.0 and parameter.grad.flags.owndata
    assert parameter.part((slice(None), 0)).grad.tolist() == [0.0, 0.0]
    layer = layers.Linear(2, 3)
    layer.weight.grad += 1.0
    layer.to(dtype="float64")
    assert layer.weight.grad.dtype == np.float64 and not layer.weight.grad.any()
