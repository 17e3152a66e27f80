"""Cases for check.py whose sizes reach every branch of the fast forms.

They have more than 64 and 512 keys, several blocks, several tiles, scores whose exponentials overflow, whole layers,
layers on a cache, and steps of the optimisers.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...check.verify import Case
from ...check.verify.catalogue.case import Random, Setup, call, frozen, gain, ordinary, some_mask
from ...core import layers
from ...core import ops as textbook
from ...core.arrays.backend import Array, Pullback
from ...core.layers import KeyValueCache, Residual, RMSNorm
from ...core.training import Adam, AdamW, Optimizer
from ...ideas.after.gated import GatedFeedForward
from ...ideas.after.grouped import grouped
from ...ideas.after.qk_norm import qk_norm
from ...ideas.after.relative_bias import RelativeBias
from ...ideas.after.rotary import rotary_turn
from ...ideas.after.sandwich import Normed, OffsetRMSNorm
from ...ideas.after.scaled_angles import scaled_turn
from ...ideas.after.score_bias import Biased
from ...ideas.after.softcap import SoftCapped
from ...ideas.after.window import Window
from ...ideas.published import packing
from ...ideas.published.packed import PackedWeight, put
from . import row_blocks

LARGE: dict[str, Case] = {}


def _large(kind: str, name: str, build: Callable[[Random], Setup]) -> None:
    LARGE[name] = Case(name, kind, build)


def _op(name: str, *arguments: Any, **options: Any) -> None:
    _large("op", name, lambda r: call(r, getattr(textbook, name.partition(" ")[0]), *arguments, **options))


def to_accelerate(optimizer: Any) -> Any:
    """The optimiser itself. For the fast forms, check.py replaces this function by fast.accelerate."""
    return optimizer


def _qkv(r: Random, t_q: int, t_k: int, *first: int) -> list[Array]:
    return [r.normal(size=(*first, length, 8)) for length in (t_q, t_k, t_k)]


def _attention(*sizes: int, mask: tuple[int, ...] = (), seen: Any = True, **options: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        given = options | ({"rng": frozen(r)} if "dropout" in options else {})
        if mask:
            given["mask"] = (some_mask(*mask)(r) if mask[-2] > 1 else r.random(mask) < 0.6) & seen
        return call(r, textbook.attention, *_qkv(r, *sizes), **given)

    return build


_TILES, _HALF = (150, 1100, 1, 2), (1, 2, 150, 1100)
_STAIRS = np.arange(1100) >= np.arange(40, 190)[:, None] * 6
_large("op", "attention with 70 keys, causal", _attention(70, 70, 2, 3, causal=True))
_large("op", "attention with 70 keys, mask and dropout", _attention(66, 70, 2, 3, mask=(2, 1, 66, 70), dropout=0.3))
_large("op", "attention with more queries than keys, causal", _attention(70, 66, 3, causal=True))
_large("op", "attention in tiles", _attention(*_TILES))
_large("op", "attention in tiles, causal", _attention(*_TILES, causal=True, mask=(2, 1, 1100)))
_large("op", "attention in tiles, large scores", _attention(*_TILES, scale=9.0, mask=_HALF))
_large("op", "attention in tiles, dropout", _attention(*_TILES, causal=True, dropout=0.3))
_large("op", "attention in tiles, each query with later keys", _attention(*_TILES, scale=9.0, mask=_HALF, seen=_STAIRS))


def _numbers(r: Random) -> Array:
    """Beyond ±10, where some branches begin, and in more than two blocks."""
    return np.concatenate([4.0 * r.normal(size=2 * row_blocks.BLOCK), [0.0, 12.0, -12.0, 20.0, -20.0]])


_op("gelu of several blocks", _numbers)
_op("gelu by tanh, of several blocks", _numbers, approximate="tanh")
_op("layer_norm of several blocks", (263, 129), gain(129), (129,))
_op(
    "cross_entropy of several blocks",
    lambda r: 3.0 * r.normal(size=(41, 9001)),
    lambda r: np.where(r.random(41) < 0.2, -100, r.integers(9001, size=41)),
    label_smoothing=0.1,
)
_op("linear of one row", (1, 37), (37, 21))
_op("linear by a transposed weight", (3, 37), lambda r: r.normal(size=(21, 37)).T, (21,))
_op("linear of few rows by many weights", (3, 1, 602), (602, 501), (501,))


def _encoder_layer(r: Random, **options: Any) -> Any:
    """With an eps large enough to matter, and a different one in each norm."""
    layer = ordinary(layers.EncoderLayer(12, 3, 20, **options), r)
    layer.self_attention.norm.eps = layer.feed_forward.norm.eps = 0.1
    layer.feed_forward.norm.eps = 0.3
    return layer


def _whole(*shape: int, seen: tuple[int, ...] | None = None, causal: bool = False, **options: Any) -> Any:
    def build(r: Random) -> Setup:
        layer = _encoder_layer(r, **options)
        mask = None if seen is None else some_mask(*seen)(r)
        return call(r, layer, (*shape, 12), mask=mask, causal=causal, rng=frozen)

    return build


_DROPOUT: dict[str, Any] = {"dropout": 0.2, "attention_dropout": 0.3}
for _order in ("pre", "post"):
    for _activation in ("relu", "gelu", "gelu_tanh"):
        _seen = _whole(3, 9, seen=(3, 9, 9), norm_order=_order, activation=_activation)
        _large("layer", f"EncoderLayer in {_order}-norm order with {_activation}", _seen)
    _dropped = _whole(2, 70, seen=(2, 70, 70), norm_order=_order, bias=False, **_DROPOUT)
    _large("layer", f"EncoderLayer in {_order}-norm order, 70 tokens, dropout, no biases", _dropped)
    _large("layer", f"EncoderLayer in {_order}-norm order, 70 tokens", _whole(2, 70, causal=True, norm_order=_order))
_large("layer", "EncoderLayer with 530 tokens", _whole(1, 530, causal=True, norm_order="pre"))


def _with_memory(r: Random, norm_order: str, **options: Any) -> Setup:
    """More keys than queries, and a sequence whose memory is hidden."""
    layer = ordinary(layers.DecoderLayer(12, 3, 20, norm_order=norm_order, **options), r)
    seen = np.array([[[1] * 7 + [0] * 4], [[0] * 11], [[1] * 11]], bool)
    return call(r, layer, (3, 9, 12), (3, 11, 12), memory_mask=seen, rng=frozen)


for _order in ("pre", "post"):
    _dropped = functools.partial(_with_memory, norm_order=_order, bias=False, activation="gelu", **_DROPOUT)
    _large("layer", f"DecoderLayer in {_order}-norm order, dropout, no biases", _dropped)
    _large("layer", f"DecoderLayer in {_order}-norm order", functools.partial(_with_memory, norm_order=_order))


def _cached(
    n_rows: int, pieces: tuple[int, ...], make: Any = _encoder_layer, packed: bool = False, **options: Any
) -> Any:
    """The outputs of a layer that reads a sequence piece by piece, on a cache. There is no backward.

    packed: in float32 its weights are packed, each in another way; in float64 they are the same numbers, unpacked.
    """

    def build(r: Random) -> Setup:
        layer = make(r, **options)
        in_float32 = _packed(layer, r) if packed else layer
        memory = [r.normal(size=(n_rows, 5, 12))] if layer.reads_memory else []
        seen = r.random((n_rows, 1, 5)) < 0.6

        def read(x: Array, *memory: Array) -> tuple[Array, Pullback]:
            cuts, own, form = np.cumsum((0, *pieces)), layer.new_cache(), in_float32 if x.dtype == "f4" else layer
            how: Any = {"cache": own, "causal": True}
            if memory:
                how = {"memory_mask": seen, "cache": (own, KeyValueCache())}
            read = [form(x[:, a:b], *memory, **how)[0] for a, b in itertools.pairwise(cuts)]
            return np.concatenate(read, axis=1), lambda dy: ()

        return call(r, read, (n_rows, sum(pieces), 12), *memory, module=layer)

    return build


for _activation in ("relu", "gelu", "gelu_tanh"):
    _tokens = _cached(3, (2, *[1] * 9), norm_order="pre", activation=_activation)
    _large("layer", f"EncoderLayer on a cache, token by token, with {_activation}", _tokens)
_large("layer", "EncoderLayer on a cache, piece by piece", _cached(2, (1, 1, 5, 66, 2), norm_order="pre"))
_large("layer", "EncoderLayer on a cache, in post-norm order", _cached(2, (3, 1, 4), norm_order="post", bias=False))


def _llama(r: Random) -> Any:
    attention = grouped(12, 6, 2, 4, bias=False, turn=rotary_turn(50.0))
    network = GatedFeedForward(12, 20, bias=False)
    return ordinary(layers.EncoderLayer.of(*(Residual(f, RMSNorm(12), "pre") for f in (attention, network))), r)


def drawn_rows(r: Random, kind: str, n: int, width: int) -> np.ndarray:
    """Packed rows of any bits, whose scales are ordinary numbers."""
    if kind == "BF16":
        return packing.pack(r.normal(size=(n, width)).astype(np.float32), kind)
    known = packing.KINDS[kind]
    rows = r.integers(0, 256, (n, -(-width // known.numbers), known.n_bytes), np.uint8)
    for at in known.scales:
        rows[..., at : at + 2] = r.normal(0.0, 0.01, (*rows.shape[:2], 1)).astype(np.float16).view(np.uint8)
    return rows.reshape(n, -1)


def _packed(layer: Any, r: Random) -> Any:
    """A copy with packed weights, whose numbers become those of the layer."""
    copied = copy.deepcopy(layer).to(dtype="float32")
    maps = [part for _, part in copied.modules() if type(part) is layers.Linear]
    for part, kind in zip(maps, packing.KINDS, strict=True):
        weight = PackedWeight(drawn_rows(r, kind, part.d_out, part.d_in), kind, part.d_in, across=True)
        put(copied, {id(part.weight): weight})
    for (_, mine), (_, theirs) in zip(layer.parameters(), copied.parameters(), strict=True):
        mine.value = theirs.value.astype(np.float64)
    return copied


def _gemma(r: Random) -> Any:
    """With a norm after each sub-layer and in each head, a cap, a window whose cache forgets, and a partial turn."""
    turn = qk_norm(6, then=scaled_turn(50.0, {"kind": "linear", "factor": 3.0}, 4), kind=OffsetRMSNorm)
    attention = grouped(12, 4, 2, 6, mix=Window(4, SoftCapped(2.0, 0.7)), turn=turn)
    parts = (Normed(f, OffsetRMSNorm(12)) for f in (attention, GatedFeedForward(12, 20, "gelu_tanh")))
    return ordinary(layers.EncoderLayer.of(*(Residual(f, OffsetRMSNorm(12), "pre") for f in parts)), r)


def _t5(r: Random) -> Any:
    own = layers.MultiHeadAttention(12, 3, mix=Biased(RelativeBias(3, 4, 6, both_ways=False, std=1.0), 1.0))
    parts = own, layers.MultiHeadAttention(12, 3), layers.FeedForward(12, 20)
    return ordinary(layers.DecoderLayer.of(*(Residual(f, RMSNorm(12), "pre") for f in parts)), r)


_ONES = (1,) * 7
_large("layer", "EncoderLayer on a cache, of a Llama", _cached(2, (2, *_ONES), _llama))
_large("layer", "EncoderLayer on a cache, with packed weights", _cached(2, (5, 1, 2, 1), _llama, packed=True))
_large("layer", "EncoderLayer on a cache, of a Gemma", _cached(2, (2, *_ONES), _gemma))
_large("layer", "DecoderLayer on a cache, of a T5", _cached(2, (2, *_ONES), _t5))


def _steps(kind: type[Optimizer], **options: Any) -> Callable[[Random], Setup]:
    """The values after each of three steps, with gradients whose sizes span six orders of magnitude."""

    def build(r: Random) -> Setup:
        layer, form = ordinary(layers.Linear(row_blocks.BLOCK // 50, 51), r), to_accelerate
        drawn = [r.normal(size=p.value.shape) * 10.0 ** r.integers(-5, 2, p.value.shape) for _, p in layer.parameters()]

        def step() -> tuple[Array, Pullback]:
            optimizer, after = form(kind(layer.parameters(), 0.01, **options)), []
            for t in range(3):
                for (_, p), g in zip(layer.parameters(), drawn, strict=True):
                    p.grad[...] = g * (1.0 - 0.7 * t)
                optimizer.step()
                after += [p.value.reshape(-1).copy() for _, p in layer.parameters()]
            return np.concatenate(after), lambda dy: ()

        return call(r, step, module=layer)

    return build


_large("layer", "Adam in three steps", _steps(Adam, betas=(0.8, 0.95)))
_large("layer", "AdamW in three steps", _steps(AdamW, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3))
