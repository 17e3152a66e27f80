"""Every rank of input and of mask that an op or layer takes, and options on both sides of their default.

What is right for a batch of sequences may be wrong for one sequence, or for one more axis: `dy.sum(axis=0)` is. These
cases are checked along a direction for each array, since the others look at every entry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import layers, ops
from .case import Random, Setup, call, case, frozen, ordinary, some_mask

_LEADING = {n: (2, 3, 2, 6)[4 - n :] for n in range(5)}  # n axes before those that the op is about
Build = Callable[..., Setup]  # from a generator and the leading axes


def _every_rank(kind: str, name: str, own: int, build: Build, least: int = 0) -> None:
    """Cases for ranks 1 to 4 of an input with `own` axes of its own, and at least `least` before them."""
    for n in range(max(least, 1 - own), 5 - own):
        case(kind, f"{name} of rank {own + n}", partial(build, axes=_LEADING[n]), along_directions=True)


# The op is looked up when the case is run, so a case checks whatever `ops` holds at that moment.
def _norm(op: str, n_vectors: int) -> Build:
    return lambda r, axes: call(
        getattr(ops, op), r.normal(size=(*axes, 4)), *(r.normal(1.0, 0.5, 4) for _ in range(n_vectors))
    )


def _elementwise(op: str) -> Build:
    return lambda r, axes: call(getattr(ops, op), r.normal(size=axes))


_every_rank(
    "op", "linear", 1, lambda r, axes: call(ops.linear, *(r.normal(size=s) for s in [(*axes, 4), (4, 3), (3,)]))
)
_every_rank(
    "op",
    "low_rank_linear",
    1,
    lambda r, axes: call(ops.low_rank_linear, *(r.normal(size=s) for s in [(*axes, 4), (4, 2), (2, 3)])),
)
_every_rank("op", "softmax", 1, lambda r, axes: call(ops.softmax, r.normal(size=(*axes, 4)), temperature=1.5))
_every_rank(
    "op", "softmax along the first axis", 1, lambda r, axes: call(ops.softmax, r.normal(size=(4, *axes)), axis=0)
)
_every_rank("op", "layer_norm", 1, _norm("layer_norm", 2))
_every_rank("op", "rms_norm", 1, _norm("rms_norm", 1))
for _name in ("relu", "gelu", "silu", "tanh"):
    _every_rank("op", _name, 0, _elementwise(_name))
_every_rank("op", "gated", 0, lambda r, axes: call(ops.gated, r.normal(size=axes), r.normal(size=axes)))
_every_rank("op", "dropout", 0, lambda r, axes: call(ops.dropout, r.normal(size=axes), 0.4, **frozen(r)))
_every_rank("op", "split_heads", 2, lambda r, axes: call(ops.split_heads, r.normal(size=(*axes, 3, 4)), 2))
_every_rank("op", "merge_heads", 3, lambda r, axes: call(ops.merge_heads, r.normal(size=(*axes, 2, 3, 2))))
_every_rank("op", "repeat_heads", 3, lambda r, axes: call(ops.repeat_heads, r.normal(size=(*axes, 2, 3, 2)), 2))
_every_rank("op", "rotary", 2, lambda r, axes: call(ops.rotary, r.normal(size=(*axes, 3, 4)), start=1, base=5e5))
_every_rank("op", "embedding", 0, lambda r, axes: call(ops.embedding, r.integers(6, size=axes), r.normal(size=(6, 3))))
_every_rank(
    "op",
    "cross_entropy",
    1,
    lambda r, axes: call(ops.cross_entropy, r.normal(size=(*axes, 4)), np.asarray(r.integers(4, size=axes))),
)
_every_rank("op", "mean_pool", 2, lambda r, axes: call(ops.mean_pool, r.normal(size=(*axes, 3, 4))))


def _drawn(op: str, *shapes: tuple[int, ...], **options: Any) -> Build:
    """A call of an op whose first inputs have leading axes: these shapes begin with 0, in their place."""

    def build(r: Random, axes: tuple[int, ...]) -> Setup:
        drawn = (r.normal(size=(*axes, *shape[1:]) if shape[0] == 0 else shape) for shape in shapes)
        return call(getattr(ops, op), *drawn, **options)

    return build


_every_rank("op", "rnn_cell", 1, _drawn("rnn_cell", (0, 3), (0, 3), (3, 3)))
_every_rank("op", "lstm_cell", 1, _drawn("lstm_cell", (0, 8), (0, 4), (2, 8)))
_every_rank("op", "gru_cell", 1, _drawn("gru_cell", (0, 6), (0, 2), (2, 6), (6,)))
_every_rank("op", "convolution", 2, _drawn("convolution", (0, 4, 2), (3, 2, 3), (3,)))
_every_rank("op", "additive_attention", 2, _drawn("additive_attention", (0, 3, 4), (0, 5, 4), (0, 5, 2), (4,)))
_every_rank("op", "top_k_gates", 1, _drawn("top_k_gates", (0, 4)))
_every_rank("op", "load_balance", 1, _drawn("load_balance", (0, 4)))
_every_rank("op", "local_attention", 2, _drawn("local_attention", (0, 5, 4), (0, 5, 4), (0, 5, 2), radius=2))
_every_rank("op", "flash_attention", 2, _drawn("flash_attention", (0, 3, 4), (0, 5, 4), (0, 5, 2), tile=2))
_every_rank("op", "linear_attention", 2, _drawn("linear_attention", (0, 5, 4), (0, 5, 4), (0, 5, 2), block=2))
_every_rank("op", "sink_attention", 3, _drawn("sink_attention", (0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 2), (2,)))


def _attention(r: Random, axes: tuple[int, ...], mask: Any = None) -> Setup:
    return call(ops.attention, *(r.normal(size=(*axes, *s)) for s in [(3, 4), (5, 4), (5, 6)]), mask=mask)


_every_rank("op", "attention", 2, _attention)
_MASKS: dict[int, Callable[[Random], Any]] = {
    0: lambda r: np.array(True),
    1: lambda r: np.array([True, False, True, True, False]),
    2: lambda r: some_mask(r, 3, 5),
    3: lambda r: some_mask(r, 7, 3, 5),
    4: lambda r: some_mask(r, 2, 7, 3, 5),
}


def _mask_of_rank(n: int) -> None:
    def of_attention(r: Random) -> Setup:
        return _attention(r, (2, 7), _MASKS[n](r))

    def of_mean_pool(r: Random) -> Setup:
        shape = (2, 3, 5)[3 - n :]
        return call(ops.mean_pool, r.normal(size=(2, 3, 5, 4)), np.asarray(r.random(shape) < 0.7))

    def of_additive_attention(r: Random) -> Setup:
        return _drawn("additive_attention", (0, 3, 4), (0, 5, 4), (0, 5, 2), (4,), mask=_MASKS[n](r))(r, (2, 7))

    def of_local_attention(r: Random) -> Setup:
        mask = np.asarray(r.random((2, 7, 5)[3 - n :]) < 0.8)
        return _drawn("local_attention", (0, 5, 4), (0, 5, 4), (0, 5, 2), radius=2, mask=mask)(r, (2, 7))

    def of_sink_attention(r: Random) -> Setup:
        return _drawn("sink_attention", (0, 3, 4), (0, 5, 4), (0, 5, 2), (7,), mask=_MASKS[n](r))(r, (2, 7))

    def of_keys(op: str) -> Callable[[Random], Setup]:
        def build(r: Random) -> Setup:
            mask = np.asarray(r.random((2, 7, 5)[3 - n :]) < 0.8)
            return _drawn(op, (0, 5, 4), (0, 5, 4), (0, 5, 2), mask=mask)(r, (2, 7))

        return build

    case("op", f"attention with a mask of rank {n}", of_attention, along_directions=True)
    case("op", f"additive_attention with a mask of rank {n}", of_additive_attention, along_directions=True)
    case("op", f"sink_attention with a mask of rank {n}", of_sink_attention, along_directions=True)
    if n < 4:
        for op in ("flash_attention", "linear_attention"):
            case("op", f"{op} with a mask of rank {n}", of_keys(op), along_directions=True)
        case("op", f"mean_pool with a mask of rank {n}", of_mean_pool, along_directions=True)
        case("op", f"local_attention with a mask of rank {n}", of_local_attention, along_directions=True)


def _eps(eps: float) -> None:
    def of_layer(norm: Any) -> Callable[[Random], Setup]:
        return lambda r: call(ordinary(norm(4, eps), r), r.normal(size=(3, 4)))

    def of_op(op: str, n_vectors: int) -> Callable[[Random], Setup]:
        return lambda r: call(
            getattr(ops, op), r.normal(size=(3, 4)), *(r.normal(size=4) for _ in range(n_vectors)), eps=eps
        )

    case("op", f"layer_norm with ε = {eps}", of_op("layer_norm", 2), along_directions=True)
    case("op", f"rms_norm with ε = {eps}", of_op("rms_norm", 1), along_directions=True)
    case("layer", f"LayerNorm with ε = {eps}", of_layer(layers.LayerNorm), along_directions=True)
    case("layer", f"RMSNorm with ε = {eps}", of_layer(layers.RMSNorm), along_directions=True)


for _n in _MASKS:
    _mask_of_rank(_n)
for _number in (1e-12, 1e-6, 1e-2):
    _eps(_number)


def _layer(make: Callable[[], Any], width: int, *shape: int) -> Build:
    return lambda r, axes: call(ordinary(make(), r), r.normal(size=(*axes, *shape, width)))


_every_rank("layer", "Linear", 1, _layer(lambda: layers.Linear(4, 3), 4))
_every_rank("layer", "LayerNorm", 1, _layer(lambda: layers.LayerNorm(4), 4))
_every_rank("layer", "RMSNorm", 1, _layer(lambda: layers.RMSNorm(4), 4))
_every_rank("layer", "FeedForward", 1, _layer(lambda: layers.FeedForward(4, 6, "gelu"), 4))
_every_rank(
    "layer",
    "Residual around a feed-forward network",
    1,
    _layer(lambda: layers.Residual(layers.FeedForward(4, 6, "gelu"), layers.LayerNorm(4)), 4),
)
_every_rank("layer", "SinusoidalPositions", 2, _layer(lambda: layers.SinusoidalPositions(4), 4, 3))
_every_rank("layer", "LearnedPositions", 2, _layer(lambda: layers.LearnedPositions(5, 4), 4, 3))
_every_rank("layer", "MultiHeadAttention", 2, _layer(lambda: layers.MultiHeadAttention(4, 2), 4, 3))
_every_rank("layer", "EncoderLayer", 2, _layer(lambda: layers.EncoderLayer(4, 2, 6, activation="gelu"), 4, 3))
_every_rank("layer", "Encoder", 2, _layer(lambda: layers.Encoder(1, 4, 2, 6, activation="gelu"), 4, 3))
_every_rank(
    "layer",
    "Checkpoint",
    2,
    _layer(lambda: layers.Checkpoint(layers.EncoderLayer(4, 2, 6, activation="gelu")), 4, 3),
)
_every_rank("layer", "Recurrent", 2, _layer(lambda: layers.Recurrent(4, 3), 4, 3))
_every_rank("layer", "Bidirectional", 2, _layer(lambda: layers.Bidirectional(4, 2, "gru"), 4, 3))
_every_rank("layer", "MixtureOfExperts", 1, _layer(lambda: layers.MixtureOfExperts(4, 2, 3), 4))
_every_rank("layer", "Convolution", 2, _layer(lambda: layers.Convolution(4, 3), 4, 3))
_every_rank("layer", "LinearAttention", 2, _layer(lambda: layers.LinearAttention(4, 2), 4, 3))
_every_rank("layer", "LatentAttention", 2, _layer(lambda: layers.LatentAttention(4, 2, 3, 5, 2), 4, 3))
_every_rank(
    "layer",
    "Embedding",
    0,
    lambda r, axes: call(ordinary(layers.Embedding(6, 3), r), r.integers(6, size=axes)),
)
_every_rank(
    "layer",
    "InputEmbedding",
    1,
    lambda r, axes: call(
        ordinary(layers.InputEmbedding(layers.Embedding(6, 4), layers.LearnedPositions(5, 4)), r),
        r.integers(6, size=(*axes, 3)),
    ),
)


def _decoder(make: Callable[[], Any]) -> Build:
    return lambda r, axes: call(ordinary(make(), r), r.normal(size=(*axes, 3, 4)), r.normal(size=(*axes, 2, 4)))


_every_rank("layer", "DecoderLayer", 2, _decoder(lambda: layers.DecoderLayer(4, 2, 6, activation="gelu")))
_every_rank("layer", "Decoder", 2, _decoder(lambda: layers.Decoder(1, 4, 2, 6, activation="gelu")))
_every_rank("layer", "Alignment", 2, _decoder(lambda: layers.Alignment(4)))
