"""Gemma: Gemma Team 2024, "Gemma: Open Models Based on Gemini Research and Technology", section 2. A Llama with GeGLU.

Token vectors are multiplied by √D as in the paper of 2017, norms multiply by 1 + γ, and the output is the table of
tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.models.language_model import LanguageModelParts
from ..after.sandwich import OffsetRMSNorm
from . import llama
from .decoder import decoder
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields


@dataclass(frozen=True)
class GemmaConfig(llama.LlamaConfig):
    """Sizes of a Gemma: those of a Llama. bias: whether attention's four maps have one."""

    activation: str = "gelu_tanh"
    tie_output: bool = True

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Gemma."""
        return decoder(
            self,
            rng,
            norm=lambda: OffsetRMSNorm(self.d_model, self.norm_eps),
            ff_bias=False,
            scale=self.d_model**0.5,
        )


def ours(fields: Fields, head: str, stored: Stored) -> GemmaConfig:
    """The config of Gemma's config.json. "gelu" there has always meant the one with tanh."""
    fields = fields.otherwise(head_dim=256, tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh")
    fields.only(use_bidirectional_attention=False)
    if fields.get("hidden_act") == "gelu":
        fields = Fields({**fields.document, "hidden_act": "gelu_pytorch_tanh"}, fields.asked)
    return GemmaConfig(**llama.sizes(fields, head), bias=fields.flag("attention_bias", False))


def theirs(config: GemmaConfig) -> dict[str, Any]:
    """Gemma's config.json."""
    return {**llama.written_sizes(config), "attention_bias": config.bias}


GGUF = re.sub("norm +=", "norm  plus1", llama.GGUF)
FAMILY = Family(
    "gemma", "model", classes("Gemma", WRITERS), ours, theirs, llama.NAMES,
    recipe=GemmaConfig,
    adds="as Llama; token vectors times √D, norms that multiply by 1 + γ, GELU in the gated feed-forward networks",
    small=llama.SMALL | {"hidden_size": 16, "num_attention_heads": 4},  # its root is exact; others round to float32
    ignored="hidden_activation",
    in_gguf=InGguf(GGUF),
)  # fmt: skip
