"""Qwen3-Next: Qwen Team 2025, "Qwen3-Next: Towards Ultimate Training & Inference Efficiency". A Qwen3.5 with experts.

Of many experts each token uses a few, and one that all tokens share, which a gate opens. In its file the maps of a
memory are fused, head of keys by head of keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.layers import Module
from ..after.output_gate import OpenedFeedForward
from ..after.routing import SharedExperts
from . import qwen3_5, qwen3_moe
from .family import WRITERS, Family, InGguf, classes


@dataclass(frozen=True)
class Qwen3NextConfig(qwen3_5.Qwen35Config):
    """Sizes of a Qwen3-Next. k: how many of n_experts each position uses; d_expert, d_shared: their widths.

    dense: the layers, from 0 on, with one network of width d_ff instead. gates_sum_to_one: of the chosen experts.
    """

    n_experts: int = 512
    k: int = 10
    d_expert: int = 512
    d_shared: int = 512
    dense: tuple[int, ...] = ()
    gates_sum_to_one: bool = True

    def feed_forward(self, i: int, rng: Rng) -> Module:
        """The feed-forward network of layer i, or its experts."""
        if i in self.dense:
            return super().feed_forward(i, rng)
        shared = OpenedFeedForward(self.d_model, self.d_shared, self.activation, rng)
        return SharedExperts(shared, qwen3_moe.experts(self, self.d_expert, rng))


FIELDS = f"""{qwen3_5.FIELDS}
num_experts                      size   n_experts          512
num_experts_per_tok              size   k                  10
moe_intermediate_size            size   d_expert           512
shared_expert_intermediate_size  size   d_shared           512
norm_topk_prob                   flag   gates_sum_to_one   true
"""
NAMES = f"""{qwen3_5.NAMES}{qwen3_moe.ROUTED.replace("sublayer.", "sublayer.routed.")}
layers.*.linear_attn.in_proj_qkvz  T:n_memory_keys  stack.layers.*.self_attention.sublayer.query|key|value|gate
layers.*.linear_attn.in_proj_ba    T:n_memory_keys  stack.layers.*.self_attention.sublayer.rate|step
layers.*.linear_attn.in_proj_qkv   |T               stack.layers.*.self_attention.sublayer.query|key|value
layers.*.linear_attn.in_proj_z     |T               stack.layers.*.self_attention.sublayer.gate
layers.*.mlp.shared_expert.(gate,up,down)_proj  T  stack.layers.*.feed_forward.sublayer.shared.(gate,inner,output)
layers.*.mlp.shared_expert_gate    T                stack.layers.*.feed_forward.sublayer.shared.opening
"""
# Values are in the order of a folder.
_ORDERED = qwen3_5.OF_BOTH_IN_GGUF.replace("tiled+", "").replace("tiled", "=").replace("columns", "=")
GGUF = f"""{_ORDERED}
blk.*.ssm_(in,ba)               =    layers.*.linear_attn.in_proj_(qkvz,ba)
blk.*.ffn_gate_inp_shexp        row  layers.*.mlp.shared_expert_gate
"""
IN_GGUF = f"""{qwen3_5.MEMORY_IN_GGUF}
num_experts                      size  expert_count
num_experts_per_tok              size  expert_used_count
moe_intermediate_size            size  expert_feed_forward_length
shared_expert_intermediate_size  size  expert_shared_feed_forward_length
norm_topk_prob                   =     true
"""  # llama.cpp lets the gates of the chosen experts sum to one
FAMILY = Family(
    "qwen3_next", "model", Qwen3NextConfig, classes("Qwen3Next", WRITERS), FIELDS, NAMES, **qwen3_5.PARTIAL,
    usual={"num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25},
    more_ours=lambda fields, found, *_: {
        **qwen3_5.ours(fields, found), "dense": qwen3_moe.dense_layers(fields, found["n_layers"])
    },
    more_theirs=lambda config: {**qwen3_5.theirs(config), **qwen3_moe.written_dense(config)},
    adds="as Qwen3.5; experts, and one that all tokens share, opened by a gate",
    small=qwen3_5.SMALL | {
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "shared_expert_intermediate_size": 5,
        "mlp_only_layers": [1],
    },
    ignored="full_attention_interval mtp_*",
    for_training=lambda config: "mtp.*",
    in_gguf=InGguf(GGUF, IN_GGUF, "qwen3next", qwen3_5.memory_in_gguf("qwen3next")),
)  # fmt: skip
