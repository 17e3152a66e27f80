"""Qwen3-Next: Qwen Team 2025, "Qwen3-Next: Towards Ultimate Training & Inference Efficiency". A Qwen3.5 with experts.

Of many experts each token uses a few, and one that all tokens share, which a gate opens. In its file the maps of a
memory are fused, head of keys by head of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Module
from ..after.output_gate import OpenedFeedForward
from ..after.routing import SharedExperts
from . import qwen3_5, qwen3_moe
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written


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

    def feed_forward(self, i: int, rng: np.random.Generator) -> Module:
        """The feed-forward network of layer i, or its experts."""
        if i in self.dense:
            return super().feed_forward(i, rng)
        shared = OpenedFeedForward(self.d_model, self.d_shared, self.activation, rng)
        return SharedExperts(shared, qwen3_moe.experts(self, self.d_expert, rng))


FIELDS = """
num_experts                      size   n_experts          512
num_experts_per_tok              size   k                  10
moe_intermediate_size            size   d_expert           512
shared_expert_intermediate_size  size   d_shared           512
norm_topk_prob                   flag   gates_sum_to_one   true
"""


def ours(fields: Fields, head: str, stored: Stored) -> Qwen3NextConfig:
    """The config of Qwen3-Next's config.json."""
    found = qwen3_5.sizes(fields.otherwise(num_key_value_heads=2), head)
    return Qwen3NextConfig(**found, **fields.read(FIELDS), dense=qwen3_moe.dense_layers(fields, found["n_layers"]))


def theirs(config: Qwen3NextConfig) -> dict[str, Any]:
    """Qwen3-Next's config.json."""
    fields = {**qwen3_5.theirs(config), **written(config, FIELDS)}
    return fields | {"mlp_only_layers": list(config.dense), "decoder_sparse_step": 1}


_EXPERTS = """
layers.*.linear_attn.in_proj_qkvz         THEADS  stack.layers.*.self_attention.sublayer.query|key|value|gate
layers.*.linear_attn.in_proj_ba           THEADS  stack.layers.*.self_attention.sublayer.rate|step
layers.*.linear_attn.in_proj_qkv         |T       stack.layers.*.self_attention.sublayer.query|key|value
layers.*.linear_attn.in_proj_z           |T       stack.layers.*.self_attention.sublayer.gate
layers.*.mlp.shared_expert.gate_proj      T       stack.layers.*.feed_forward.sublayer.shared.gate
layers.*.mlp.shared_expert.up_proj        T       stack.layers.*.feed_forward.sublayer.shared.inner
layers.*.mlp.shared_expert.down_proj      T       stack.layers.*.feed_forward.sublayer.shared.output
layers.*.mlp.shared_expert_gate           T       stack.layers.*.feed_forward.sublayer.shared.opening
"""


def names(config: Qwen3NextConfig) -> str:
    """The table of names."""
    fused = _EXPERTS.replace("HEADS", str(config.n_memory_keys))
    return qwen3_5.NAMES + fused + qwen3_moe.ROUTED.replace("sublayer.", "sublayer.routed.")


_ORDERED = qwen3_5.OF_BOTH_IN_GGUF.replace("tiled+", "").replace("tiled", "=").replace("columns", "=")
GGUF = (
    _ORDERED  # values are in the order of a folder
    + qwen3_moe.ROUTED_IN_GGUF
    + """
blk.*.ssm_in              =    layers.*.linear_attn.in_proj_qkvz
blk.*.ssm_ba              =    layers.*.linear_attn.in_proj_ba
blk.*.ffn_gate_shexp      =    layers.*.mlp.shared_expert.gate_proj
blk.*.ffn_up_shexp        =    layers.*.mlp.shared_expert.up_proj
blk.*.ffn_down_shexp      =    layers.*.mlp.shared_expert.down_proj
blk.*.ffn_gate_inp_shexp  row  layers.*.mlp.shared_expert_gate
"""
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The memory and the experts. llama.cpp lets the gates of the chosen ones sum to one."""
    return qwen3_5.memory_in_gguf(fields, "qwen3next", config["num_hidden_layers"]) | {
        "num_experts": fields.size("qwen3next.expert_count"),
        "num_experts_per_tok": fields.size("qwen3next.expert_used_count"),
        "moe_intermediate_size": fields.size("qwen3next.expert_feed_forward_length"),
        "shared_expert_intermediate_size": fields.size("qwen3next.expert_shared_feed_forward_length"),
        "norm_topk_prob": True,
    }


FAMILY = Family(
    "qwen3_next", "model", classes("Qwen3Next", WRITERS), ours, theirs, names,
    recipe=Qwen3NextConfig,
    adds="as Qwen3.5; experts, and one that all tokens share, opened by a gate",
    small=qwen3_5.SMALL | {
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "shared_expert_intermediate_size": 5,
        "mlp_only_layers": [1],
    },
    ignored="full_attention_interval mtp_*",
    for_training=lambda config: "mtp.*",
    in_gguf=InGguf(GGUF, in_gguf, "qwen3next"),
)  # fmt: skip
