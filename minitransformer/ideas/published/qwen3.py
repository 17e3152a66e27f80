"""Qwen3: Yang et al. 2025, "Qwen3 Technical Report", section 2. A Llama whose queries and keys have norms.

RMSNorm of each head's queries and keys, before the rotation, in place of Qwen2's biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.models.language_model import LanguageModelParts
from ..after.qk_norm import qk_norm
from . import llama
from .decoder import decoder
from .family import READERS, WRITERS, Family, InGguf, Stored, classes
from .fields import Fields
from .heads import ANSWERS


@dataclass(frozen=True)
class Qwen3Config(llama.LlamaConfig):
    """Sizes of a Qwen3: those of a Llama. bias: whether attention's four maps have one."""

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i, after a norm."""
        return qk_norm(self.d_head or 1, self.norm_eps, then=super().turn(i))

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Qwen3."""
        return decoder(self, rng, ff_bias=False)


def ours(fields: Fields, head: str, stored: Stored) -> Qwen3Config:
    """The config of Qwen3's config.json."""
    sizes = llama.sizes(fields.otherwise(head_dim=128), head)
    return Qwen3Config(**sizes, bias=fields.flag("attention_bias", False), window=llama.window_of_qwen(fields))


def theirs(config: Qwen3Config) -> dict[str, Any]:
    """Qwen3's config.json."""
    return {**llama.qwen2_theirs(config), "attention_bias": config.bias}


NAMES = (
    llama.NAMES
    + """
layers.*.self_attn.q_norm              =  stack.layers.*.self_attention.sublayer.turn_query.norm
layers.*.self_attn.k_norm              =  stack.layers.*.self_attention.sublayer.turn_key.norm
"""
)

GGUF = (
    llama.GGUF
    + """
blk.*.attn_q_norm  =  layers.*.self_attn.q_norm
blk.*.attn_k_norm  =  layers.*.self_attn.k_norm
"""
)


FAMILY = Family(
    "qwen3", "model", classes("Qwen3", WRITERS | READERS), ours, theirs, NAMES,
    recipe=Qwen3Config,
    adds="as Llama; norms of queries and keys",
    small=llama.SMALL | llama.WINDOW_OF_QWEN,
    prefixes={ANSWERS: "transformer"},
    in_gguf=InGguf(GGUF, lambda fields, stored, config: {"attention_bias": "blk.0.attn_output.bias" in stored}),
)  # fmt: skip
