"""A case, or several, for every layer: also tied, used twice, checkpointed, and a memory that several layers read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import layers
from ...arrays.backend import Array, Pullback
from ...layers import Module
from .case import Random, Setup, call, case, frozen, ordinary, some_mask

_IDS = np.array([[1, 4, 1, 0], [2, 1, 5, 5]])

case("layer", "Linear", lambda r: call(ordinary(layers.Linear(4, 3), r), r.normal(size=(2, 5, 4))))
case(
    "layer", "Linear without bias", lambda r: call(ordinary(layers.Linear(4, 3, bias=False), r), r.normal(size=(2, 4)))
)
case("layer", "LayerNorm", lambda r: call(ordinary(layers.LayerNorm(5), r), r.normal(size=(2, 3, 5))))
case("layer", "RMSNorm", lambda r: call(ordinary(layers.RMSNorm(5), r), r.normal(size=(2, 3, 5))))
case("layer", "Embedding", lambda r: call(ordinary(layers.Embedding(6, 3), r), _IDS))


def _unembed(r: Random) -> Setup:
    table = ordinary(layers.Embedding(6, 3), r)
    return call(table.unembed, r.normal(size=(2, 4, 3)), module=table)


def _tied(r: Random) -> Setup:
    table = ordinary(layers.Embedding(6, 3), r)

    def tied(ids: Array) -> tuple[Array, Pullback]:
        vectors, embedding_backward = table(ids)
        logits, unembed_backward = table.unembed(vectors)

        def backward(dlogits: Array) -> None:
            dvectors = unembed_backward(dlogits)
            embedding_backward(dvectors)

        return logits, backward

    return call(tied, _IDS, module=table)


case("layer", "Embedding as output", _unembed)
case("layer", "Embedding tied to the output", _tied)
case("layer", "SinusoidalPositions", lambda r: call(layers.SinusoidalPositions(6), r.normal(size=(2, 3, 6)), start=2))
case(
    "layer",
    "LearnedPositions",
    lambda r: call(ordinary(layers.LearnedPositions(7, 3), r), r.normal(size=(2, 4, 3)), start=1),
)
case(
    "layer",
    "LearnedPositions with positions of each sequence",
    lambda r: call(
        ordinary(layers.LearnedPositions(5, 3, offset=2), r),
        r.normal(size=(2, 3, 3)),
        at=np.array([[0, 0, 1], [2, 0, 4]]),
    ),
)
case("layer", "RelativeBias", lambda r: call(ordinary(layers.RelativeBias(2, 8, 7), r), 9, 11))


def _input_embedding(r: Random) -> Setup:
    embed = layers.InputEmbedding(layers.Embedding(6, 4), layers.LearnedPositions(5, 4), scale=1.7, dropout=0.3)
    return call(ordinary(embed, r), _IDS, **frozen(r))


def _projected_embedding(r: Random) -> Setup:
    parts: dict[str, Any] = {"types": layers.Embedding(2, 4), "norm": layers.LayerNorm(4), "dropout": 0.3}
    embed = layers.InputEmbedding(
        layers.Embedding(6, 4), layers.SinusoidalPositions(4), projection=layers.Linear(4, 3), **parts
    )
    return call(ordinary(embed, r), _IDS, types=np.array([[0, 0, 1, 1], [1, 0, 0, 1]]), **frozen(r))


case("layer", "InputEmbedding with dropout", _input_embedding)
case("layer", "InputEmbedding with types, a norm and a projection", _projected_embedding)


def _attention(r: Random, **options: Any) -> Any:
    return ordinary(layers.MultiHeadAttention(6, 2, **options), r)


def _causal(r: Random) -> Setup:
    return call(_attention(r), r.normal(size=(2, 3, 6)), causal=True)


def _masked(r: Random) -> Setup:
    attention = _attention(r, d_k=4, d_v=5, bias=False, dropout=0.3)
    return call(attention, r.normal(size=(2, 3, 6)), mask=some_mask(r, 2, 3, 3), **frozen(r))


def _cross(r: Random) -> Setup:
    return call(_attention(r), r.normal(size=(2, 3, 6)), r.normal(size=(2, 5, 6)), mask=some_mask(r, 3, 5))


def _shared_heads(r: Random) -> Setup:
    options: dict[str, Any] = {"n_key_heads": 2, "rotary_base": 50.0, "window": 3, "output_bias": False}
    attention = ordinary(layers.MultiHeadAttention(8, 4, **options), r)
    return call(attention, r.normal(size=(2, 5, 8)), positions=np.array([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]))


def _relative(r: Random) -> Setup:
    attention = _attention(r, relative=layers.RelativeBias(2, 8, 7), scale=0.8)
    return call(attention, r.normal(size=(2, 5, 6)), mask=some_mask(r, 2, 5, 5))


case("layer", "MultiHeadAttention with a causal mask", _causal)
case("layer", "MultiHeadAttention with mask, dropout and other widths", _masked)
case("layer", "MultiHeadAttention across to a memory", _cross)
case("layer", "MultiHeadAttention with shared key heads and rotation", _shared_heads)
case("layer", "MultiHeadAttention with a relative bias", _relative)
case(
    "layer",
    "MultiHeadAttention with linear biases",
    lambda r: call(_attention(r, alibi=True), r.normal(size=(2, 5, 6)), mask=some_mask(r, 2, 5, 5)),
)


def _feed_forward(activation: str, gated: bool) -> Callable[[Random], Setup]:
    return lambda r: call(ordinary(layers.FeedForward(4, 7, activation, gated), r), r.normal(size=(2, 3, 4)))


case("layer", "FeedForward", _feed_forward("relu", False))
case("layer", "FeedForward with gelu", _feed_forward("gelu", False))
case("layer", "FeedForward gated by silu", _feed_forward("silu", True))


def _residual(order: str, norm: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        residual = layers.Residual(layers.FeedForward(4, 7, "gelu_tanh"), norm(4), order, dropout=0.3)
        return call(ordinary(residual, r), r.normal(size=(2, 3, 4)), **frozen(r))

    return build


def _residual_across(r: Random) -> Setup:
    residual = layers.Residual(layers.MultiHeadAttention(4, 2), layers.LayerNorm(4), "pre")
    return call(ordinary(residual, r), r.normal(size=(2, 3, 4)), r.normal(size=(2, 5, 4)))


case("layer", "Residual in post-norm order", _residual("post", layers.LayerNorm))
case("layer", "Residual in pre-norm order", _residual("pre", layers.RMSNorm))
case("layer", "Residual around cross-attention", _residual_across)

_SIZES: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6}
_DROPOUT: dict[str, Any] = {"dropout": 0.2, "attention_dropout": 0.3}
_GATED: dict[str, Any] = {"norm": "rms_norm", "gated": True, "activation": "silu", "bias": False}


def _encoder_layer(r: Random, **options: Any) -> Any:
    return ordinary(layers.EncoderLayer(**_SIZES, **options), r)


def _twice(r: Random) -> Setup:
    """One layer used twice, dropout in each place: its parameters collect the gradients of both uses."""
    layer = _encoder_layer(r, **_DROPOUT)

    def twice(x: Array, rng: Random) -> tuple[Array, Pullback]:
        middle, first_backward = layer(x, rng=rng)
        y, second_backward = layer(middle, rng=rng)

        def backward(dy: Array) -> Array:
            dmiddle = second_backward(dy)
            dx = first_backward(dmiddle)
            return dx

        return y, backward

    return call(twice, r.normal(size=(2, 3, 4)), module=layer, **frozen(r))


def _checkpoint(r: Random) -> Setup:
    return call(layers.Checkpoint(_encoder_layer(r, **_DROPOUT)), r.normal(size=(2, 3, 4)), **frozen(r))


case("layer", "EncoderLayer", lambda r: call(_encoder_layer(r), r.normal(size=(2, 3, 4)), mask=some_mask(r, 3, 3)))
case(
    "layer",
    "EncoderLayer in pre-norm order, with dropout",
    lambda r: call(_encoder_layer(r, norm_order="pre", **_DROPOUT), r.normal(size=(2, 3, 4)), **frozen(r)),
)
case(
    "layer",
    "EncoderLayer with RMSNorm and a gated unit",
    lambda r: call(_encoder_layer(r, **_GATED), r.normal(size=(3, 4)), causal=True),
)
case("layer", "EncoderLayer used twice, with dropout", _twice)
case("layer", "Checkpoint around a layer with dropout", _checkpoint)


def _encoder(**options: Any) -> Callable[[Random], Setup]:
    def build(r: Random) -> Setup:
        encoder = ordinary(layers.Encoder(2, **_SIZES, **options), r)
        return call(encoder, r.normal(size=(2, 3, 4)), mask=some_mask(r, 2, 3, 3), **frozen(r))

    return build


def _decoder(kind: type[Module], **options: Any) -> Callable[[Random], Setup]:
    """A decoder layer or stack between a target and a memory, both padded."""

    def build(r: Random) -> Setup:
        decoder = ordinary(kind(**_SIZES, **options), r)
        masks = {"mask": np.arange(3) < np.array([[[3]], [[2]]]), "memory_mask": some_mask(r, 2, 3, 5)}
        return call(decoder, r.normal(size=(2, 3, 4)), r.normal(size=(2, 5, 4)), **masks, **frozen(r))

    return build


_CHECKPOINTED: dict[str, Any] = {"norm_order": "pre", "checkpoint": True, **_DROPOUT}
case("layer", "DecoderLayer", _decoder(layers.DecoderLayer))
case(
    "layer", "DecoderLayer in pre-norm order, with dropout", _decoder(layers.DecoderLayer, norm_order="pre", **_DROPOUT)
)
case("layer", "Encoder of two layers", _encoder())
case("layer", "Encoder of one layer used twice", _encoder(shared=True))
case("layer", "Encoder in pre-norm order, checkpointed", _encoder(**_CHECKPOINTED))
case("layer", "Decoder of two layers that read one memory", _decoder(layers.Decoder, n_layers=2))
case("layer", "Decoder in pre-norm order, checkpointed", _decoder(layers.Decoder, n_layers=2, **_CHECKPOINTED))

_REAL = np.array([[True, True, True, False], [True, True, True, True], [True, False, False, False]])


def _recurrent(cell: str, **options: Any) -> Callable[[Random], Setup]:
    return lambda r: call(ordinary(layers.Recurrent(2, 3, cell, **options), r), r.normal(size=(3, 4, 2)), mask=_REAL)


def _from_a_state(r: Random) -> Setup:
    return call(ordinary(layers.Recurrent(2, 3), r), r.normal(size=(2, 4, 2)), r.normal(size=(2, 6)))


def _alignment(score: str) -> Callable[[Random], Setup]:
    return lambda r: call(
        ordinary(layers.Alignment(4, score), r),
        r.normal(size=(2, 3, 4)),
        r.normal(size=(2, 5, 4)),
        mask=some_mask(r, 2, 3, 5),
    )


def _radius(r: Random) -> Setup:
    return call(_attention(r, radius=2), r.normal(size=(2, 7, 6)), mask=(np.arange(7) < np.array([[5], [7]]))[:, None])


case("layer", "Recurrent of plain cells, padded", _recurrent("rnn"))
case("layer", "Recurrent of LSTM cells, padded", _recurrent("lstm"))
case("layer", "Recurrent of GRU cells, padded, in reverse", _recurrent("gru", reverse=True))
case("layer", "Recurrent from a given state", _from_a_state)
case(
    "layer",
    "Bidirectional",
    lambda r: call(ordinary(layers.Bidirectional(3, 4, "rnn"), r), r.normal(size=(2, 3, 3)), mask=_REAL[1:, :3]),
)
case(
    "layer",
    "Convolution with padding",
    lambda r: call(ordinary(layers.Convolution(2, 3, 3, 2), r), r.normal(size=(3, 4, 2)), mask=_REAL[:, None]),
)
case(
    "layer",
    "Convolution that looks back",
    lambda r: call(ordinary(layers.Convolution(3, 2, 4), r), r.normal(size=(2, 5, 3)), causal=True),
)
case("layer", "Alignment by addition", _alignment("additive"))
case("layer", "Alignment by multiplication", _alignment("multiplicative"))
case("layer", "MultiHeadAttention of a radius", _radius)


def _normed(r: Random) -> Setup:
    attention = ordinary(layers.MultiHeadAttention(8, 4, n_key_heads=2, qk_norm=True, rotary_base=50.0), r)
    return call(attention, r.normal(size=(2, 5, 8)), causal=True)


case("layer", "MultiHeadAttention with norms of queries and keys", _normed)
case(
    "layer",
    "MultiHeadAttention with a sink",
    lambda r: call(_attention(r, sink=True), r.normal(size=(2, 3, 6)), mask=some_mask(r, 2, 3, 3)),
)
case(
    "layer",
    "LinearAttention in blocks, padded",
    lambda r: call(ordinary(layers.LinearAttention(6, 2, block=2), r), r.normal(size=(2, 4, 6)), mask=_REAL[:2]),
)
case(
    "layer",
    "LatentAttention looking back",
    lambda r: call(ordinary(layers.LatentAttention(6, 2, 3, 5, 4), r), r.normal(size=(2, 4, 6)), causal=True),
)
case(
    "layer",
    "LatentAttention with a mask",
    lambda r: call(
        ordinary(layers.LatentAttention(6, 3, 2, 4, 2, 50.0), r), r.normal(size=(2, 3, 6)), mask=some_mask(r, 2, 3, 3)
    ),
)


def _experts(r: Random, k: int = 2, n_experts: int = 3) -> layers.MixtureOfExperts:
    return ordinary(layers.MixtureOfExperts(4, 2, n_experts, k), r)


def _balance(r: Random) -> Setup:
    layer = _experts(r)
    return call(layer.balance, r.normal(size=(2, 3, 4)), module=layer.router)


case("layer", "MixtureOfExperts", lambda r: call(_experts(r), r.normal(size=(2, 3, 4))))
case("layer", "MixtureOfExperts of which some get no token", lambda r: call(_experts(r, 1, 5), r.normal(size=(2, 4))))
case("layer", "MixtureOfExperts and its loss", _balance)
