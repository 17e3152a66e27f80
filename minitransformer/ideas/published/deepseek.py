"""What the families of DeepSeek share: the fields of config.json about latent attention and experts, and the names.

Kimi Linear has the same parts, and takes its lines from here as well.
"""

from __future__ import annotations

from typing import Any

from . import angles, llama
from .fields import Fields, written
from .qwen3_moe import ROUTED

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


def sizes(fields: Fields, head: str) -> dict[str, Any]:
    """What both config.json of DeepSeek have, under our names."""
    fields.only(pretraining_tp=1, num_key_value_heads=fields.get("num_attention_heads"), ep_size=1, moe_layer_freq=1)
    found = {**fields.read(SIZES, head), **fields.read(FIELDS)}
    fields.only(head_dim=found["d_rotary"], qk_head_dim=found["d_head"] + found["d_rotary"])
    if "head_dim" in fields.document and fields.get("head_dim") is None:
        raise ValueError("head_dim null is not supported; leave it out, since it is qk_rope_head_dim")
    if found["d_rotary"] % 2:
        raise ValueError(f"qk_rope_head_dim must be even, since positions turn pairs; got {found['d_rotary']}")
    found["d_query"] = fields.size_or_none("q_lora_rank")
    found["n_dense"] = min(fields.count("first_k_dense_replace"), found["n_layers"])
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
