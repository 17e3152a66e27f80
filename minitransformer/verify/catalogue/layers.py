"""At least one case for every layer: also layers that are tied, used twice or checkpointed, or that share a memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import layers
from ...arrays.backend import Array, Pullback
from .case import Random, Setup, call, case, frozen, layer, ordinary, some_mask

_IDS = np.array([[1, 4, 1, 0], [2, 1, 5, 5]])

layer("Linear", lambda: layers.Linear(4, 3), (2, 5, 4))
layer("Linear without bias", lambda: layers.Linear(4, 3, bias=False), (2, 4))
layer("LayerNorm", lambda: layers.LayerNorm(5), (2, 3, 5))
layer("RMSNorm", lambda: layers.RMSNorm(5), (2, 3, 5))
layer("Embedding", lambda: layers.Embedding(6, 3), _IDS)


def _unembed(r: Random) -> Setup:
    table = ordinary(layers.Embedding(6, 3), r)
    return call(r, table.unembed, (2, 4, 3), module=table)


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
layer("SinusoidalPositions", lambda: layers.SinusoidalPositions(6), (2, 3, 6), start=2)
layer("LearnedPositions", lambda: layers.LearnedPositions(7, 3), (2, 4, 3), start=1)
layer(
    "LearnedPositions with positions of each sequence",
    lambda: layers.LearnedPositions(5, 3, offset=2),
    (2, 3, 3),
    at=np.array([[0, 0, 1], [2, 0, 4]]),
)
layer("RelativeBias", lambda: layers.RelativeBias(2, 8, 7), 9, 11)
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


layer("MultiHeadAttention with a causal mask", _attention(), (2, 3, 6), causal=True)
layer(
    "MultiHeadAttention with mask, dropout and other widths",
    _attention(d_k=4, d_v=5, bias=False, dropout=0.3),
    (2, 3, 6),
    mask=some_mask(2, 3, 3),
    rng=frozen,
)
layer("MultiHeadAttention across to a memory", _attention(), (2, 3, 6), (2, 5, 6), mask=some_mask(3, 5))
layer(
    "MultiHeadAttention with shared key heads and rotation",
    lambda: layers.MultiHeadAttention(8, 4, n_key_heads=2, rotary_base=50.0, window=3, output_bias=False),
    (2, 5, 8),
    positions=np.array([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]),
)
layer(
    "MultiHeadAttention with a relative bias",
    lambda: layers.MultiHeadAttention(6, 2, relative=layers.RelativeBias(2, 8, 7), scale=0.8),
    (2, 5, 6),
    mask=some_mask(2, 5, 5),
)
layer("MultiHeadAttention with linear biases", _attention(alibi=True), (2, 5, 6), mask=some_mask(2, 5, 5))
layer("FeedForward", lambda: layers.FeedForward(4, 7, "relu"), (2, 3, 4))
layer("FeedForward with gelu", lambda: layers.FeedForward(4, 7, "gelu"), (2, 3, 4))
layer("FeedForward gated by silu", lambda: layers.FeedForward(4, 7, "silu", gated=True), (2, 3, 4))


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
_GATED: dict[str, Any] = {"norm": "rms_norm", "gated": True, "activation": "silu", "bias": False}
_CHECKPOINTED: dict[str, Any] = {"norm_order": "pre", "checkpoint": True, **_DROPOUT}


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
layer("EncoderLayer with RMSNorm and a gated unit", _of_sizes(layers.EncoderLayer, **_GATED), (3, 4), causal=True)
case("layer", "EncoderLayer used twice, with dropout", _twice)
layer(
    "Checkpoint around a layer with dropout",
    lambda: layers.Checkpoint(layers.EncoderLayer(**_SIZES, **_DROPOUT)),
    (2, 3, 4),
    rng=frozen,
)


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
_encoder("Encoder of one layer used twice", shared=True)
_encoder("Encoder in pre-norm order, checkpointed", **_CHECKPOINTED)
_decoder("Decoder of two layers that read one memory", layers.Decoder, n_layers=2)
_decoder("Decoder in pre-norm order, checkpointed", layers.Decoder, n_layers=2, **_CHECKPOINTED)

_REAL = np.array([[True, True, True, False], [True, True, True, True], [True, False, False, False]])
layer("Recurrent of plain cells, padded", lambda: layers.Recurrent(2, 3, "rnn"), (3, 4, 2), mask=_REAL)
layer("Recurrent of LSTM cells, padded", lambda: layers.Recurrent(2, 3, "lstm"), (3, 4, 2), mask=_REAL)
layer(
    "Recurrent of GRU cells, padded, in reverse",
    lambda: layers.Recurrent(2, 3, "gru", reverse=True),
    (3, 4, 2),
    mask=_REAL,
)
layer("Recurrent from a given state", lambda: layers.Recurrent(2, 3), (2, 4, 2), (2, 6))
layer("Bidirectional", lambda: layers.Bidirectional(3, 4, "rnn"), (2, 3, 3), mask=_REAL[1:, :3])
layer("Convolution with padding", lambda: layers.Convolution(2, 3, 3, 2), (3, 4, 2), mask=_REAL[:, None])
layer("Convolution that looks back", lambda: layers.Convolution(3, 2, 4), (2, 5, 3), causal=True)
for _score, _words in {"additive": "addition", "multiplicative": "multiplication"}.items():
    layer(
        f"Alignment by {_words}",
        partial(layers.Alignment, 4, _score),
        (2, 3, 4),
        (2, 5, 4),
        mask=some_mask(2, 3, 5),
    )
layer(
    "MultiHeadAttention of a radius",
    _attention(radius=2),
    (2, 7, 6),
    mask=(np.arange(7) < np.array([[5], [7]]))[:, None],
)
layer(
    "MultiHeadAttention with norms of queries and keys",
    lambda: layers.MultiHeadAttention(8, 4, n_key_heads=2, qk_norm=True, rotary_base=50.0),
    (2, 5, 8),
    causal=True,
)
layer("MultiHeadAttention with a sink", _attention(sink=True), (2, 3, 6), mask=some_mask(2, 3, 3))
layer("LinearAttention in blocks, padded", lambda: layers.LinearAttention(6, 2, block=2), (2, 4, 6), mask=_REAL[:2])
layer("LatentAttention looking back", lambda: layers.LatentAttention(6, 2, 3, 5, 4), (2, 4, 6), causal=True)
layer(
    "LatentAttention with a mask",
    lambda: layers.LatentAttention(6, 3, 2, 4, 2, 50.0),
    (2, 3, 6),
    mask=some_mask(2, 3, 3),
)


def _balance(r: Random) -> Setup:
    experts = ordinary(layers.MixtureOfExperts(4, 2, 3), r)
    return call(r, experts.balance, (2, 3, 4), module=experts.router)


layer("MixtureOfExperts", lambda: layers.MixtureOfExperts(4, 2, 3), (2, 3, 4))
layer("MixtureOfExperts of which some get no token", lambda: layers.MixtureOfExperts(4, 2, 5, 1), (2, 4))
case("layer", "MixtureOfExperts and its loss", _balance)
