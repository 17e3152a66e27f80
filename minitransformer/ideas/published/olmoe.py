"""OLMoE: Muennighoff et al. 2024, "OLMoE: Open Mixture-of-Experts Language Models", section 2. A Llama with experts.

The gates of the chosen experts are their shares of a softmax over all, and do not sum to one. Queries and keys have a
norm over all heads together, before the rotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import RMSNorm
from ...core.models.language_model import LanguageModelParts
from ..after.sandwich import Normed
from . import llama, qwen3
from .decoder import decoder
from .family import BODY, WORDS, Family, InGguf, Stored
from .fields import Fields, written
from .qwen3_moe import ROUTED, ROUTED_IN_GGUF, experts


@dataclass(frozen=True)
class OlmoeConfig(llama.LlamaConfig):
    """Sizes of an OLMoE. k: how many of n_experts each position uses; d_ff: the width of each.

    bias: whether attention's four maps have one. gates_sum_to_one: of the chosen experts.
    """

    norm_eps: float = 1e-5
    n_experts: int = 64
    k: int = 8
    gates_sum_to_one: bool = False

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of OLMoE."""
        return decoder(
            self,
            rng,
            feed_forward=lambda i: experts(self, self.d_ff, rng),
            around_maps=lambda part: Normed(part, RMSNorm(part.d_out, self.norm_eps)),
        )


FIELDS = """
num_experts            size   n_experts          64
num_experts_per_tok    size   k                  8
norm_topk_prob         flag   gates_sum_to_one   false
attention_bias         flag   bias               false
"""


def ours(fields: Fields, head: str, stored: Stored) -> OlmoeConfig:
    """The config of OLMoE's config.json. Queries, keys and values that are clipped are refused."""
    fields = fields.otherwise(rms_norm_eps=1e-5)
    fields.only(clip_qkv=None, sliding_window=None)
    return OlmoeConfig(**llama.sizes(fields, head), **fields.read(FIELDS))


def theirs(config: OlmoeConfig) -> dict[str, Any]:
    """OLMoE's config.json."""
    return {**llama.written_sizes(config), **written(config, FIELDS)}


NAMES = (
    llama.NAMES.replace(".query\n", ".query.sublayer\n").replace(".key\n", ".key.sublayer\n")
    + """
layers.*.self_attn.q_norm              =  stack.layers.*.self_attention.sublayer.query.norm
layers.*.self_attn.k_norm              =  stack.layers.*.self_attention.sublayer.key.norm
"""
    + ROUTED
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The experts. llama.cpp does not let their gates sum to one."""
    found = {"num_experts": "olmoe.expert_count", "num_experts_per_tok": "olmoe.expert_used_count"}
    return {name: fields.size(theirs) for name, theirs in found.items()} | {"norm_topk_prob": False}


FAMILY = Family(
    "olmoe", "model", {"OlmoeModel": BODY, "OlmoeForCausalLM": WORDS}, ours, theirs, NAMES,
    recipe=OlmoeConfig,
    adds="as Llama; experts whose gates do not sum to one, norms of the queries and keys of all heads together",
    small={name: value for name, value in llama.SMALL.items() if name != "head_dim"}
    | {"num_experts": 3, "num_experts_per_tok": 2},
    in_gguf=InGguf(qwen3.GGUF + ROUTED_IN_GGUF, in_gguf),
)  # fmt: skip
