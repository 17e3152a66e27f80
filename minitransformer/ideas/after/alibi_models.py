"""Models whose only positions are linear biases. Press et al. 2022, "Train Short, Test Long" (ALiBi)."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.layers import Decoder, Encoder
from ...core.models.language_model import LanguageModelConfig, LanguageModelParts
from ...core.models.transformer import TransformerConfig, TransformerParts
from .score_bias import Biased, LinearBias


@dataclass(frozen=True)
class AlibiLanguageModelConfig(LanguageModelConfig):
    """GPT-2 with linear biases in place of learned positions."""

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The recipe: GPT-2's parts, without positions, and with biased scores."""
        parts = super().parts(rng)
        parts.embed.positions = None
        _bias(parts.stack, self.n_heads, self.attention_dropout)
        return parts


@dataclass(frozen=True)
class AlibiTransformerConfig(TransformerConfig):
    """The paper's model with linear biases in place of sines and cosines; the cross-attention has no positions."""

    def parts(self, rng: Rng) -> TransformerParts:
        """The recipe: the paper's parts, without positions, and with biased scores."""
        parts = super().parts(rng)
        parts.embed_source.positions = parts.embed_target.positions = None
        for stack in (parts.encoder, parts.decoder):
            _bias(stack, self.n_heads, self.attention_dropout)
        return parts


def _bias(stack: Encoder | Decoder, n_heads: int, dropout: float) -> None:
    for layer in stack.plain_layers:
        layer.self_attention.sublayer.mix = Biased(LinearBias(n_heads), dropout=dropout)
