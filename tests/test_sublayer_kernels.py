"""The kernels of whole sub-layers: equal to the textbook's ops, however many threads share the work."""

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from kernel_checks import entered, require_equal, require_that_it_waits, twin_of
from tiers import in_one

from minitransformer.ideas import GatedFeedForward
from minitransformer.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    KeyValueCache,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Recompute,
    Residual,
    RMSNorm,
)
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.fast import accelerate, phases, sublayer_loops, sublayers, twins
from minitransformer.training import Workers

WIDTH = 12
LOOPS = {"attention": 3, "feed_forward": 1, "attention_backward": 4, "feed_forward_backward": 2}  # and their phases


@pytest.fixture(params=[1, 2, 3])
def n_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """This many BLAS threads, and every layer uses them."""
    monkeypatch.setattr(sublayers, "SHARED", 1)
    with threadpoolctl.threadpool_limits(request.param, user_api="blas"):
        yield request.param


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the kernel took each call of a sub-layer."""
    answers: list[bool] = []

    def noting(kernel: Any) -> Any:
        def noted(*given: Any, **options: Any) -> Any:
            result = kernel(*given, **options)
            answers.append(result is not None)
            return result

        return noted

    for name in ("residual_attention", "residual_feed_forward"):
        monkeypatch.setattr(twins, name, noting(getattr(sublayers, name)))
    return answers


def encoder_layer(n_heads: int = 3, d_ff: int = 20, parts: Any = None, **options: Any) -> Any:
    """The fast twin of a layer."""
    layer = EncoderLayer(WIDTH, n_heads, d_ff, rng=np.random.default_rng(0), **options)
    for place, part in ({} if parts is None else parts).items():
        setattr(layer.feed_forward, place, part)
    return twin_of(layer)


def normal(*shape: int, seed: int = 2, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def everything(layer: Any, x: np.ndarray, dy: np.ndarray, seed: int | None = None, **options: Any) -> list[np.ndarray]:
    """y, dx, dmemory if there is a memory, and the gradients of all parameters."""
    for _, p in layer.parameters():
        p.grad[...] = 0.0
    rng = None if seed is None else np.random.default_rng(seed)
    y, backward = layer(x, rng=rng, **options)
    given = backward(dy)
    return [y, *(given if type(given) is tuple else (given,)), *(p.grad.copy() for _, p in layer.parameters())]


def in_textbook(layer: Any, *arrays: np.ndarray, dtype: str = "float32", **options: Any) -> list[np.ndarray]:
    layer.to(dtype=dtype)
    if "memory" in options:
        options["memory"] = options["memory"].astype(dtype)
    found = everything(layer.textbook, *(x.astype(dtype) for x in arrays), **options)
    layer.to(dtype="float32")
    return found


def require_close(
    found: list[np.ndarray], exact: list[np.ndarray], rounded: list[np.ndarray], times: float = 2.0
) -> None:
    """Each as near to the exact one as the textbook's float32, which may be lucky where little is rounded."""
    largest = max(float(np.abs(x).max()) for x in exact[2:])  # a gradient that is 0 in theory is rounded like the rest
    for i, (ours, right, textbooks) in enumerate(zip(found, exact, rounded, strict=True)):
        ulp = np.finfo(np.float32).eps * max(float(np.abs(right).max()), largest if i > 1 else 0.0)
        assert ours.dtype == np.float32
        assert np.abs(ours - right).max() <= times * np.abs(textbooks - right).max() + 6.0 * ulp, i


def require_as_in_textbook(layer: Any, *shape: int, **how: Any) -> None:
    arrays = normal(*shape), normal(*shape, seed=3)
    found = everything(layer, *arrays, **how)
    require_close(found, in_textbook(layer, *arrays, dtype="float64", **how), in_textbook(layer, *arrays, **how))


MASKS: dict[str, Any] = {
    "no mask": None,
    "padding, one sequence hidden": np.array([[[1] * 9], [[1] * 5 + [0] * 4], [[0] * 9]], bool),
    "a mask for all": np.tril(np.ones((9, 9), bool), 2),
    "of each head": np.random.default_rng(7).random((3, 3, 9, 9)) < 0.6,
}


@pytest.mark.slow
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False, "activation": "gelu"}, {"activation": "gelu_tanh"}, {"activation": "silu"}]
)
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_a_layer_is_computed_as_in_the_textbook(
    norm_order: str, options: Any, rate: float, causal: bool, mask: str, n_threads: int, taken: list[bool]
) -> None:
    layer = encoder_layer(norm_order=norm_order, dropout=rate, attention_dropout=rate / 2, **options)
    require_as_in_textbook(layer, 3, 9, WIDTH, mask=MASKS[mask], causal=causal, seed=5)
    assert taken == [True] * 2


@pytest.mark.few(4)
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 5, 70])
def test_a_layer_that_reads_a_memory(
    norm_order: str, rate: float, length: int, n_threads: int, taken: list[bool]
) -> None:
    """Fewer and more keys than queries; one sequence sees nothing of its memory."""
    layer = DecoderLayer(WIDTH, 3, 20, rate, rate / 2, norm_order=norm_order, rng=np.random.default_rng(0))
    seen = np.random.default_rng(6).random((3, 9, length)) < 0.7
    seen[1] = False
    memory = normal(3, length, WIDTH, seed=8)
    arrays, how = (normal(3, 9, WIDTH), normal(3, 9, WIDTH, seed=3)), {"memory": memory, "memory_mask": seen, "seed": 5}
    fast = twin_of(layer)
    exact, rounded = (in_textbook(fast, *arrays, dtype=dtype, **how) for dtype in ("float64", "float32"))
    require_close(everything(fast, *arrays, **how), exact, rounded, 4.0)  # with three norms luck counts more
    assert taken == [True] * 3


def test_what_the_loops_of_a_memory_do_not_cover(taken: list[bool]) -> None:
    """The ops refuse it, or compute it."""
    layer: Any = twin_of(DecoderLayer(WIDTH, 3, 20, rng=np.random.default_rng(0)))
    x, cross = normal(2, 5, WIDTH), layer.cross_attention
    for memory, error in ((normal(1, 4, WIDTH), ValueError), (normal(2, 4, 8), ValueError), ([[1.0]], TypeError)):
        with pytest.raises(error, match="memory"):
            cross(x, memory)
    with pytest.raises(TypeError):
        cross(x, normal(2, 4, WIDTH), normal(2, 4, WIDTH))
    for memory in (normal(2, 4, WIDTH, dtype="float64"), normal(2, 0, WIDTH)):
        with pytest.raises((TypeError, ValueError)):
            cross(x, memory)
    for form in (cross, cross.textbook):
        with pytest.raises(TypeError, match="unknown"):
            form(x, normal(2, 4, WIDTH), unknown=None)
    cross(x, normal(2, 4, WIDTH), causal=True)
    assert not any(taken)


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", [529, 205, 1546, 331, *range(20)])
def test_norms_of_two_numbers_differ_from_the_textbook_by_their_conditioning(seed: int, taken: list[bool]) -> None:
    """Kernel and textbook may differ by 0.4 here, in gradients of 300: that is what the last bits of the inputs do.

    A norm divides what was rounded before by √(variance + ε), which for two numbers that are nearly equal is √ε: 316
    times the rounding after one norm, 1e5 times after two. So the measure is how far the textbook's float32 gets from
    the exact gradients when the last bits of x and of the parameters change.
    """
    r, last_bit = np.random.default_rng(seed), 2.0**-23
    options = {
        "n_heads": int(r.choice([1, 2])),
        "d_ff": int(r.integers(1, 9)),
        "norm_order": str(r.choice(["pre", "post"])),
    }
    layer = accelerate(EncoderLayer(2, **options, activation="gelu", rng=r))
    for _, p in layer.parameters():
        p.value[...] = 0.5 * r.normal(size=p.value.shape)
    shape = int(r.integers(1, 4)), int(r.integers(1, 30)), 2
    x, dy = (r.normal(size=shape).astype(np.float32) for _ in range(2))
    values = layer.state()

    def flat(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([array.ravel() for array in arrays])

    found = flat(everything(layer, x, dy, causal=True))
    assert taken == [True] * 2
    exact = flat(in_textbook(layer, x, dy, dtype="float64", causal=True))
    errors = []
    for _ in range(10):
        layer.load_state({name: v * (1 + last_bit * r.integers(-1, 2, v.shape)) for name, v in values.items()})
        moved = (x * (1 + last_bit * r.integers(-1, 2, shape))).astype(np.float32)
        errors.append(np.abs(flat(in_textbook(layer, moved, dy, causal=True)) - exact).max())
    assert np.abs(found - exact).max() <= 5.0 * max(errors)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("vectors", ["gamma", "beta", "bias"])
def test_gains_and_biases_changed_before_backward_change_no_gradient(
    norm_order: str, vectors: str, taken: list[bool]
) -> None:
    """The loop makes the norms' outputs again, for the gradients of the weights: with the γ and β of forward."""
    found = []
    for changed in (False, True):
        layer, dy = encoder_layer(norm_order=norm_order), normal(2, 5, WIDTH, seed=3)
        y, backward = layer(normal(2, 5, WIDTH))
        if changed:
            y[...] = 7.0  # and the output is the caller's
            for name, p in layer.parameters():
                p.value[...] *= -3.0 if name.endswith(vectors) else 1.0
        found.append([backward(dy), *(p.grad for _, p in layer.parameters())])
    assert taken == [True] * 4
    require_equal(*found)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("length", [1, 70])
def test_long_sequences_make_their_weights_again(
    norm_order: str, length: int, n_threads: int, taken: list[bool]
) -> None:
    layer = encoder_layer(norm_order=norm_order, activation="gelu")
    layer.self_attention.norm.eps = layer.feed_forward.norm.eps = 0.1
    layer.feed_forward.norm.eps = 0.3
    require_as_in_textbook(layer, 2, length, WIDTH, causal=True)
    assert taken == [True] * 2


@pytest.mark.parametrize(
    ("shape", "mask_shape"),
    [
        ((5, WIDTH), (5, 5)),
        ((5, WIDTH), (3, 5, 5)),
        ((5, WIDTH), (3, 1, 5)),
        ((2, 2, 4, WIDTH), (2, 2, 4, 4)),
        ((2, 2, 4, WIDTH), (2, 1, 3, 4, 4)),
    ],
)
def test_sequences_may_have_any_axes_before_theirs(
    shape: tuple[int, ...], mask_shape: tuple[int, ...], n_threads: int, taken: list[bool]
) -> None:
    mask = np.random.default_rng(4).random(mask_shape) < 0.7
    require_as_in_textbook(encoder_layer(dropout=0.2, attention_dropout=0.2), *shape, mask=mask, seed=1)
    assert taken == [True] * 2


def test_dropout_draws_what_the_ops_draw(taken: list[bool]) -> None:
    for rates in ({"dropout": 0.3}, {"attention_dropout": 0.3}, {}):
        layer, rngs = encoder_layer(**rates), [np.random.default_rng(3) for _ in range(2)]
        layer(normal(2, 4, WIDTH), rng=rngs[0])
        layer.textbook(normal(2, 4, WIDTH), rng=rngs[1])
        assert rngs[0].bit_generator.state == rngs[1].bit_generator.state
    assert taken == [True] * 6


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_each_dropout_has_its_own_rate(norm_order: str, taken: list[bool]) -> None:
    layer = encoder_layer(norm_order=norm_order, attention_dropout=0.1)
    layer.self_attention.dropout, layer.feed_forward.dropout = 0.5, 0.25
    require_as_in_textbook(layer, 2, 4, WIDTH, seed=9)
    assert taken == [True] * 2


def test_the_same_number_of_threads_gives_the_same_bits(n_threads: int) -> None:
    layer, arrays = encoder_layer(), (normal(3, 20, WIDTH), normal(3, 20, WIDTH, seed=3))
    first = everything(layer, *arrays, causal=True)
    for _ in range(5):
        require_equal(everything(layer, *arrays, causal=True), first)


def test_gradients_add_up(n_threads: int) -> None:
    layer, x, dy = encoder_layer(), normal(2, 5, WIDTH), normal(2, 5, WIDTH, seed=3)
    once = everything(layer, x, dy)[2:]
    _, backward = layer(x)
    backward(dy)
    backward(dy)
    for (name, p), gradient in zip(layer.parameters(), once, strict=True):
        np.testing.assert_allclose(p.grad, 3.0 * gradient, rtol=1e-5, atol=1e-5, err_msg=name)


def signatures() -> list[int]:
    """How often each loop has been compiled."""
    return [len(getattr(sublayer_loops, name).signatures) for name in LOOPS]


def test_gradients_that_lie_otherwise_are_filled_too(taken: list[bool]) -> None:
    layer, x, dy = encoder_layer(), normal(2, 5, WIDTH), normal(2, 5, WIDTH, seed=3)
    wanted = everything(layer, x, dy)
    weight, bias = layer.feed_forward.sublayer.inner.weight, layer.self_attention.sublayer.query.bias
    n_compiled = signatures()
    weight.grad = np.zeros(weight.grad.shape[::-1], np.float32).T
    bias.grad = np.zeros(bias.grad.shape)
    for one, other in zip(wanted, everything(layer, x, dy), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert taken == [True] * 4
    assert weight.grad.flags.f_contiguous
    assert signatures() == n_compiled
    weight.grad = np.zeros((3, 3), np.float32)
    with pytest.raises(ValueError, match="broadcast"):
        layer(x)[1](dy)


@pytest.mark.few(12)
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("pieces", [(9,), (4, 5), (2, 1, 6)])
@pytest.mark.parametrize("causal", [True, False])
def test_a_prompt_on_the_cache(
    norm_order: str, pieces: tuple[int, ...], causal: bool, n_threads: int, taken: list[bool]
) -> None:
    layer, x = encoder_layer(norm_order=norm_order), normal(3, 9, WIDTH)
    masks = [np.random.default_rng(i).random((3, n, sum(pieces[: i + 1]))) < 0.7 for i, n in enumerate(pieces)]

    def read(layer: Any, dtype: str) -> np.ndarray:
        cache, outputs, start = KeyValueCache(), [], 0
        for n, mask in zip(pieces, masks, strict=True):
            piece = x[:, start : start + n].astype(dtype)
            y, backward = layer(piece, mask=mask, causal=causal, cache=cache)
            with pytest.raises(RuntimeError, match="no backward pass"):
                backward(y)
            outputs.append(y)
            start += n
        assert cache.length == 9
        return np.concatenate(outputs, axis=1)

    found = read(layer, "float32")
    assert taken == [True] * 2 * sum(n > 1 for n in pieces)  # one token goes through decoding.py
    rounded = read(layer.textbook, "float32")
    exact = read(layer.to(dtype="float64").textbook, "float64")
    ulp = np.finfo(np.float32).eps * float(np.abs(exact).max())
    assert np.abs(found - exact).max() <= 2.0 * np.abs(rounded - exact).max() + 6.0 * ulp


def test_a_cache_that_does_not_fit_is_refused_and_stays_as_it_was(taken: list[bool]) -> None:
    layer, cache = encoder_layer(), KeyValueCache()
    layer(normal(2, 3, WIDTH), cache=cache)
    for x, other in ((normal(3, 4, WIDTH), layer), (normal(2, 4, WIDTH), encoder_layer(n_heads=2))):
        with pytest.raises(ValueError, match="start a new cache"):
            other(x, cache=cache)
    with pytest.raises(ValueError, match="no dropout"):
        layer(normal(2, 3, WIDTH), cache=cache, rng=np.random.default_rng(0))
    assert cache.length == 3
    assert taken == [True, True, False, False, False]


def test_a_mask_that_the_caller_changes_is_not_read_again() -> None:
    layer, x, dy = encoder_layer(), normal(2, 70, WIDTH), normal(2, 70, WIDTH, seed=3)
    mask = np.random.default_rng(4).random((2, 70, 70)) < 0.7
    wanted = everything(layer, x, dy, mask=mask)
    _, backward = layer(x, mask=mask)
    mask[...] = False
    np.testing.assert_array_equal(backward(dy), wanted[1])


def test_what_may_not_be_written_to_or_lies_otherwise_is_read_all_the_same(taken: list[bool]) -> None:
    layer, x, dy = encoder_layer(), normal(2, 5, WIDTH), normal(2, 5, WIDTH, seed=3)
    wanted = everything(layer, x, dy)
    n_compiled = signatures()
    for change in (lambda a: a.swapaxes(0, 1).copy().swapaxes(0, 1), lambda a: np.broadcast_to(a, a.shape)):
        require_equal(everything(layer, change(x), change(dy)), wanted)
    assert taken == [True] * 6
    assert signatures() == n_compiled


@pytest.mark.parametrize("wrong", [normal(2, 5, WIDTH, dtype="float64"), normal(2, 4, WIDTH), [1.0]])
def test_a_gradient_that_does_not_fit_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="backward of Residual: the gradient must"):
        encoder_layer()(normal(2, 5, WIDTH))[1](wrong)


class Louder(Linear):
    def __call__(self, x: Any) -> Any:
        y, backward = super().__call__(x)
        return 2.0 * y, lambda dy: backward(2.0 * dy)


REFUSED: dict[str, Any] = {
    "gated": {"parts": {"sublayer": GatedFeedForward(WIDTH, 20)}},
    "another norm": {"parts": {"norm": RMSNorm(WIDTH)}},
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_other_layers_are_computed_op_by_op(options: dict[str, Any], taken: list[bool]) -> None:
    require_as_in_textbook(encoder_layer(**options), 2, 5, WIDTH)
    assert taken == [True]  # only the attention


def test_float64_and_parts_of_other_classes_are_computed_op_by_op(taken: list[bool]) -> None:
    layer = encoder_layer().to(dtype="float64")
    layer(normal(2, 5, WIDTH, dtype="float64"))
    assert taken == [False, False]
    for part, name in (("self_attention", "value"), ("feed_forward", "output")):
        layer, x = encoder_layer(norm_order="pre"), normal(2, 5, WIDTH)
        plain = layer(x)[0]
        sublayer = getattr(layer, part).sublayer
        louder = Louder(*getattr(sublayer, name).weight.value.shape)
        louder.weight, louder.bias = getattr(sublayer, name).weight, getattr(sublayer, name).bias
        setattr(sublayer, name, louder)
        assert np.abs(layer(x)[0] - plain).max() > 0.1
    assert taken == [False, False] + [True] * 6  # a sub-layer with a louder part does not even ask


BAD: dict[str, tuple[dict[str, Any], type, str]] = {
    "mask of another shape": ({"mask": np.ones((2, 4, 5), bool)}, ValueError, "does not broadcast"),
    "mask of numbers": ({"mask": np.ones((5, 5))}, TypeError, "must be boolean"),
    "no array": ({"mask": [[True]]}, TypeError, "mask must be a NumPy"),
    "no generator": ({"rng": 3}, TypeError, "rng must be"),
    "no cache": ({"cache": 3}, TypeError, "must be a KeyValueCache"),
}


@in_one("options, error, words", BAD.values(), ids=BAD)
def test_the_errors_are_those_of_the_ops(options: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        encoder_layer(dropout=0.5, attention_dropout=0.5)(normal(2, 5, WIDTH), **options)


def test_parameters_that_do_not_fit_are_left_to_the_ops(taken: list[bool]) -> None:
    layer = encoder_layer()
    layer.feed_forward.sublayer.output.bias.value = normal(WIDTH - 1)
    with pytest.raises(ValueError, match="bias"):
        layer(normal(2, 5, WIDTH))
    read_only = normal(WIDTH, WIDTH)
    read_only.flags.writeable = False
    for weight in (normal(WIDTH, WIDTH)[::-1], read_only):  # for which the loops would be compiled anew
        layer = encoder_layer()
        layer.self_attention.sublayer.key.weight.value = weight
        expected = layer.textbook(normal(2, 5, WIDTH))[0]
        np.testing.assert_allclose(layer(normal(2, 5, WIDTH))[0], expected, rtol=1e-4, atol=1e-4)
    assert taken == [True, False, False, True, False, True]


def test_numbers_that_the_ops_refuse_are_refused() -> None:
    for wrong in (0.0, -1.0, np.nan, np.inf):
        layer = encoder_layer(norm_order="pre")
        layer.feed_forward.norm.eps = wrong
        with pytest.raises(ValueError, match="eps must be"):
            layer(normal(2, 5, WIDTH))
        cache = KeyValueCache()
        cache.extend(normal(1, 3, 2, 4), normal(1, 3, 2, 4))
        with pytest.raises(ValueError, match="eps must be"):
            layer(normal(1, 1, WIDTH), cache=cache)
    for part, wrong in (("self_attention", 1.0), ("feed_forward", -0.1)):
        layer = encoder_layer()
        getattr(layer, part).dropout = wrong
        with pytest.raises(ValueError, match="dropout: rate must be"):
            layer(normal(2, 5, WIDTH), rng=np.random.default_rng(0))
    layer = encoder_layer()
    layer.self_attention.sublayer.d_model = 10
    with pytest.raises(ValueError, match="d_model"):
        layer(normal(2, 5, WIDTH))


def test_a_rate_may_be_a_whole_number(taken: list[bool]) -> None:
    layer = encoder_layer(dropout=0, attention_dropout=0)
    layer(normal(2, 5, WIDTH), rng=np.random.default_rng(0))
    assert taken == [True] * 2


def test_a_cache_that_was_emptied_is_still_of_its_dtype(taken: list[bool]) -> None:
    cache = KeyValueCache()
    cache.extend(normal(2, 3, 4, 4, dtype="float64"), normal(2, 3, 4, 4, dtype="float64"))
    cache.length = 0
    with pytest.raises(TypeError, match="float64"):
        encoder_layer()(normal(2, 5, WIDTH), cache=cache)
    assert taken == [False]


def test_narrow_layers_are_shared_where_sequences_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(sublayers, "_enter", lambda n_parts, *given: asked.append(n_parts))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        for length in (512, 8192):
            encoder_layer()(normal(1, length, WIDTH))
    assert asked == [1, 1, 2, 1]


def test_few_rows_and_large_weights_are_left_to_the_product_of_few_rows(taken: list[bool]) -> None:
    layer = accelerate(EncoderLayer(256, 4, 1024, rng=np.random.default_rng(0)))
    layer(normal(1, 8, 256))
    layer(normal(1, 9, 256))
    encoder_layer()(normal(1, 1, WIDTH))
    assert taken == [True, False, True, True, True, True]


@pytest.mark.slow
def test_backward_of_pre_norm_does_not_hold_the_input(taken: list[bool]) -> None:
    x = normal(2, 5, WIDTH)
    held = weakref.ref(x)
    y, backward = encoder_layer(norm_order="pre")(x)
    left = weakref.ref(y.base)
    del x, y
    gc.collect()
    assert taken == [True] * 2
    assert held() is None
    assert left() is None
    assert backward(normal(2, 5, WIDTH)).shape == (2, 5, WIDTH)


def test_a_recomputed_layer_takes_the_kernel_twice(taken: list[bool]) -> None:
    layer, x, dy = encoder_layer(dropout=0.3, attention_dropout=0.3), normal(2, 5, WIDTH), normal(2, 5, WIDTH, seed=3)
    wanted = everything(layer, x, dy, seed=4)
    require_equal(everything(Recompute(layer), x, dy, seed=4), wanted)
    assert taken == [True] * 6


# --------------------------------------------------------------------------------------------------------- the threads


def test_the_threads_of_blas_share_a_layer(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = [entered(monkeypatch, sublayer_loops, name, n_threads) for name in LOOPS]
    encoder_layer()(normal(2, 5, WIDTH))[1](normal(2, 5, WIDTH))
    assert [len(threads) for threads in used] == [n_threads] * len(LOOPS)


def test_a_small_layer_stays_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    used = entered(monkeypatch, sublayer_loops, "attention", 1)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        encoder_layer()(normal(2, 5, WIDTH))
    assert used == {threading.get_ident()}


def test_more_threads_than_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublayers, "SHARED", 1)
    monkeypatch.setattr(sublayers, "blas_threads", lambda: 64)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        require_as_in_textbook(encoder_layer(), 1, 3, WIDTH)


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "phase"), [(name, i) for name, n in LOOPS.items() for i in range(n - 1)])
def test_no_phase_begins_before_all_parts_of_the_last_are_done(name: str, phase: int, monkeypatch: Any) -> None:
    """Another thread has taken a part, and is slow."""
    monkeypatch.setattr(sublayers, "SHARED", 1)
    held, begun, loop = phases.counters(4), threading.Event(), getattr(sublayer_loops, name)
    assert phases.take(held, phase) == 0

    def enter(entered: Any, *given: Any) -> None:
        if entered is loop:
            begun.set()
            given = *given[:-1], held
        entered(*given)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        layer, x = encoder_layer(), normal(2, 5, WIDTH)
        backward = layer(x)[1]
        monkeypatch.setattr(sublayers, "_enter", lambda n_parts, *given: enter(*given))
        call = (lambda: layer(x)) if "backward" not in name else (lambda: backward(normal(2, 5, WIDTH)))
        require_that_it_waits(call, begun, held, phase)


def test_workers_that_share_a_batch_agree_with_one() -> None:
    class Rows:
        ids = np.random.default_rng(0).integers(0, 11, (6, 10))

        def count(self, rows: np.ndarray) -> int:
            return 9 * len(rows)

        def loss(self, model: Any, rows: np.ndarray, rng: Any) -> Any:
            return model.loss(self.ids[rows, :-1], self.ids[rows, 1:])

    found = []
    for n in (1, 2, 3):
        config = LanguageModelConfig(11, d_model=8, n_heads=2, d_ff=16, n_layers=2)
        model = accelerate(LanguageModel(config, rng=np.random.default_rng(0)))
        loss = Workers(model, n).loss_and_gradients(Rows(), [np.arange(6)], (0,))  # type: ignore[arg-type]
        found.append((loss, {name: p.grad.copy() for name, p in model.parameters()}))
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-6)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, found[0][1][name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_parts_that_the_kernel_reads_are_those_that_a_layer_has() -> None:
    """A parameter that an EncoderLayer gets one day must not be left out."""
    layer = encoder_layer().textbook
    assert type(layer.self_attention) is type(layer.feed_forward) is Residual
    assert type(layer.self_attention.sublayer) is MultiHeadAttention
    assert type(layer.feed_forward.sublayer) is FeedForward
    assert type(layer.self_attention.norm) is LayerNorm
    a, f = layer.self_attention, layer.feed_forward
    s, t = a.sublayer, f.sublayer
    maps = ((a.norm, (s.query, s.key, s.value, s.output)), (f.norm, (t.inner, t.output)))
    known = {id(p) for each in maps for p in sublayers.parameters_of(*each)}
    assert known == {id(p) for _, p in layer.parameters()}
