"""DeepSeek-V2: DeepSeek-AI 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts ...", section 2.

Keys and values come from a latent vector, which is all that a cache keeps, beside a rotated key that the heads share.
After the first layers experts take the place of the feed-forward network: some that every token uses, and others of
which each token uses the best k, all or those of the best groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
from .family import BODY, WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written
from .gguf import Changed, Packed
from .qwen3_moe import ROUTED, ROUTED_IN_GGUF
from .weight_files import Tensor


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

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of DeepSeek-V2."""
        widths = self.d_head, self.d_latent, self.d_rotary

        def attention(i: int) -> LatentAttention:
            mix = ScaledDotProduct(self.scale(), self.attention_dropout)
            options: dict[str, Any] = {"d_value": self.d_value, "d_query": self.d_query, "bias": self.bias}
            return LatentAttention(self.d_model, self.n_heads, *widths, rng=rng, mix=mix, turn=self.turn(), **options)

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
            attention=attention,
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
_SIZES = llama.FIELDS.replace("num_key_value_heads        size        n_key_heads          n_heads\n", "")


def sizes(fields: Fields, head: str, table: str = FIELDS) -> dict[str, Any]:
    """What both config.json of DeepSeek have, under our names. table: FIELDS with the defaults of the family."""
    fields.only(pretraining_tp=1, num_key_value_heads=fields.get("num_attention_heads"), ep_size=1, moe_layer_freq=1)
    found = {**fields.read(_SIZES), **fields.read(table)}
    found["tie_output"] |= head == BODY
    fields.only(head_dim=found["d_rotary"], qk_head_dim=found["d_head"] + found["d_rotary"])
    if "head_dim" in fields.document and fields.get("head_dim") is None:
        raise ValueError("head_dim null is not supported; leave it out, since it is qk_rope_head_dim")
    if found["d_rotary"] % 2:
        raise ValueError(f"qk_rope_head_dim must be even, since positions turn pairs; got {found['d_rotary']}")
    found["d_query"] = fields.size_or_none("q_lora_rank")
    found["n_dense"] = min(_count(fields, "first_k_dense_replace"), found["n_layers"])
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


def _count(fields: Fields, name: str) -> int:
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
        **written(config, _SIZES), **written(config, FIELDS), "q_lora_rank": config.d_query, "rope_parameters": rotary,
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
NAMES = llama.NAMES + ATTENTION + SHARED + ROUTED.replace("sublayer", "sublayer.routed")

_OTHERS = tuple(f"blk.*.attn_{which} " for which in "qkv")
GGUF = (
    "".join(f"{line}\n" for line in llama.GGUF.splitlines() if not line.startswith(_OTHERS))
    + ROUTED_IN_GGUF
    + """
blk.*.attn_q            =  layers.*.self_attn.q_proj
blk.*.attn_q_a          =  layers.*.self_attn.q_a_proj
blk.*.attn_q_a_norm     =  layers.*.self_attn.q_a_layernorm
blk.*.attn_q_b          =  layers.*.self_attn.q_b_proj
blk.*.attn_kv_a_mqa     =  layers.*.self_attn.kv_a_proj_with_mqa
blk.*.attn_kv_a_norm    =  layers.*.self_attn.kv_a_layernorm
blk.*.attn_kv_b         =  layers.*.self_attn.kv_b_proj
blk.*.attn_k_b          =  layers.*.self_attn.k_b_proj
blk.*.attn_v_b          =  layers.*.self_attn.v_b_proj
blk.*.ffn_gate_shexp    =  layers.*.mlp.shared_experts.gate_proj
blk.*.ffn_up_shexp      =  layers.*.mlp.shared_experts.up_proj
blk.*.ffn_down_shexp    =  layers.*.mlp.shared_experts.down_proj
blk.*.exp_probs_b.bias  =  layers.*.mlp.gate.e_score_correction_bias
"""
)


def in_gguf(fields: Fields, stored: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The widths of heads, the experts, and how much YaRN sharpens the scores: llama.cpp has a tenth of its weight."""

    def size(name: str, default: int | None = None) -> int:
        return fields.size(f"deepseek2.{name}", default)

    rotated, scaling = size("rope.dimension_count"), dict(config.get("rope_scaling") or {})
    widths = {kind: size(f"attention.{kind}_length_mla", size(f"attention.{kind}_length")) for kind in ("key", "value")}
    if tenth := fields.get("deepseek2.rope.scaling.yarn_log_multiplier"):
        scaling["mscale"] = scaling["mscale_all_dim"] = round(10.0 * tenth, 6)  # it is stored in float32
    found = {
        "qk_rope_head_dim": rotated, "head_dim": rotated, "qk_nope_head_dim": widths["key"] - rotated,
        "v_head_dim": widths["value"], "num_key_value_heads": config["num_attention_heads"],
        "kv_lora_rank": size("attention.kv_lora_rank"), "n_routed_experts": size("expert_count"),
        "q_lora_rank": fields.size_or_none("deepseek2.attention.q_lora_rank"),
        "moe_intermediate_size": size("expert_feed_forward_length"), "n_shared_experts": size("expert_shared_count"),
        "num_experts_per_tok": size("expert_used_count"), "n_group": size("expert_group_count", 1),
        "routed_scaling_factor": fields.positive("deepseek2.expert_weights_scale", 1.0),
        "first_k_dense_replace": fields.get("deepseek2.leading_dense_block_count", 0),
        "topk_group": size("expert_group_used_count", 1), "partial_rotary_factor": 1.0,
        "norm_topk_prob": fields.get("deepseek2.expert_weights_norm", False), "rope_scaling": scaling or None,
    }  # fmt: skip
    of_v3 = fields.get("deepseek2.expert_gating_func") == SIGMOID
    method = "noaux_tc" if of_v3 else "greedy" if found["n_group"] == 1 else "group_limited_greedy"
    return {**found, "topk_method": method}


SIGMOID = 2  # llama.cpp's number of this function


def joined(found: dict[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The map from the latent vector to keys and values, which later files have in two, that of keys transposed."""
    n_heads, d_latent = config["num_attention_heads"], config["kv_lora_rank"]
    d_key, d_value = config["qk_nope_head_dim"], config["v_head_dim"]

    def join(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.concatenate([keys.swapaxes(1, 2), values], axis=1)

    for name in [name for name in found if name.endswith(".k_b_proj.weight")]:
        keys, values = found[name], found.get(other := name.replace("k_b", "v_b"))
        if not isinstance(keys, Packed) or not isinstance(values, Packed):
            continue
        if (keys.shape, values.shape) == ((n_heads, d_latent, d_key), (n_heads, d_value, d_latent)):
            del found[name], found[other]
            whole, shape = name.replace("k_b", "kv_b"), (n_heads * (d_key + d_value), d_latent)
            found[whole] = Changed(whole, keys.path, keys.dtype, shape, keys.start, (keys, values), join)
    return found


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
    in_gguf=InGguf(GGUF, in_gguf, "deepseek2", joined=joined),
)  # fmt: skip
