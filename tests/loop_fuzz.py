"""Random calls of all compiled loops: `NUMBA_BOUNDSCHECK=1 python loop_fuzz.py SEED DRAWS` prints what was done.

Under NUMBA_BOUNDSCHECK=1 an index outside its array is an IndexError. A draw may be refused, with a TypeError or a
ValueError, where arrays were changed so that they do not fit; else its result must be that of the textbook.
"""

import collections
import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from minitransformer.core.layers import Residual
from minitransformer.ideas import GatedFeedForward
from minitransformer.ideas.after.grouped import grouped
from minitransformer.ideas.after.qk_norm import qk_norm
from minitransformer.ideas.after.sandwich import Normed, OffsetRMSNorm
from minitransformer.ideas.after.scaled_angles import scaled_turn
from minitransformer.ideas.after.softcap import SoftCapped
from minitransformer.ideas.after.window import Window
from minitransformer.ideas.published import packing
from minitransformer.ideas.published.packed import PackedWeight, pack, packed_product
from minitransformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    KeyValueCache,
    LayerNorm,
    Parameter,
    RMSNorm,
    ScaledDotProduct,
)
from minitransformer.run.fast import (
    accelerate,
    attention_loops,
    blas,
    decoding,
    decoding_loops,
    loops,
    ops,
    sublayer_loops,
    sublayers,
)
from minitransformer.run.fast.large_cases import drawn_rows
from minitransformer.run.fast.padding import WithoutPadding
from minitransformer.training import SGD, Adam, AdamW, Workers

Random = np.random.Generator
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


def size(r: Random, most: int) -> int:
    """Often 1 or 2, rarely many."""
    return int(min(most, r.geometric(4.0 / (most + 4.0))))


def laid_out(x: np.ndarray, r: Random) -> np.ndarray:
    """The same numbers in one of the ways that an array may lie in memory."""
    way = int(r.integers(6))
    if way == 0 and x.ndim > 1:
        return np.asfortranarray(x)
    if way == 1:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if way == 2:
        return x[..., ::-1].copy()[..., ::-1]
    if way == 3 and x.ndim > 2:
        return np.ascontiguousarray(x.swapaxes(-2, -3)).swapaxes(-2, -3)
    if way == 4:
        return np.concatenate([x, x], axis=0)[: len(x)]
    return x


def normal(r: Random, *shape: int) -> np.ndarray:
    return laid_out(r.normal(size=shape).astype(np.float32), r)


def require_same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == np.float32, (one.shape, other.shape, one.dtype)
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-3 * max(1.0, float(np.abs(other).max())))


def everything(call: Callable[[], Any], dy: np.ndarray, parameters: Any = ()) -> list[np.ndarray]:
    """The output and all gradients."""
    for p in parameters:
        p.grad[...] = 0.0
    y, backward = call()
    gradients = backward(dy)
    return [y, *(gradients if isinstance(gradients, tuple) else (gradients,)), *(p.grad.copy() for p in parameters)]


def against_textbook(form: Any, call: Callable[[Any], Any], dy: np.ndarray, parameters: Any = ()) -> None:
    """call: of a form, the fast one or its textbook."""
    expected = everything(lambda: call(form.textbook), dy, parameters)
    require_same(everything(lambda: call(form), dy, parameters), expected)


def some_mask(r: Random, *shape: int) -> np.ndarray | None:
    """None, or one that has 1 in place of some axes, or lacks the first ones."""
    if r.random() < 0.4:
        return None
    own = [1 if r.random() < 0.3 else n for n in shape]
    return laid_out(r.random(own[int(r.integers(len(shape) - 1)) :]) < 0.7, r)


def attention(r: Random) -> None:
    lead = [size(r, 3) for _ in range(int(r.integers(4)))]
    t_q, t_k, d_k, d_v = size(r, 200), size(r, 700), size(r, 20), size(r, 20)
    if r.random() < 0.2:
        t_k = int(r.choice([64, 65, 511, 512, 513, 1030]))
    q, k, v = normal(r, *lead, t_q, d_k), normal(r, *lead, t_k, d_k), normal(r, *lead, t_k, d_v)
    options = {"mask": some_mask(r, *lead, t_q, t_k), "causal": bool(r.integers(2))}
    options |= {"dropout": 0.3, "scale": float(r.choice([0.1, 5.0]))} if r.random() < 0.3 else {}
    seed = int(r.integers(100))
    dy = r.normal(size=(*lead, t_q, d_v)).astype(np.float32)
    against_textbook(ops.attention, lambda form: form(q, k, v, **options, rng=np.random.default_rng(seed)), dy)
    shapes = {name: [*x.shape] for name, x in (("q", q), ("k", k), ("v", v), ("mask", np.ones((t_q, t_k))))}
    wrong = shapes[str(r.choice(list(shapes)))]  # one axis of one array is longer or shorter
    wrong[int(r.integers(len(wrong)))] += int(r.choice([-1, 1, 40]))
    mask = r.random(shapes.pop("mask")) < 0.7
    with maybe_refused():
        ops.attention(**{name: normal(r, *shape) for name, shape in shapes.items()}, mask=mask)[1](dy)


def rowwise(r: Random) -> None:
    rows, width = [size(r, 9) for _ in range(int(r.integers(3)))], size(r, 70)
    x, dy = normal(r, *rows, width), r.normal(size=(*rows, width)).astype(np.float32)
    gamma, beta = normal(r, width), normal(r, width)
    against_textbook(ops.layer_norm, lambda form: form(x, gamma, beta, 0.1), dy)
    against_textbook(ops.gelu, lambda form: form(x), dy)
    against_textbook(ops.gelu, lambda form: form(x, "tanh"), dy)
    with maybe_refused():
        ops.layer_norm(x, normal(r, size(r, 70)), normal(r, size(r, 70)))[1](dy)
    with maybe_refused():
        ops.layer_norm(x, gamma, normal(r, width + 1))[1](dy)


def products(r: Random) -> None:
    n, d_in, d_out = size(r, 12), size(r, 40), size(r, 40)
    x, weight, bias = normal(r, n, d_in), normal(r, d_in, d_out), normal(r, d_out)
    if r.random() < 0.5:
        weight = np.ascontiguousarray(weight.T).T
    dy = r.normal(size=(n, d_out)).astype(np.float32)
    against_textbook(ops.linear, lambda form: form(x, weight, bias), dy)
    with maybe_refused():
        ops.linear(x, normal(r, d_in + int(r.integers(-1, 2)), d_out), normal(r, d_out + int(r.integers(-1, 2))))


def packed_products(r: Random) -> None:
    kind = str(r.choice([*packing.KINDS]))
    width = int(r.integers(1, 600))
    weight = PackedWeight(drawn_rows(r, kind, size(r, 40), width), kind, width, across=True)
    x = normal(r, size(r, 12), width)
    require_same([ops.packed_product(x, weight)], [packed_product(x, weight)])


def layer_of(r: Random, kind: Any = EncoderLayer, **options: Any) -> Any:
    """The fast twin of a layer."""
    n_heads, d, d_ff = size(r, 4), size(r, 9), size(r, 30)
    options = {"norm_order": str(r.choice(["pre", "post"])), "bias": bool(r.integers(4))} | options
    options |= {"activation": str(r.choice(ACTIVATIONS)), "rng": r}
    layer = kind(n_heads * d, n_heads, d_ff, **options)
    layer.self_attention.norm.eps = layer.feed_forward.norm.eps = 0.1
    for _, p in layer.parameters():
        p.value[...] = 0.5 * r.normal(size=p.value.shape)
    return accelerate(layer)


def changed(r: Random, p: Any, name: str) -> None:
    """Another array in the place of a value or a gradient: of another shape, dtype or order, or one that is shared."""
    if isinstance(p, PackedWeight):
        few = p.rows[:, : -packing.KINDS[p.kind].n_bytes]
        p.rows = (few, p.rows[:-1], np.concatenate([p.rows, p.rows]), np.asfortranarray(p.rows))[int(r.integers(4))]
        return
    x = getattr(p, name)
    shapes = [(*x.shape[:-1], x.shape[-1] + 1), x.shape[:-1], x.shape[::-1], (*x.shape, 1), (x.size,), (), (1,), (0,)]
    shapes += [(max(1, x.shape[0] // 2), *x.shape[1:]), (3 * x.shape[0] + 7, *x.shape[1:])]
    ways: list[Callable[[], Any]] = [
        lambda: r.normal(size=shapes[int(r.integers(len(shapes)))]).astype(np.float32),
        lambda: x.astype(str(r.choice(["float64", "float16", "int32", "bool", ">f4"]))),
        lambda: np.asfortranarray(x),
        lambda: laid_out(x.copy(), r),
        lambda: np.broadcast_to(x[:1].copy(), x.shape),
        lambda: np.frombuffer(b"-" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),  # unaligned
    ]
    setattr(p, name, ways[int(r.integers(len(ways)))]())


def layers(r: Random) -> None:
    """A whole layer, forward and backward; sometimes with a parameter that was changed before or between the two."""
    rate, reads = float(r.choice([0.0, 0.3])), bool(r.integers(2))
    layer = layer_of(r, DecoderLayer if reads else EncoderLayer, dropout=rate, attention_dropout=rate)
    width = layer.self_attention.sublayer.d_model
    shape = (*(size(r, 3) for _ in range(int(r.integers(3)))), size(r, 90), width)
    x, dy = normal(r, *shape), r.normal(size=shape).astype(np.float32)
    mask = some_mask(r, *shape[:-2], shape[-2], shape[-2])
    seed, memory, how = int(r.integers(100)), [], {"causal": bool(r.integers(2))}
    if reads:
        memory = [normal(r, *shape[:-2], size(r, 90), width)]
        how = {"memory_mask": some_mask(r, *shape[:-2], shape[-2], memory[0].shape[-2])}
    parameters = [p for _, p in layer.parameters()]

    def call(layer: Any) -> Any:
        return layer(x, *memory, mask=mask, rng=np.random.default_rng(seed), **how)

    against_textbook(layer, call, dy, parameters)
    other = parameters[int(r.integers(len(parameters)))]
    backward = call(layer)[1]
    changed(r, other, str(r.choice(["value", "grad"])))
    with maybe_refused():
        backward(dy)
    with maybe_refused():
        call(layer)[1](dy)


def network(r: Random) -> None:
    n, width = size(r, 12), size(r, 20)
    options = {"activation": str(r.choice(ACTIVATIONS)), "bias": bool(r.integers(2))}
    layer: Any = accelerate(FeedForward(width, size(r, 40), **options, rng=r))
    x, dy = normal(r, n, width), r.normal(size=(n, width)).astype(np.float32)
    parameters = [p for _, p in layer.parameters()]
    against_textbook(layer, lambda form: form(x), dy, parameters)
    changed(r, parameters[int(r.integers(len(parameters)))], str(r.choice(["value", "grad"])))
    with maybe_refused():
        layer(x)[1](dy)


def cache(r: Random) -> None:
    """A prompt, token after token, pieces, lengths that are set, rows that are selected; then a call that must fail."""
    layer = layer_of(r)
    width, n, mine, theirs = layer.self_attention.sublayer.d_model, size(r, 9), KeyValueCache(), KeyValueCache()
    masked = r.random() < 0.2
    for _ in range(int(r.integers(1, 9))):
        if mine.length and r.random() < 0.2:
            rows = r.integers(0, n, size(r, 9))
            n = len(rows)
            mine.select(rows)
            theirs.select(rows)
        if r.random() < 0.2:
            mine.length = theirs.length = int(r.integers(0, mine.length + 1))
        x = normal(r, n, 1 if r.random() < 0.6 else size(r, 30), width)
        mask = r.random((n, x.shape[1], mine.length + x.shape[1])) < 0.8 if masked else None
        expected = layer.textbook(x, mask=mask, causal=True, cache=theirs)[0]
        require_same([layer(x, mask=mask, causal=True, cache=mine)[0]], [expected])
        assert mine.length == theirs.length
    with maybe_refused():
        mine.length = int(r.choice([-100_000, -1, mine.length, mine.buffers()[0].shape[-2], 10**6, 2**62]))
    if r.random() < 0.5:
        parameters = [p for _, p in layer.parameters()]
        changed(r, parameters[int(r.integers(len(parameters)))], "value")
    with maybe_refused():
        layer(normal(r, n if r.random() < 0.7 else size(r, 9), size(r, 3), width), causal=True, cache=mine)


def parts(r: Random) -> None:
    """A layer of other parts, token after token; then one with a parameter that was changed."""
    g, times, d, width = size(r, 3), size(r, 3), 2 * size(r, 5), size(r, 20)
    norm = (LayerNorm, RMSNorm, OffsetRMSNorm)[int(r.integers(3))]
    turn: Any = scaled_turn(20.0, None, [None, 2][int(r.integers(2))])
    turn = qk_norm(d, 0.1, then=turn) if r.integers(2) else turn if r.integers(2) else (None, None)
    mix: Any = SoftCapped(3.0) if r.integers(2) else ScaledDotProduct(0.5)
    mix = Window(size(r, 4), mix, int(r.integers(2))) if r.integers(2) else mix
    network = (FeedForward, GatedFeedForward)[int(r.integers(2))](width, size(r, 30), str(r.choice(ACTIVATIONS)), rng=r)
    inner: list[Any] = [grouped(width, g * times, g, d, bool(r.integers(2)), rng=r, mix=mix, turn=turn), network]
    inner = [Normed(part, norm(width)) for part in inner] if r.integers(2) else inner
    order = str(r.choice(["pre", "post"]))
    layer: Any = accelerate(EncoderLayer.of(*(Residual(part, norm(width, 0.1), order) for part in inner)))
    for _, p in layer.parameters():
        p.value[...] = 0.5 * r.normal(size=p.value.shape)
    if r.random() < 0.4:
        pack(layer, str(r.choice(["int8", "bfloat16"])))
    n, mine, theirs = size(r, 9), layer.new_cache(), layer.new_cache()
    for step in range(size(r, 12)):
        x = normal(r, n, 1 if step else size(r, 5), width)
        expected = layer.textbook(x, causal=True, cache=theirs)[0]
        require_same([layer(x, causal=True, cache=mine)[0]], [expected])
    parameters = [p for _, p in layer.parameters()]
    changed(r, parameters[int(r.integers(len(parameters)))], "value")
    with maybe_refused():
        layer(normal(r, n, 1, width), causal=True, cache=mine)


def stack(r: Random) -> None:
    """Layers that read a memory, token after token; then one with a parameter that was changed, or another memory."""
    n_heads, n, memory_mask = size(r, 4), size(r, 9), None
    width, options = n_heads * size(r, 9), {"activation": str(r.choice(ACTIVATIONS)), "bias": bool(r.integers(2))}
    order = str(r.choice(["pre", "post"]))
    made = Decoder(size(r, 4), width, n_heads, size(r, 30), norm_order=order, rng=r, **options).to(dtype="float32")
    stack: Any = accelerate(made)
    mine, theirs, memory = stack.new_cache(), stack.new_cache(), normal(r, n, size(r, 30), width)
    if r.integers(2):
        memory_mask = r.random((n, 1, memory.shape[1])) < 0.7
    for step in range(size(r, 40)):
        x, how = normal(r, n, 1 if step else size(r, 5), width), {"memory_mask": memory_mask}
        expected = stack.textbook(x, memory, cache=theirs, **how)[0]
        require_same([stack(x, memory, cache=mine, **how)[0]], [expected])
    parameters = [p for _, p in stack.parameters()]
    changed(r, parameters[int(r.integers(len(parameters)))], "value")
    with maybe_refused():
        stack(normal(r, n, 1, width), memory if r.integers(2) else normal(r, n, size(r, 9), width), cache=mine)


def padded(r: Random) -> None:
    """An encoder or a decoder without its padding, whose gradient nothing gives; then one with a changed parameter."""
    n_heads, n, rate, reads = size(r, 4), size(r, 9), float(r.choice([0.0, 0.3])), bool(r.integers(2))
    width, options = n_heads * size(r, 9), {"activation": str(r.choice(ACTIVATIONS[:3])), "bias": bool(r.integers(2))}
    options |= {"norm_order": str(r.choice(["pre", "post"])), "dropout": rate, "attention_dropout": rate, "rng": r}
    kind, seed, causal = Decoder if reads else Encoder, int(r.integers(100)), {} if reads else {"causal": True}
    stack: Any = accelerate(kind(size(r, 3), width, n_heads, size(r, 30), **options).to(dtype="float32"))
    for _, part in stack.modules():
        vars(part).update({"eps": 0.1} if hasattr(part, "eps") else {})
    lengths = [r.integers(least, size(r, 90) + least, n) for least in range(1 + reads)]
    real = [np.arange(max(1, own.max())) < own[:, None] for own in lengths]
    given = [normal(r, *each.shape, width) for each in real]
    masks = {"memory_mask": real[1][:, None]} if reads else {}
    dy = (r.normal(size=given[0].shape) * real[0][..., None]).astype(np.float32)

    def call(form: Any) -> Any:
        y, backward = form(*given, **masks, **causal, rng=np.random.default_rng(seed))

        def real_backward(dy: np.ndarray) -> Any:
            gradients = backward(dy)
            return tuple(d * own[..., None] for d, own in zip(gradients if reads else (gradients,), real, strict=True))

        return y * real[0][..., None], real_backward

    parameters = [p for _, p in stack.parameters()]
    unpadded = WithoutPadding(stack, real[0])
    expected = everything(lambda: call(stack.textbook), dy, parameters)
    require_same(everything(lambda: call(unpadded), dy, parameters), expected)
    changed(r, parameters[int(r.integers(len(parameters)))], str(r.choice(["value", "grad"])))
    with maybe_refused():
        call(unpadded)[1](dy)


def optimizer(r: Random) -> None:
    """Steps, beside those of the textbook form; then a value or a gradient that was changed."""
    layer = layer_of(r)
    if r.random() < 0.5:
        Workers(layer, 1)
    pairs = dict(layer.parameters())
    twins = {name: Parameter(p.value.copy()) for name, p in pairs.items()}
    make = (Adam, AdamW, SGD)[int(r.integers(3))]
    mine, theirs = accelerate(make(pairs.items(), 0.01)), make(twins.items(), 0.01)
    for _ in range(3):
        for name, p in pairs.items():
            p.grad[...] = twins[name].grad[...] = r.normal(size=p.value.shape)
        mine.step()
        theirs.step()
        require_same([p.value for p in pairs.values()], [p.value for p in twins.values()])
    changed(r, pairs[str(r.choice(list(pairs)))], str(r.choice(["value", "grad"])))
    with maybe_refused():
        mine.step()


DRAWN = (attention, rowwise, products, packed_products, layers, network, cache, parts, stack, padded, optimizer)
_counts: collections.Counter[str] = collections.Counter()


@contextlib.contextmanager
def maybe_refused() -> Iterator[None]:
    try:
        yield
        _counts["done though changed"] += 1
    except (TypeError, ValueError):
        _counts["refused"] += 1


ENTRIES = {  # the loops that Python calls; the others are called by these
    loops: {"adam", "gelu", "gelu_tanh", "keeps", "layer_norm", "layer_norm_backward"},
    attention_loops: {"attend", "attend_backward"},
    decoding_loops: {"layer", "product", "unpack"},
    sublayer_loops: {"attention", "attention_backward", "feed_forward", "feed_forward_backward"},
}


def require_all_called() -> None:
    """Also that ENTRIES are all that the kernels name, as "loops.adam" or so."""
    files = {path.name: path.read_text(encoding="utf-8") for path in Path(loops.__file__).parent.glob("*.py")}
    python = [text for name, text in files.items() if name not in loops.SOURCES]
    named = set(re.findall(r"\bloops\.(\w+)", "".join(python)))
    known = {name for module in ENTRIES for name, loop in vars(module).items() if hasattr(loop, "py_func")}
    assert set().union(*ENTRIES.values()) == named & known
    idle = [name for module, names in ENTRIES.items() for name in names if not vars(module)[name].signatures]
    assert not idle, idle


def require_that_products_fit() -> None:
    """BLAS looks at no index: what does not fit, or has gaps within its rows, must be refused before."""
    a, b, c = (np.zeros(shape, np.float32) for shape in ((3, 4), (4, 5), (3, 5)))
    gaps = np.zeros((3, 16), np.float32)[:, ::4]
    product = blas.matrix_product()
    for x, y, z in ((a, b[:3], c), (a[:2], b, c), (a, b, c[:2]), (a, b, c[:, :4]), (gaps, b, c)) if product else ():
        try:
            blas.multiply(product, blas.AS_IT_IS, blas.AS_IT_IS, 1.0, x, y, 0.0, z)
        except IndexError:
            continue
        raise AssertionError(f"{x.shape} times {y.shape} into {z.shape}")


def main(seed: int, draws: int) -> None:
    assert loops.CHECKED, "set NUMBA_BOUNDSCHECK=1"
    require_that_products_fit()
    decoding.LARGE = decoding.LEAST_SIDE = decoding.SHARED = sublayers.SHARED = 1  # all is worth the loops, and threads
    sys.modules[decoding.__package__ + ".attention"]._MANY = 1
    for draw in range(draws):
        r = np.random.default_rng([seed, draw])
        kind = DRAWN[draw % len(DRAWN)]
        with threadpoolctl.threadpool_limits(int(r.integers(1, 4)), user_api="blas"):
            print(f"seed {seed}, draw {draw}: {kind.__name__}", file=sys.stderr, flush=True)
            with np.errstate(all="ignore"):
                kind(r)
        _counts[kind.__name__] += 1
    require_all_called()
    print(dict(_counts))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
