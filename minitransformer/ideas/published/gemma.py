"""Gemma: Gemma Team 2024, "Gemma: Open Models Based on Gemini Research and Technology", section 2. A Llama with GeGLU.

Token vectors are multiplied by √D as in the paper of 2017, norms multiply by 1 + γ, and the output is the table of
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ..after.sandwich import OffsetRMSNorm
from . import llama
from .family import WRITERS, Family, Found, InGguf, classes
from .fields import Fields


@dataclass(frozen=True)
class GemmaConfig(llama.LlamaConfig):
    """Sizes of a Gemma: those of a Llama. bias: whether attention's four maps have one."""

    activation: str = "gelu_tanh"
    tie_output: bool = True

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return {
            "norm": lambda: OffsetRMSNorm(self.d_model, self.norm_eps),
            "ff_bias": False,
            "scale": self.d_model**0.5,
        }


def _with_tanh(fields: Fields, *_: Any) -> Found:
    """ "gelu" in a Gemma's config.json has always meant the one with tanh."""
    return {"activation": "gelu_tanh"} if fields.get("hidden_act") == "gelu" else {}


GGUF = """
output_norm            plus1  norm
blk.*.(attn,ffn)_norm  plus1  layers.*.(input,post_attention)_layernorm
blk.*.attn_(q,k)_norm  plus1  layers.*.self_attn.(q,k)_norm
"""
FAMILY = Family(
    "gemma", "model", GemmaConfig, classes("Gemma", WRITERS), llama.BIAS, llama.NAMES, base=llama.BASE,
    usual={"head_dim": 256, "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"},
    only={"use_bidirectional_attention": False}, more_ours=_with_tanh,
    adds="as Llama; token vectors times √D, norms that multiply by 1 + γ, GELU in the gated feed-forward networks",
    small=llama.SMALL | {"hidden_size": 16, "num_attention_heads": 4},  # its root is exact; others round to float32
    ignored="hidden_activation",
    in_gguf=InGguf(GGUF),
)  # fmt: skip
