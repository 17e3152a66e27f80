"""Qwen3 MoE: Yang et al. 2025, "Qwen3 Technical Report", section 2. A Qwen3 with experts in most layers.

Of `k` experts the gates are their shares of a softmax over all, rescaled to sum to one if the config says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module
from ..after.experts import MixtureOfExperts, TopK
from ..after.gated import GatedFeedForward
from ..after.routing import SoftmaxRouting
from . import llama, qwen3
from .family import WRITERS, Family, Found, InGguf, classes
from .fields import Fields


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

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""

        def feed_forward(i: int) -> Module:
            if i in self.dense:
                return GatedFeedForward(self.d_model, self.d_ff, self.activation, bias=False, rng=rng)
            return experts(self, self.d_expert, rng)

        return {"feed_forward": feed_forward}


def experts(sizes: Any, width: int, rng: Rng) -> MixtureOfExperts:
    """The experts of a layer, of which each has this width."""
    route = TopK(sizes.k) if sizes.gates_sum_to_one else SoftmaxRouting(sizes.k)
    return MixtureOfExperts(sizes.d_model, width, sizes.n_experts, activation=sizes.activation, rng=rng, route=route)


FIELDS = """
num_local_experts      size   n_experts          128
num_experts_per_tok    size   k                  8
moe_intermediate_size  size   d_expert           768
norm_topk_prob         flag   gates_sum_to_one   false
attention_bias         flag   bias               false
"""


def as_today(fields: Fields) -> Fields:
    """The fields with the number of experts under its new name."""
    fields = fields.otherwise(num_local_experts=fields.get("num_experts", 128))
    fields.only(num_experts=fields.get("num_local_experts"))
    return fields


def dense_layers(fields: Fields, n_layers: int) -> tuple[int, ...]:
    """The layers without experts."""
    step, named = fields.size("decoder_sparse_step", 1), fields.get("mlp_only_layers") or []
    if not isinstance(named, list) or not all(type(i) is int for i in named):
        raise ValueError("mlp_only_layers must be a list of layers, counted from 0")
    return tuple(i for i in range(n_layers) if i in named or (i + 1) % step)


def written_dense(config: Any) -> Found:
    """The layers without experts."""
    return {"mlp_only_layers": list(config.dense), "decoder_sparse_step": 1}


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    window = fields.size_or_none("sliding_window")
    window = window if fields.flag("use_sliding_window", False) else None
    return {"dense": dense_layers(fields, found["n_layers"]), "window": window}


def _theirs(config: Qwen3MoeConfig) -> Found:
    window = {"use_sliding_window": config.window is not None, "sliding_window": config.window}
    return {**window, **written_dense(config)}


ROUTED = """
layers.*.mlp.gate                           T   stack.layers.*.feed_forward.sublayer.router
layers.*.mlp.experts.*.(gate,up,down)_proj  T   stack.layers.*.feed_forward.sublayer.experts.*.(gate,inner,output)
layers.*.mlp.experts.gate_up_proj           |T  stack.layers.*.feed_forward.sublayer.experts.*.gate|inner
layers.*.mlp.experts.down_proj              |T  stack.layers.*.feed_forward.sublayer.experts.*.output
"""
NAMES = llama.NAMES + ROUTED
_IN_GGUF = f"""{llama.BIAS_IN_GGUF}
num_experts            size  expert_count
num_experts_per_tok    size  expert_used_count
moe_intermediate_size  size  expert_feed_forward_length
norm_topk_prob         =     true
"""  # llama.cpp lets the gates of the chosen experts sum to one
FAMILY = Family(
    "qwen3_moe", "model", Qwen3MoeConfig, classes("Qwen3Moe", WRITERS), FIELDS, NAMES,
    as_today=as_today, base=llama.BASE, usual={"num_key_value_heads": 4}, more_ours=_ours, more_theirs=_theirs,
    adds="as Qwen3; experts in some or all layers",
    small=llama.SMALL | {
        "sliding_window": 3, "use_sliding_window": True, "num_experts": 3, "num_experts_per_tok": 2,
        "moe_intermediate_size": 7, "num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": True,
    },
    ignored="max_window_layers layer_types",
    in_gguf=InGguf("", _IN_GGUF, "qwen3moe"),
)  # fmt: skip
