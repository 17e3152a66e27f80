"""At least one case for every layer: also layers that are tied, used twice or recomputed, or that share a memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....core import layers
from ....core.arrays.backend import Array, Pullback
from .case import Random, Setup, call, case, frozen, layer, ordinary, some_mask

_IDS = np.array([[1, 4, 1, 0], [2, 1, 5, 5]])

layer("Linear", lambda: layers.Linear(4, 3), (2, 5, 4))
layer("Linear without bias", lambda: layers.Linear(4, 3, bias=False), (2, 4))
layer("LayerNorm", lambda: layers.LayerNorm(5), (2, 3, 5))
layer("RMSNorm", lambda: layers.RMSNorm(5), (2, 3, 5))
layer("Embedding", lambda: layers.Embedding(6, 3), _IDS, truth=lambda table, ids: table.table.value[ids])


def _unembed(r: Random) -> Setup:
    table = ordinary(layers.Embedding(6, 3), r)
    setup = call(r, table.unembed, (2, 4, 3), module=table)
    return replace(setup, truth=lambda x: np.einsum("btd,vd->btv", x, table.table.value))


def _tied(r: Random) -> Setup:
    table = ordinary(layers.Embedding(6, 3), r)

    def tied(ids: Array) -> tuple[Array, Pullback]:
        vectors, embedding_backward = table(ids)
        logits, unembed_backward = table.unembed(vectors)

        def backward(dlogits: Array) -> None:
            dvectors = unembed_backward(dlogits)
            embedding_backward(dvectors)

        return logits, backward

    return call(r, tied, _IDS, module=table)


case("layer", "Embedding as output", _unembed)
case("layer", "Embedding tied to the output", _tied)


def _waves(layer: layers.Module, x: Array, start: int = 0, positions: Array | None = None) -> Array:
    """Vaswani et al. 2017, section 3.5, number by number."""
    wanted = x.copy()
    for b, t, i in np.ndindex(x.shape):
        angle = (start + t if positions is None else positions[b, t]) / 10000.0 ** ((i - i % 2) / x.shape[-1])
        wanted[b, t, i] += math.cos(angle) if i % 2 else math.sin(angle)
    return wanted


layer("SinusoidalPositions", lambda: layers.SinusoidalPositions(6), (2, 3, 6), start=2, truth=_waves)
layer(
    "SinusoidalPositions with positions of each sequence",
    lambda: layers.SinusoidalPositions(4),
    (2, 3, 4),
    positions=np.array([[0, 0, 1], [2, 0, 5]]),
    truth=_waves,
)
layer(
    "LearnedPositions",
    lambda: layers.LearnedPositions(7, 3),
    (2, 4, 3),
    start=1,
    truth=lambda rows, x, start: x + rows.table.value[1:5],
)
layer(
    "LearnedPositions with positions of each sequence",
    lambda: layers.LearnedPositions(5, 3),
    (2, 3, 3),
    positions=np.array([[0, 0, 1], [2, 0, 4]]),
    truth=lambda rows, x, positions: x + rows.table.value[[[0, 0, 1], [2, 0, 4]]],
)
layer(
    "InputEmbedding",
    lambda: layers.InputEmbedding(
        layers.Embedding(6, 4), layers.LearnedPositions(5, 4), 1.7, types=layers.Embedding(2, 4)
    ),
    _IDS,
    start=1,
    truth=lambda all, ids, start: (
        1.7 * all.tokens.table.value[ids] + all.positions.table.value[1:] + all.types.table.value[0]
    ),
)
layer(
    "InputEmbedding with dropout",
    lambda: layers.InputEmbedding(layers.Embedding(6, 4), layers.LearnedPositions(5, 4), scale=1.7, dropout=0.3),
    _IDS,
    rng=frozen,
)
layer(
    "InputEmbedding with types, a norm and a projection",
    lambda: layers.InputEmbedding(
        layers.Embedding(6, 4),
        layers.SinusoidalPositions(4),
        projection=layers.Linear(4, 3),
        types=layers.Embedding(2, 4),
        norm=layers.LayerNorm(4),
        dropout=0.3,
    ),
    _IDS,
    types=np.array([[0, 0, 1, 1], [1, 0, 0, 1]]),
    rng=frozen,
)


def _attention(**options: Any) -> Callable[[], layers.Module]:
    return lambda: layers.MultiHeadAttention(6, 2, **options)


layer("ScaledDotProduct", lambda: layers.ScaledDotProduct(0.7), (2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3))
layer("MultiHeadAttention with a causal mask", _attention(), (2, 3, 6), causal=True)
layer(
    "MultiHeadAttention with mask, dropout and other widths",
    _attention(d_k=4, d_v=5, bias=False, dropout=0.3),
    (2, 3, 6),
    mask=some_mask(2, 3, 3),
    rng=frozen,
)
layer("MultiHeadAttention across to a memory", _attention(), (2, 3, 6), (2, 5, 6), mask=some_mask(3, 5))
layer("FeedForward", lambda: layers.FeedForward(4, 7, "relu"), (2, 3, 4))
layer("FeedForward with gelu", lambda: layers.FeedForward(4, 7, "gelu"), (2, 3, 4))


def _residual(norm: Any, order: str) -> Callable[[], layers.Module]:
    return lambda: layers.Residual(layers.FeedForward(4, 7, "gelu_tanh"), norm(4), order, dropout=0.3)


layer("Residual in post-norm order", _residual(layers.LayerNorm, "post"), (2, 3, 4), rng=frozen)
layer("Residual in pre-norm order", _residual(layers.RMSNorm, "pre"), (2, 3, 4), rng=frozen)
layer(
    "Residual around cross-attention",
    lambda: layers.Residual(layers.MultiHeadAttention(4, 2), layers.LayerNorm(4), "pre"),
    (2, 3, 4),
    (2, 5, 4),
)

_SIZES: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6}
_DROPOUT: dict[str, Any] = {"dropout": 0.2, "attention_dropout": 0.3}
_RECOMPUTED: dict[str, Any] = {"norm_order": "pre", "recompute": True, **_DROPOUT}


def _of_sizes(kind: Callable[..., layers.Module], **options: Any) -> Callable[[], layers.Module]:
    return lambda: kind(**_SIZES, **options)


def _twice(r: Random) -> Setup:
    """One layer in two places, with dropout in each: its parameters collect the gradients of both."""
    one = ordinary(layers.EncoderLayer(**_SIZES, **_DROPOUT), r)

    def twice(x: Array, rng: Random) -> tuple[Array, Pullback]:
        middle, first_backward = one(x, rng=rng)
        y, second_backward = one(middle, rng=rng)

        def backward(dy: Array) -> Array:
            dmiddle = second_backward(dy)
            dx = first_backward(dmiddle)
            return dx

        return y, backward

    return call(r, twice, (2, 3, 4), module=one, rng=frozen)


layer("EncoderLayer", _of_sizes(layers.EncoderLayer), (2, 3, 4), mask=some_mask(3, 3))
layer(
    "EncoderLayer in pre-norm order, with dropout",
    _of_sizes(layers.EncoderLayer, norm_order="pre", **_DROPOUT),
    (2, 3, 4),
    rng=frozen,
)
case("layer", "EncoderLayer used twice, with dropout", _twice)
layer(
    "Recompute around a layer with dropout",
    lambda: layers.Recompute(layers.EncoderLayer(**_SIZES, **_DROPOUT)),
    (2, 3, 4),
    rng=frozen,
)


def _shared() -> layers.Module:
    return layers.Encoder.of([layers.EncoderLayer(**_SIZES)] * 2)


def _encoder(name: str, **options: Any) -> None:
    make = _of_sizes(layers.Encoder, n_layers=2, **options)
    layer(name, make, (2, 3, 4), mask=some_mask(2, 3, 3), rng=frozen)


def _decoder(name: str, kind: Callable[..., layers.Module], **options: Any) -> None:
    """Enter a case of a decoder layer or stack, between a target and a memory that are both padded."""

    def build(r: Random) -> Setup:
        decoder = ordinary(kind(**_SIZES, **options), r)
        masks = {"mask": np.arange(3) < np.array([[[3]], [[2]]]), "memory_mask": some_mask(2, 3, 5)(r)}
        return call(r, decoder, (2, 3, 4), (2, 5, 4), **masks, rng=frozen)

    case("layer", name, build)


_decoder("DecoderLayer", layers.DecoderLayer)
_decoder("DecoderLayer in pre-norm order, with dropout", layers.DecoderLayer, norm_order="pre", **_DROPOUT)
_encoder("Encoder of two layers")
_encoder("Encoder in pre-norm order, recomputed", **_RECOMPUTED)
layer("Encoder of one layer used twice", _shared, (2, 3, 4), mask=some_mask(2, 3, 3), rng=frozen)
_decoder("Decoder of two layers that read one memory", layers.Decoder, n_layers=2)
_decoder("Decoder in pre-norm order, recomputed", layers.Decoder, n_layers=2, **_RECOMPUTED)
