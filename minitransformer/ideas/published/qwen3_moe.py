"""Qwen3 MoE: Yang et al. 2025, "Qwen3 Technical Report", section 2. A Qwen3 with experts in most layers.

Of `k` experts the gates are their shares of a softmax over all, rescaled to sum to one if the config says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Module
from ...core.models.language_model import LanguageModelParts
from ..after.experts import MixtureOfExperts, TopK
from ..after.gated import GatedFeedForward
from ..after.routing import SoftmaxRouting
from . import llama, qwen3
from .decoder import decoder
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written


@dataclass(frozen=True)
class Qwen3MoeConfig(qwen3.Qwen3Config):
    """Sizes of a Qwen3 MoE. k: how many of n_experts each position uses; d_expert: the width of each.

    dense: the layers, from 0 on, with one network of width d_ff instead. gates_sum_to_one: of the chosen experts.
    """

    n_experts: int = 128
    k: int = 8
    d_expert: int = 768
    dense: tuple[int, ...] = ()
    gates_sum_to_one: bool = False

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Qwen3 MoE."""

        def feed_forward(i: int) -> Module:
            if i in self.dense:
                return GatedFeedForward(self.d_model, self.d_ff, self.activation, bias=False, rng=rng)
            return experts(self, self.d_expert, rng)

        return decoder(self, rng, feed_forward=feed_forward)


def experts(sizes: Any, width: int, rng: np.random.Generator) -> MixtureOfExperts:
    """The experts of a layer, of which each has this width."""
    route = TopK(sizes.k) if sizes.gates_sum_to_one else SoftmaxRouting(sizes.k)
    return MixtureOfExperts(sizes.d_model, width, sizes.n_experts, activation=sizes.activation, rng=rng, route=route)


FIELDS = """
num_local_experts      size   n_experts          128
num_experts_per_tok    size   k                  8
moe_intermediate_size  size   d_expert           768
norm_topk_prob         flag   gates_sum_to_one   false
"""


def ours(fields: Fields, head: str, stored: Stored) -> Qwen3MoeConfig:
    """The config of Qwen3 MoE's config.json."""
    fields = fields.otherwise(num_key_value_heads=4, num_local_experts=fields.get("num_experts", 128))
    fields.only(num_experts=fields.get("num_local_experts"))  # the name in its first files
    found = {**llama.sizes(fields, head), **fields.read(FIELDS)}
    dense = dense_layers(fields, found["n_layers"])
    bias = fields.flag("attention_bias", False)
    return Qwen3MoeConfig(**found, dense=dense, bias=bias, window=_window(fields))


def dense_layers(fields: Fields, n_layers: int) -> tuple[int, ...]:
    """The layers without experts."""
    step, named = fields.size("decoder_sparse_step", 1), fields.get("mlp_only_layers") or []
    if not isinstance(named, list) or not all(type(i) is int for i in named):
        raise ValueError("mlp_only_layers must be a list of layers, counted from 0")
    return tuple(i for i in range(n_layers) if i in named or (i + 1) % step)


def theirs(config: Qwen3MoeConfig) -> dict[str, Any]:
    """Qwen3 MoE's config.json."""
    ours_alone = {"use_sliding_window": config.window is not None, "sliding_window": config.window}
    fields = {**llama.written_sizes(config), **written(config, FIELDS), **ours_alone}
    return fields | {
        "attention_bias": config.bias,
        "mlp_only_layers": list(config.dense),
        "decoder_sparse_step": 1,
    }


def _window(fields: Fields) -> int | None:
    """The window of all layers, if it is used."""
    window = fields.size_or_none("sliding_window")
    return window if fields.flag("use_sliding_window", False) else None


ROUTED = """
layers.*.mlp.gate                         T  stack.layers.*.feed_forward.sublayer.router
layers.*.mlp.experts.*.gate_proj          T  stack.layers.*.feed_forward.sublayer.experts.*.gate
layers.*.mlp.experts.*.up_proj            T  stack.layers.*.feed_forward.sublayer.experts.*.inner
layers.*.mlp.experts.*.down_proj          T  stack.layers.*.feed_forward.sublayer.experts.*.output
layers.*.mlp.experts.gate_up_proj        |T  stack.layers.*.feed_forward.sublayer.experts.*.gate|inner
layers.*.mlp.experts.down_proj           |T  stack.layers.*.feed_forward.sublayer.experts.*.output
"""
ROUTED_IN_GGUF = """
blk.*.ffn_gate_inp   =  layers.*.mlp.gate
blk.*.ffn_gate_exps  =  layers.*.mlp.experts.*.gate_proj
blk.*.ffn_up_exps    =  layers.*.mlp.experts.*.up_proj
blk.*.ffn_down_exps  =  layers.*.mlp.experts.*.down_proj
"""


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The experts. llama.cpp lets the gates of the chosen ones sum to one."""
    return {
        "num_experts": fields.size("qwen3moe.expert_count"),
        "num_experts_per_tok": fields.size("qwen3moe.expert_used_count"),
        "moe_intermediate_size": fields.size("qwen3moe.expert_feed_forward_length"),
        "norm_topk_prob": True,
        "attention_bias": "blk.0.attn_output.bias" in stored,
    }


FAMILY = Family(
    "qwen3_moe", "model", classes("Qwen3Moe", WRITERS), ours, theirs, qwen3.NAMES + ROUTED,
    recipe=Qwen3MoeConfig,
    adds="as Qwen3; experts in some or all layers",
    small=llama.SMALL | {
        "sliding_window": 3, "use_sliding_window": True, "num_experts": 3, "num_experts_per_tok": 2,
        "moe_intermediate_size": 7, "num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": True,
    },
    ignored="max_window_layers layer_types",
    in_gguf=InGguf(qwen3.GGUF + ROUTED_IN_GGUF, in_gguf, "qwen3moe"),
)  # fmt: skip
