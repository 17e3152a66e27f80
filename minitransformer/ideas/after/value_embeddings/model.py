"""A language model with value embeddings: GPT-2's parts, and its layers get the ids beside the vectors."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.models.language_model import LanguageModel, LanguageModelConfig, LanguageModelParts
from .layer import ValueAttention, ValueEmbedding


@dataclass(frozen=True)
class ValueLanguageModelConfig(LanguageModelConfig):
    """GPT-2 with value embeddings in every second layer, the last one included, as in nanochat.

    n_channels: see ValueEmbedding.
    """

    n_channels: int = 12

    def build(self, rng: Rng | None = None) -> ValueLanguageModel:
        """The model of these sizes, untrained."""
        return ValueLanguageModel(self, rng)

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The recipe: GPT-2's parts with other values."""
        parts = super().parts(rng)
        sizes = self.n_heads, self.vocabulary, self.n_channels, rng
        for i, layer in enumerate(reversed(parts.stack.plain_layers)):
            attention = layer.self_attention.sublayer
            value = None if i % 2 else ValueEmbedding(attention.value, *sizes)
            layer.self_attention.sublayer = ValueAttention.like(attention, value)
        return parts


class ValueLanguageModel(LanguageModel):
    """A LanguageModel whose stack gets the ids as well. config: one whose layers take them."""

    def hidden(self, ids: Array, *how: Any, **options: Any) -> tuple[Array, Pullback]:
        """The vectors that the logits are made of; see LanguageModel."""
        stack: Any = functools.partial(self.stack, ids=ids)
        stack.layers = self.stack.layers
        reading = copy.copy(self)  # nothing of a call is stored on the module
        reading.stack = stack
        return super(ValueLanguageModel, reading).hidden(ids, *how, **options)
