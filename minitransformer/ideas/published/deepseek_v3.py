"""DeepSeek-V3: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.1. A DeepSeek-V2 with sigmoids for gates.

A bias that gets no gradient helps to choose the experts. The extra layers that predict a second token (section 2.2)
serve training, and are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..after.routing import SigmoidRouting
from . import deepseek, deepseek_v2
from .family import WRITERS, Family, Stored, classes


@dataclass(frozen=True)
class DeepseekV3Config(deepseek_v2.DeepseekV2Config):
    """Sizes of a DeepSeek-V3. gates_sum: whether a position's gates sum to gate_factor.

    interleaved: whether rotation pairs neighbours.
    """

    max_length: int = 4096
    d_model: int = 7168
    n_heads: int = 128
    d_ff: int = 18432
    n_layers: int = 61
    d_expert: int = 2048
    n_experts: int = 256
    k: int = 8
    n_shared: int = 1
    n_groups: int = 8
    groups: int = 4
    n_dense: int = 3
    gate_factor: float = 2.5
    gates_sum: bool = True
    interleaved: bool = True

    def route(self) -> SigmoidRouting:
        """What chooses experts."""
        return SigmoidRouting(self.n_experts, self.k, self.n_groups, self.groups, self.gate_factor, self.gates_sum)

    def turn(self, interleaved: bool | None = None) -> Any:
        """What turns the rotated part of queries and keys."""
        return super().turn(self.interleaved)


FIELDS = """
norm_topk_prob   flag  gates_sum    true
rope_interleave  flag  interleaved  true
"""


def _is_v3(metadata: Mapping[str, Any], stored: Stored) -> bool:
    return metadata.get("deepseek2.expert_gating_func") == deepseek.SIGMOID


FAMILY = Family(
    "deepseek_v3", "model", DeepseekV3Config, classes("DeepseekV3", WRITERS), FIELDS, deepseek.NAMES,
    base=deepseek.BASE,
    usual={
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "routed_scaling_factor": 2.5, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536,
        "max_position_embeddings": 4096,
    },
    only={"topk_method": "noaux_tc", "scoring_func": "sigmoid", "seq_aux": True},
    more_ours=lambda fields, found, head, stored: deepseek.in_groups(fields, found["n_experts"], found["k"], 2),
    more_theirs=lambda config: {"num_nextn_predict_layers": 0},
    adds="as DeepSeek-V2; gates of sigmoids, and a bias that only chooses",
    small=deepseek_v2.SMALL | {"num_key_value_heads": 2},
    ignored="num_nextn_predict_layers num_mtp_layers ep_size moe_layer_freq aux_loss_alpha",
    for_training=lambda config: f"layers.{config.n_layers}.*",
    in_gguf=replace(deepseek.IN_GGUF, when=_is_v3),
)  # fmt: skip
