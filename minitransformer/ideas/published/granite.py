"""Granite: IBM 2024, "Granite 3.0 Language Models", section 2. A Llama with four constant factors.

They scale token vectors, scores, the updates of residual connections, and logits, so that what is learned at one width
suits another (Yang et al. 2022, "Tensor Programs V").
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.layers import Module, RMSNorm, ScaledDotProduct
from ..after.factors import ScaledOutput, ScaledUpdate
from . import llama
from .family import WRITERS_ALONE, Family, Found, InGguf, classes


@dataclass(frozen=True)
class GraniteConfig(llama.LlamaConfig):
    """Sizes of a Granite: those of a Llama, and four factors. logit_divisor: the logits are divided by it."""

    embedding_factor: float = 1.0
    score_factor: float = 1.0
    update_factor: float = 1.0
    logit_divisor: float = 1.0

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""

        def scaled(part: Module) -> ScaledUpdate:
            return ScaledUpdate(part, RMSNorm(self.d_model, self.norm_eps), self.update_factor, self.dropout)

        return {
            "mix": lambda i: ScaledDotProduct(self.score_factor, self.attention_dropout),
            "residual": scaled,
            "scale": self.embedding_factor,
            "output": lambda table: ScaledOutput(table, self.logit_divisor),
        }


FACTORS = """
embedding_multiplier    positive  embedding_factor  1.0
attention_multiplier    positive  score_factor      1.0
residual_multiplier     positive  update_factor     1.0
logits_scaling          positive  logit_divisor     1.0
"""


SMALL = llama.SMALL | {
    "embedding_multiplier": 3.0, "attention_multiplier": 0.6, "residual_multiplier": 0.4, "logits_scaling": 1.7,
}  # fmt: skip
FACTORS_IN_GGUF = """
embedding_multiplier   positive  embedding_scale  1.0
attention_multiplier   positive  attention.scale  1.0
residual_multiplier    positive  residual_scale   1.0
logits_scaling         positive  logit_scale      1.0
"""
FAMILY = Family(
    "granite", "model", GraniteConfig, classes("Granite", WRITERS_ALONE), FACTORS + llama.BIAS, llama.NAMES,
    base=llama.BASE, more_ours=llama.BIASES["more_ours"], more_theirs=llama.BIASES["more_theirs"],
    adds="as Llama; constant factors on token vectors, scores, updates and logits",
    small=SMALL,
    in_gguf=InGguf(
        llama.PAIRED, llama.BIASES_IN_GGUF + FACTORS_IN_GGUF, ignored="rope.scaling.finetuned"  # how it was trained
    ),
)  # fmt: skip
