"""OLMoE: Muennighoff et al. 2024, "OLMoE: Open Mixture-of-Experts Language Models", section 2. A Llama with experts.

The gates of the chosen experts are their shares of a softmax over all, and do not sum to one. Queries and keys have a
norm over all heads together, before the rotation.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.layers import RMSNorm
from ..after.sandwich import Normed
from . import llama
from .family import WRITERS_ALONE, Family, Found, InGguf, classes
from .qwen3_moe import ROUTED, experts


@dataclass(frozen=True)
class OlmoeConfig(llama.LlamaConfig):
    """Sizes of an OLMoE. k: how many of n_experts each position uses; d_ff: the width of each.

    bias: whether attention's four maps have one. gates_sum_to_one: of the chosen experts.
    """

    norm_eps: float = 1e-5
    n_experts: int = 64
    k: int = 8
    gates_sum_to_one: bool = False

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return {
            "feed_forward": lambda i: experts(self, self.d_ff, rng),
            "around_maps": lambda part: Normed(part, RMSNorm(part.d_out, self.norm_eps)),
        }


FIELDS = """
num_experts            size   n_experts          64
num_experts_per_tok    size   k                  8
norm_topk_prob         flag   gates_sum_to_one   false
attention_bias         flag   bias               false
"""


NAMES = f"""{llama.NAMES}{ROUTED}
layers.*.self_attn.(q,k)_proj  T  stack.layers.*.self_attention.sublayer.(query,key).sublayer
layers.*.self_attn.(q,k)_norm  =  stack.layers.*.self_attention.sublayer.(query,key).norm
"""
_IN_GGUF = """
num_experts          size  expert_count
num_experts_per_tok  size  expert_used_count
norm_topk_prob       =     false
"""  # llama.cpp does not let the gates of the experts sum to one
FAMILY = Family(
    "olmoe", "model", OlmoeConfig, classes("Olmoe", WRITERS_ALONE), FIELDS, NAMES, base=llama.BASE,
    usual={"rms_norm_eps": 1e-5}, only={"clip_qkv": None, "sliding_window": None},
    adds="as Llama; experts whose gates do not sum to one, norms of the queries and keys of all heads together",
    small={name: value for name, value in llama.SMALL.items() if name != "head_dim"}
    | {"num_experts": 3, "num_experts_per_tok": 2},
    in_gguf=InGguf(table=_IN_GGUF),
)  # fmt: skip
