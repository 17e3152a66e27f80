"""DeepSeek-V2: DeepSeek-AI 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts ...", section 2.

Keys and values come from a latent vector, which is all that a cache keeps, beside a rotated key that the heads share.
After the first layers experts take the place of the feed-forward network: some that every token uses, and others of
which each token uses the best k, all or those of the best groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Module, RMSNorm, ScaledDotProduct
from ...core.models.language_model import LanguageModel, LanguageModelParts
from ..after.experts import MixtureOfExperts
from ..after.gated import GatedFeedForward
from ..after.latent_attention import LatentAttention
from ..after.rotary import RotaryPositions
from ..after.routing import SharedExperts, SoftmaxRouting
from ..after.scaled_angles import ScaledRotary
from ..after.scaled_angles.angles import sharper
from . import angles, llama
from .decoder import decoder_of
from .family import BODY, WRITERS, Family, Stored, classes
from .fields import Fields, written
from .qwen3_moe import ROUTED


@dataclass(frozen=True)
class DeepseekV2Config:
    """Sizes of a DeepSeek-V2.

    d_head, d_rotary, d_value, d_latent, d_query: see LatentAttention; d_query None: no narrow vector. d_ff: of the
    first n_dense layers; d_expert: of each of n_experts, of which each position uses k; n_shared: how many times
    d_expert the shared one is wide. n_groups, groups: of experts, and how many of them may be chosen from.
    """

    vocabulary: int
    max_length: int = 2048
    d_model: int = 4096
    n_heads: int = 32
    d_ff: int = 11008
    n_layers: int = 32
    d_head: int = 128
    d_rotary: int = 64
    d_value: int = 128
    d_latent: int = 512
    d_query: int | None = 1536
    d_expert: int = 1407
    n_experts: int = 64
    k: int = 6
    n_shared: int = 2
    n_groups: int = 1
    groups: int = 1
    n_dense: int = 0
    gate_factor: float = 1.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: str = "silu"
    bias: bool = False
    mlp_bias: bool = False
    rotary_base: float = 10000.0
    scaled_angles: dict[str, Any] | None = None  # as ScaledRotary takes them
    sharpness: float = 0.0  # how much scores grow with the factor of the angles
    norm_eps: float = 1e-6
    tie_output: bool = False
    recompute: bool = False

    def build(self, rng: np.random.Generator | None = None) -> LanguageModel:
        """The model of these sizes, untrained."""
        return LanguageModel(self, rng)

    def route(self) -> SoftmaxRouting:
        """What chooses experts."""
        return SoftmaxRouting(self.k, self.n_groups, self.groups, self.gate_factor)

    def turn(self, interleaved: bool = True) -> Any:
        """What turns the rotated part of queries and keys."""
        if self.scaled_angles is None:
            return RotaryPositions(self.rotary_base, interleaved)
        return ScaledRotary(self.rotary_base, self.scaled_angles, interleaved=interleaved)

    def scale(self) -> float:
        """The factor of the scores. YaRN's is larger, since a longer text needs sharper weights."""
        factor = sharper((self.scaled_angles or {}).get("factor", 1.0), self.sharpness)
        return factor**2 / math.sqrt(self.d_head + self.d_rotary)

    def attention(self, i: int, rng: np.random.Generator) -> Module:
        """What mixes the positions in layer i, from 0 on."""
        widths = self.d_head, self.d_latent, self.d_rotary
        mix = ScaledDotProduct(self.scale(), self.attention_dropout)
        options: dict[str, Any] = {"d_value": self.d_value, "d_query": self.d_query, "bias": self.bias}
        return LatentAttention(self.d_model, self.n_heads, *widths, rng=rng, mix=mix, turn=self.turn(), **options)

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of DeepSeek-V2."""

        def network(width: int) -> GatedFeedForward:
            return GatedFeedForward(self.d_model, width, self.activation, self.mlp_bias, rng)

        def feed_forward(i: int) -> Module:
            if i < self.n_dense:
                return network(self.d_ff)
            sizes = self.d_model, self.d_expert, self.n_experts
            routed = MixtureOfExperts(*sizes, activation=self.activation, rng=rng, route=self.route())
            return SharedExperts(network(self.n_shared * self.d_expert), routed)

        return decoder_of(
            self,
            rng,
            norm=lambda: RMSNorm(self.d_model, self.norm_eps),
            attention=lambda i: self.attention(i, rng),
            feed_forward=feed_forward,
        )


FIELDS = """
qk_nope_head_dim       size      d_head         128
qk_rope_head_dim       size      d_rotary       64
v_head_dim             size      d_value        128
kv_lora_rank           size      d_latent       512
moe_intermediate_size  size      d_expert       1407
n_routed_experts       size      n_experts      64
num_experts_per_tok    size      k
n_shared_experts       size      n_shared       2
routed_scaling_factor  positive  gate_factor    1.0
attention_bias         flag      bias           false
"""
SIZES = llama.FIELDS.replace("num_key_value_heads        size        n_key_heads          n_heads\n", "")


def sizes(fields: Fields, head: str, table: str = FIELDS) -> dict[str, Any]:
    """What both config.json of DeepSeek have, under our names. table: FIELDS with the defaults of the family."""
    fields.only(pretraining_tp=1, num_key_value_heads=fields.get("num_attention_heads"), ep_size=1, moe_layer_freq=1)
    found = {**fields.read(SIZES), **fields.read(table)}
    found["tie_output"] |= head == BODY
    fields.only(head_dim=found["d_rotary"], qk_head_dim=found["d_head"] + found["d_rotary"])
    if "head_dim" in fields.document and fields.get("head_dim") is None:
        raise ValueError("head_dim null is not supported; leave it out, since it is qk_rope_head_dim")
    if found["d_rotary"] % 2:
        raise ValueError(f"qk_rope_head_dim must be even, since positions turn pairs; got {found['d_rotary']}")
    found["d_query"] = fields.size_or_none("q_lora_rank")
    found["n_dense"] = min(count(fields, "first_k_dense_replace"), found["n_layers"])
    given: Any = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    turned = angles.read(fields, found["d_rotary"])
    if turned.pop("d_rotary") is not None or "max_length" in turned or (turned["scaled_angles"] or {}).get("short"):
        raise ValueError("rotary angles of DeepSeek that depend on the length of a text are not supported")
    sharpness = Fields(given).positive("mscale_all_dim", 0.0) if given.get("mscale_all_dim") else 0.0
    return {**found, **turned, "sharpness": sharpness}


def in_groups(fields: Fields, n_experts: int, k: int, at_least: int) -> dict[str, Any]:
    """The groups of experts. at_least: how many experts a group must have. Raises ValueError where they do not fit."""
    n_groups, groups = fields.size("n_group"), fields.size("topk_group")
    size = n_experts // n_groups
    if n_experts % n_groups or groups > n_groups or k > groups * size or size < at_least:
        raise ValueError(
            f"{n_experts} experts in n_group = {n_groups} groups, topk_group = {groups} of which take part, must be "
            f"groups of equal size, at least {at_least}, with num_experts_per_tok = {k} experts or more"
        )
    return {"n_groups": n_groups, "groups": groups}


def count(fields: Fields, name: str) -> int:
    """An integer of at least 0."""
    return 0 if fields.get(name, 0) == 0 else fields.size(name)


def ours(fields: Fields, head: str, stored: Stored) -> DeepseekV2Config:
    """The config of DeepSeek-V2's config.json. Its norm_topk_prob has no effect in the library transformers."""
    fields = fields.otherwise(q_lora_rank=1536, norm_topk_prob=False)
    fields.only(norm_topk_prob=False, scoring_func="softmax", seq_aux=True)
    found = sizes(fields, head)
    grouped = fields.choice("topk_method", {"greedy": False, "group_limited_greedy": True}, "greedy")
    fields.asked |= {"n_group", "topk_group"}  # they change nothing where all groups take part
    groups: dict[str, Any] = in_groups(fields, found["n_experts"], found["k"], 1) if grouped else {}
    return DeepseekV2Config(**found, **groups, mlp_bias=fields.flag("mlp_bias", False))


def written_sizes(config: Any) -> dict[str, Any]:
    """The fields of a config.json that both families have."""
    rotary = angles.one(config.rotary_base, config.scaled_angles)
    if config.sharpness:
        rotary["mscale_all_dim"] = config.sharpness
    return {
        **written(config, SIZES), **written(config, FIELDS), "q_lora_rank": config.d_query, "rope_parameters": rotary,
        "rope_theta": config.rotary_base, "first_k_dense_replace": config.n_dense, "n_group": config.n_groups,
        "topk_group": config.groups, "num_key_value_heads": config.n_heads, "head_dim": config.d_rotary,
    }  # fmt: skip


def theirs(config: DeepseekV2Config) -> dict[str, Any]:
    """DeepSeek-V2's config.json."""
    method = "greedy" if config.n_groups == 1 else "group_limited_greedy"
    return {**written_sizes(config), "topk_method": method, "mlp_bias": config.mlp_bias}


ATTENTION = """
layers.*.self_attn.q_proj                 T  stack.layers.*.self_attention.sublayer.query
layers.*.self_attn.q_a_proj               T  stack.layers.*.self_attention.sublayer.query.down
layers.*.self_attn.q_a_layernorm          =  stack.layers.*.self_attention.sublayer.query.norm
layers.*.self_attn.q_b_proj               T  stack.layers.*.self_attention.sublayer.query.up
layers.*.self_attn.kv_a_proj_with_mqa     T  stack.layers.*.self_attention.sublayer.down
layers.*.self_attn.kv_a_layernorm         =  stack.layers.*.self_attention.sublayer.norm
layers.*.self_attn.kv_b_proj              T  stack.layers.*.self_attention.sublayer.up
"""
SHARED = """
layers.*.mlp.shared_experts.gate_proj     T  stack.layers.*.feed_forward.sublayer.shared.gate
layers.*.mlp.shared_experts.up_proj       T  stack.layers.*.feed_forward.sublayer.shared.inner
layers.*.mlp.shared_experts.down_proj     T  stack.layers.*.feed_forward.sublayer.shared.output
layers.*.mlp.gate.e_score_correction_bias =  stack.layers.*.feed_forward.sublayer.routed.route.bias
"""
EXPERTS = SHARED + ROUTED.replace("sublayer", "sublayer.routed")
NAMES = llama.NAMES + ATTENTION + EXPERTS


SMALL = {
    name: value for name, value in llama.SMALL.items() if name not in ("num_key_value_heads", "head_dim")
} | {
    "q_lora_rank": 5, "kv_lora_rank": 6, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
    "n_routed_experts": 6, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 7,
    "num_attention_heads": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
FAMILY = Family(
    "deepseek_v2", "model", classes("DeepseekV2", WRITERS), ours, theirs, NAMES,
    recipe=DeepseekV2Config,
    adds="keys and values from a latent vector, shared experts beside those that are chosen",
    small=SMALL | {"topk_method": "group_limited_greedy"},
    ignored="aux_loss_alpha",
)  # fmt: skip
