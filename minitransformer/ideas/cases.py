"""The cases of later ideas for `minitransformer check`: layers and models in which each part fills its socket."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..check.verify.catalogue.caches import X, read_in_pieces
from ..check.verify.catalogue.case import Random, Setup, call, case, frozen, layer, ordinary, some_mask
from ..check.verify.catalogue.models import language_model, transformer, translator
from ..check.verify.catalogue.ranks_of_arrays import layer_of_every_rank
from ..core import layers
from . import (
    Alignment,
    Biased,
    Bidirectional,
    Convolution,
    GatedFeedForward,
    Grouped,
    HeadNorm,
    LatentAttention,
    LinearAttention,
    LinearBias,
    Local,
    MixtureOfExperts,
    Normed,
    NormedUpdate,
    OffsetRMSNorm,
    Recurrent,
    RelativeBias,
    RollingCache,
    RotaryPositions,
    Sink,
    StateCache,
    Window,
    grouped,
    op_cases,  # noqa: F401 - it enters the ops
    qk_norm,
    rotary_turn,
)
from .after.alibi_models import AlibiLanguageModelConfig, AlibiTransformerConfig
from .after.clamped_experts import ClampedExperts
from .after.latent_attention import Compressed
from .before.convolutional import ConvolutionalConfig
from .before.recurrent_translator import RecurrentTranslator, RecurrentTranslatorConfig


def _mixed(mix: Callable[[], Any], **options: Any) -> Callable[[], layers.Module]:
    return lambda: layers.MultiHeadAttention(6, 2, mix=mix(), **options)


layer("ClampedExperts", lambda: ClampedExperts(4, 3, 5, 2, 0.8, 0.9), (2, 3, 4))
layer("RelativeBias", lambda: RelativeBias(2, 8, 7), 9, 11)
_MIXING: dict[str, Callable[[], layers.Module]] = {
    "Biased": lambda: Biased(RelativeBias(2, 8, 7)),
    "Local": lambda: Local(1),
    "Sink": lambda: Sink(2, scale=0.7),
    "Window": lambda: Window(2, always=1),
}
for _name, _part in _MIXING.items():
    layer(_name, _part, (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3))
layer("Grouped", lambda: Grouped(layers.ScaledDotProduct()), (2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3))
layer("RotaryPositions", lambda: RotaryPositions(50.0), (2, 3, 5, 4), start=2)
layer("HeadNorm", lambda: HeadNorm(4, then=RotaryPositions(50.0)), (2, 3, 5, 4), start=2)
layer(
    "MultiHeadAttention with shared key heads and rotation",
    lambda: grouped(8, 4, 2, output_bias=False, mix=Window(3), turn=rotary_turn(50.0)),
    (2, 5, 8),
    positions=np.array([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]),
)
_SOME = some_mask(2, 5, 5)
_RELATIVE = _mixed(lambda: Biased(RelativeBias(2, 8, 7), scale=0.8))
layer("MultiHeadAttention with a relative bias", _RELATIVE, (2, 5, 6), mask=_SOME)
layer("MultiHeadAttention with linear biases", _mixed(lambda: Biased(LinearBias(2))), (2, 5, 6), mask=_SOME)
layer(
    "MultiHeadAttention of a radius",
    _mixed(lambda: Local(2)),
    (2, 7, 6),
    mask=(np.arange(7) < np.array([[5], [7]]))[:, None],
)
layer(
    "MultiHeadAttention with norms of queries and keys",
    lambda: grouped(8, 4, 2, turn=qk_norm(2, rotary_base=50.0)),
    (2, 5, 8),
    causal=True,
)
layer(
    "MultiHeadAttention with one key head and wide heads",
    lambda: grouped(8, 4, 1, 6, bias=False, output_bias=True, mix=layers.ScaledDotProduct(1.0)),
    (2, 3, 8),
)
layer("MultiHeadAttention with a sink", _mixed(lambda: Sink(2)), (2, 3, 6), mask=some_mask(2, 3, 3))
layer("MultiHeadAttention with a sink in a window", _mixed(lambda: Window(2, Sink(2), always=1)), (2, 4, 6))
layer("OffsetRMSNorm", lambda: OffsetRMSNorm(4), (2, 3, 4))
layer("Normed", lambda: Normed(GatedFeedForward(4, 7), OffsetRMSNorm(4)), (2, 3, 4))
layer("Normed columns of a map", lambda: Normed(layers.Linear(5, 6), layers.RMSNorm(6)).part(slice(2, 4)), (2, 3, 5))
layer("NormedUpdate", lambda: NormedUpdate(GatedFeedForward(4, 7), layers.RMSNorm(4)), (2, 3, 4))
layer(
    "NormedUpdate with dropout",
    lambda: NormedUpdate(layers.MultiHeadAttention(4, 2), layers.RMSNorm(4), 0.3),
    (2, 3, 4),
    rng=frozen,
)
layer("GatedFeedForward", lambda: GatedFeedForward(4, 7), (2, 3, 4))


def _llama_layer() -> layers.Module:
    parts = (layers.MultiHeadAttention(4, 2, bias=False), GatedFeedForward(4, 6, bias=False))
    return layers.EncoderLayer.of(*(layers.Residual(part, layers.RMSNorm(4), "post") for part in parts))


layer("EncoderLayer with RMSNorm and a gated unit", _llama_layer, (3, 4), causal=True)


_REAL = np.array([[True, True, True, False], [True, True, True, True], [True, False, False, False]])
layer("Recurrent of plain cells, padded", lambda: Recurrent(2, 3, "rnn"), (3, 4, 2), mask=_REAL)
layer("Recurrent of LSTM cells, padded", lambda: Recurrent(2, 3, "lstm"), (3, 4, 2), mask=_REAL)
layer("Recurrent of GRU cells, padded, in reverse", lambda: Recurrent(2, 3, "gru", reverse=True), (3, 4, 2), mask=_REAL)
layer("Recurrent from a given state", lambda: Recurrent(2, 3), (2, 4, 2), (2, 6))
layer("Bidirectional", lambda: Bidirectional(3, 4, "rnn"), (2, 3, 3), mask=_REAL[1:, :3])
layer("Convolution with padding", lambda: Convolution(2, 3, 3, 2), (3, 4, 2), mask=_REAL[:, None])
layer("Convolution that looks back", lambda: Convolution(3, 2, 4), (2, 5, 3), causal=True)
for _score, _words in {"additive": "addition", "multiplicative": "multiplication"}.items():
    layer(f"Alignment by {_words}", partial(Alignment, 4, _score), (2, 3, 4), (2, 5, 4), mask=some_mask(2, 3, 5))
layer("LinearAttention in blocks, padded", lambda: LinearAttention(6, 2, block=2), (2, 4, 6), mask=_REAL[:2])
layer("LatentAttention looking back", lambda: LatentAttention(6, 2, 3, 5, 4), (2, 4, 6), causal=True)
layer(
    "LatentAttention with queries from a narrow vector",
    lambda: LatentAttention(6, 2, 3, 5, 4, d_value=2, d_query=4, bias=True),
    (2, 4, 6),
    causal=True,
    positions=np.array([[0, 0, 1, 2], [0, 1, 2, 3]]),
)
layer("Compressed", lambda: Compressed(6, 3, 5, True), (2, 4, 6))
layer("LatentAttention with a mask", lambda: LatentAttention(6, 3, 2, 4, 2, 50.0), (2, 3, 6), mask=some_mask(2, 3, 3))


def _balance(r: Random) -> Setup:
    experts = ordinary(MixtureOfExperts(4, 2, 3), r)
    return call(r, experts.balance, (2, 3, 4), module=experts.router)


layer("MixtureOfExperts", lambda: MixtureOfExperts(4, 2, 3), (2, 3, 4))
layer("MixtureOfExperts of which some get no token", lambda: MixtureOfExperts(4, 2, 5, 1), (2, 4))
case("layer", "MixtureOfExperts and its loss", _balance)


case("model", "LanguageModel with linear biases", language_model(AlibiLanguageModelConfig))
case("model", "Transformer with linear biases", transformer(AlibiTransformerConfig, n_decoder_layers=1))
case("model", "Transformer of convolutions", transformer(ConvolutionalConfig, kernel=3, norm_order="pre"), True)


def _recurrent_translator(**options: Any) -> Callable[[Random], Setup]:
    sizes = {"d_model": 4, "n_encoder_layers": 1, "dropout": 0.2} | options
    return translator(lambda: RecurrentTranslatorConfig(7, 7, **sizes).build())


def _small_recurrent_translator(r: Random) -> Setup:
    """Two tokens and plain cells: so few intermediates that each can be checked."""
    config = RecurrentTranslatorConfig(5, 5, d_model=2, n_encoder_layers=1, cell="rnn", dropout=0.2)
    model = ordinary(RecurrentTranslator(config), r)
    return call(r, model.loss, np.array([[1, 3]]), np.array([[1, 4]]), np.array([[4, 2]]), module=model, rng=frozen)


case("model", "RecurrentTranslator", _small_recurrent_translator)
case("model", "RecurrentTranslator of LSTM cells", _recurrent_translator(), True)
case("model", "RecurrentTranslator without attention", _recurrent_translator(attention="none"), True)
case(
    "model",
    "RecurrentTranslator with additive attention",
    _recurrent_translator(attention="additive", cell="gru"),
    True,
)

_MIXED = (..., 2, 5, 4), (..., 2, 5, 4), (..., 2, 5, 3)
layer_of_every_rank("Recurrent", lambda: Recurrent(4, 3), (..., 3, 4))
layer_of_every_rank("Bidirectional", lambda: Bidirectional(4, 2, "gru"), (..., 3, 4))
layer_of_every_rank("MixtureOfExperts", lambda: MixtureOfExperts(4, 2, 3), (..., 4))
layer_of_every_rank("ClampedExperts", lambda: ClampedExperts(4, 3, 5, 2, 0.8, 0.9), (..., 4))
layer_of_every_rank("GatedFeedForward", lambda: GatedFeedForward(4, 6), (..., 4))
layer_of_every_rank("Convolution", lambda: Convolution(4, 3), (..., 3, 4))
layer_of_every_rank("LinearAttention", lambda: LinearAttention(4, 2), (..., 3, 4))
layer_of_every_rank("LatentAttention", lambda: LatentAttention(4, 2, 3, 5, 2), (..., 3, 4))
layer_of_every_rank("Compressed", lambda: Compressed(4, 3, 5), (..., 4))
layer_of_every_rank("Alignment", lambda: Alignment(4), (..., 3, 4), (..., 2, 4))
layer_of_every_rank(
    "Grouped", lambda: Grouped(layers.ScaledDotProduct()), (..., 4, 3, 2), (..., 2, 5, 2), (..., 2, 5, 3)
)
layer_of_every_rank("RotaryPositions", lambda: RotaryPositions(50.0), (..., 3, 4))
layer_of_every_rank("HeadNorm", lambda: HeadNorm(4), (..., 4))
layer_of_every_rank("Biased", _MIXING["Biased"], *_MIXED)
layer_of_every_rank("Sink", _MIXING["Sink"], *_MIXED)
layer_of_every_rank("OffsetRMSNorm", lambda: OffsetRMSNorm(4), (..., 4))
layer_of_every_rank("NormedUpdate", lambda: NormedUpdate(GatedFeedForward(4, 6), layers.RMSNorm(4)), (..., 4))
layer_of_every_rank("Normed", lambda: Normed(GatedFeedForward(4, 6), OffsetRMSNorm(4)), (..., 4))
layer_of_every_rank("Local", _MIXING["Local"], (..., 5, 4), (..., 5, 4), (..., 5, 3))
layer_of_every_rank("Window", _MIXING["Window"], (..., 5, 4), (..., 5, 4), (..., 5, 3))


read_in_pieces("LatentAttention with a cache", lambda: LatentAttention(8, 2, 3, 5, 4), X, causal=True)
read_in_pieces("LinearAttention with a cache", lambda: LinearAttention(8, 2, block=2), X, cache=StateCache)
read_in_pieces("Recurrent with a cache", lambda: Recurrent(8, 3, "lstm"), X, cache=StateCache)
read_in_pieces("Convolution with a cache", lambda: Convolution(8, 3, 3), X, cache=StateCache, causal=True)
_TURNED: dict[str, Callable[[], layers.Module]] = {
    "a cache and rotation": lambda: grouped(8, 4, 2, turn=qk_norm(2, rotary_base=50.0)),
    "a cache and a window": lambda: grouped(8, 4, 2, mix=Window(3)),
    "a cache and linear biases": lambda: grouped(8, 4, 2, mix=Biased(LinearBias(4))),
    "a cache and relative positions": lambda: layers.MultiHeadAttention(8, 4, mix=Biased(RelativeBias(4, 4, 4, False))),
}
for _name, _part in _TURNED.items():
    read_in_pieces(f"MultiHeadAttention with {_name}", _part, X, causal=True)
_SEEN = np.tri(5, dtype=bool) & ~np.tri(5, k=-3, dtype=bool)
_ROLLING: dict[str, Any] = {"cache": lambda: RollingCache(3), "whole": {"mask": _SEEN}}
read_in_pieces("MultiHeadAttention with a rolling cache", lambda: grouped(8, 4, 2), X, **_ROLLING)
