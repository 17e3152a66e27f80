"""Granite: IBM 2024, "Granite 3.0 Language Models", section 2. A Llama with four constant factors.

They scale token vectors, scores, the updates of residual connections, and logits, so that what is learned at one width
suits another (Yang et al. 2022, "Tensor Programs V").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import RMSNorm, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.factors import ScaledOutput, ScaledUpdate
from . import llama
from .decoder import decoder
from .family import BODY, WORDS, Family, InGguf, Stored
from .fields import Fields, written


@dataclass(frozen=True)
class GraniteConfig(llama.LlamaConfig):
    """Sizes of a Granite: those of a Llama, and four factors. logit_divisor: the logits are divided by it."""

    embedding_factor: float = 1.0
    score_factor: float = 1.0
    update_factor: float = 1.0
    logit_divisor: float = 1.0

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Granite."""
        return decoder(
            self,
            rng,
            mix=lambda i: ScaledDotProduct(self.score_factor, self.attention_dropout),
            **self.factors(),
        )

    def norm(self) -> RMSNorm:
        """The norm before each sub-layer."""
        return RMSNorm(self.d_model, self.norm_eps)

    def factors(self) -> dict[str, Any]:
        """What three of the factors change in a decoder."""
        return {
            "residual": lambda part: ScaledUpdate(part, self.norm(), self.update_factor, self.dropout),
            "scale": self.embedding_factor,
            "output": lambda table: ScaledOutput(table, self.logit_divisor),
        }


FIELDS = """
embedding_multiplier    positive  embedding_factor  1.0
attention_multiplier    positive  score_factor      1.0
residual_multiplier     positive  update_factor     1.0
logits_scaling          positive  logit_divisor     1.0
"""


def ours(fields: Fields, head: str, stored: Stored) -> GraniteConfig:
    """The config of Granite's config.json."""
    bias = fields.flag("attention_bias", False)
    if bias != fields.flag("mlp_bias", False):
        raise ValueError("attention_bias and mlp_bias must be equal: here either all maps have biases or none do")
    return GraniteConfig(**llama.sizes(fields, head), **fields.read(FIELDS), bias=bias)


def theirs(config: GraniteConfig) -> dict[str, Any]:
    """Granite's config.json."""
    return {**llama.llama_theirs(config), **written(config, FIELDS)}


NAMES = llama.NAMES + "/lm_head  =  output.tokens\n"
SMALL = llama.SMALL | {
    "embedding_multiplier": 3.0, "attention_multiplier": 0.6, "residual_multiplier": 0.4, "logits_scaling": 1.7,
}  # fmt: skip
_IN_GGUF = {
    "embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale",
}  # fmt: skip


def factors_in_gguf(fields: Fields, kind: str) -> dict[str, Any]:
    """The factors. kind: of the file."""
    return {ours: fields.positive(f"{kind}.{theirs}", 1.0) for ours, theirs in _IN_GGUF.items()}


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The factors, and which maps have biases."""
    fields.get("granite.rope.scaling.finetuned")  # says how the model was trained
    return factors_in_gguf(fields, "granite") | llama.biases_in_gguf(fields, stored, config)


FAMILY = Family(
    "granite", "model", {"GraniteModel": BODY, "GraniteForCausalLM": WORDS}, ours, theirs, NAMES,
    recipe=GraniteConfig,
    adds="as Llama; constant factors on token vectors, scores, updates and logits",
    small=SMALL,
    in_gguf=InGguf(llama.PAIRED_GGUF, in_gguf),
)  # fmt: skip
