"""What the families of DeepSeek share: the fields of config.json about latent attention and experts, and the names.

Kimi Linear has the same parts, and takes its lines from here as well. In a .gguf file both are called deepseek2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import angles, llama
from .family import Found, InGguf
from .fields import Fields, written
from .gguf import Changed, Packed
from .qwen3_moe import ROUTED
from .weight_files import Tensor

FIELDS = f"""{llama.LLAMA}
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
q_lora_rank            size_or_none  d_query
"""


def sizes(fields: Fields) -> Found:
    """What both config.json of DeepSeek have, under our names."""
    fields.only(pretraining_tp=1, num_key_value_heads=fields.get("num_attention_heads"), ep_size=1, moe_layer_freq=1)
    found = fields.read(FIELDS)
    fields.only(head_dim=found["d_rotary"], qk_head_dim=found["d_head"] + found["d_rotary"])
    if "head_dim" in fields.document and fields.get("head_dim") is None:
        raise ValueError("head_dim null is not supported; leave it out, since it is qk_rope_head_dim")
    if found["d_rotary"] % 2:
        raise ValueError(f"qk_rope_head_dim must be even, since positions turn pairs; got {found['d_rotary']}")
    found["n_dense"] = min(fields.count("first_k_dense_replace"), found["n_layers"])
    given: Any = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    turned = angles.read(fields, found["d_rotary"])
    if turned.pop("d_rotary") is not None or "max_length" in turned or (turned["scaled_angles"] or {}).get("short"):
        raise ValueError("rotary angles of DeepSeek that depend on the length of a text are not supported")
    sharpness = Fields(given).positive("mscale_all_dim", 0.0) if given.get("mscale_all_dim") else 0.0
    return {**found, **turned, "sharpness": sharpness}


def in_groups(fields: Fields, n_experts: int, k: int, at_least: int) -> Found:
    """The groups of experts. at_least: how many experts a group must have. Raises ValueError where they do not fit."""
    n_groups, groups = fields.size("n_group"), fields.size("topk_group")
    size = n_experts // n_groups
    if n_experts % n_groups or groups > n_groups or k > groups * size or size < at_least:
        raise ValueError(
            f"{n_experts} experts in n_group = {n_groups} groups, topk_group = {groups} of which take part, must be "
            f"groups of equal size, at least {at_least}, with num_experts_per_tok = {k} experts or more"
        )
    return {"n_groups": n_groups, "groups": groups}


def written_sizes(config: Any) -> Found:
    """The fields of a config.json that both families have."""
    rotary = angles.one(config.rotary_base, config.scaled_angles)
    if config.sharpness:
        rotary["mscale_all_dim"] = config.sharpness
    return {
        **written(config, FIELDS), "rope_parameters": rotary,
        "rope_theta": config.rotary_base, "first_k_dense_replace": config.n_dense, "n_group": config.n_groups,
        "topk_group": config.groups, "num_key_value_heads": config.n_heads, "head_dim": config.d_rotary,
    }  # fmt: skip


BASE = sizes, written_sizes
ATTENTION = """
layers.*.self_attn.q_proj              T  stack.layers.*.self_attention.sublayer.query
layers.*.self_attn.q_a_proj            T  stack.layers.*.self_attention.sublayer.query.down
layers.*.self_attn.q_a_layernorm       =  stack.layers.*.self_attention.sublayer.query.norm
layers.*.self_attn.q_b_proj            T  stack.layers.*.self_attention.sublayer.query.up
layers.*.self_attn.kv_a_proj_with_mqa  T  stack.layers.*.self_attention.sublayer.down
layers.*.self_attn.kv_a_layernorm      =  stack.layers.*.self_attention.sublayer.norm
layers.*.self_attn.kv_b_proj           T  stack.layers.*.self_attention.sublayer.up
"""
SHARED = """
layers.*.mlp.shared_experts.(gate,up,down)_proj  T  stack.layers.*.feed_forward.sublayer.shared.(gate,inner,output)
layers.*.mlp.gate.e_score_correction_bias        =  stack.layers.*.feed_forward.sublayer.routed.route.bias
"""
EXPERTS = SHARED + ROUTED.replace("sublayer", "sublayer.routed")
NAMES = llama.NAMES + ATTENTION + EXPERTS

# llama.cpp, gguf-py/gguf/constants.py.
GGUF = """
blk.*.attn_q_a                       =  layers.*.self_attn.q_a_proj
blk.*.attn_(q_a_norm,q_b,kv_a_mqa)   =  layers.*.self_attn.(q_a_layernorm,q_b_proj,kv_a_proj_with_mqa)
blk.*.attn_(kv_a_norm,kv_b,k_b,v_b)  =  layers.*.self_attn.(kv_a_layernorm,kv_b_proj,k_b_proj,v_b_proj)
blk.*.exp_probs_b.bias               =  layers.*.mlp.gate.e_score_correction_bias
"""

LATENT_IN_GGUF = """
kv_lora_rank           size          attention.kv_lora_rank
q_lora_rank            size_or_none  attention.q_lora_rank
qk_rope_head_dim       size          rope.dimension_count
moe_intermediate_size  size          expert_feed_forward_length
topk_group             size          expert_group_used_count     1
routed_scaling_factor  positive      expert_weights_scale        1.0
first_k_dense_replace  get           leading_dense_block_count   0
"""
_OF_BOTH_IN_GGUF = f"""{LATENT_IN_GGUF}
head_dim               size          rope.dimension_count
n_routed_experts       size          expert_count
num_experts_per_tok    size          expert_used_count
n_shared_experts       size          expert_shared_count
n_group                size          expert_group_count          1
norm_topk_prob         get           expert_weights_norm         false
partial_rotary_factor  =             1.0
"""
SIGMOID = 2  # llama.cpp's number of this function


def widths_in_gguf(fields: Fields, kind: str) -> Found:
    """The widths of heads. kind: of the file."""
    key, value = (
        fields.size(f"{kind}.{name}_mla", fields.get(f"{kind}.{name}"))
        for name in ("attention.key_length", "attention.value_length")
    )
    return {"qk_nope_head_dim": key - fields.size(f"{kind}.rope.dimension_count"), "v_head_dim": value}


def _in_gguf(fields: Fields, stored: Any, config: Found) -> Found:
    """The widths, and how much YaRN sharpens the scores: llama.cpp has a tenth of its weight."""
    scaling = dict(config.get("rope_scaling") or {})
    if tenth := fields.get("deepseek2.rope.scaling.yarn_log_multiplier"):
        scaling["mscale"] = scaling["mscale_all_dim"] = round(10.0 * tenth, 6)  # it is stored in float32
    of_v3 = fields.get("deepseek2.expert_gating_func") == SIGMOID
    plain = "greedy" if fields.get("deepseek2.expert_group_count", 1) == 1 else "group_limited_greedy"
    return {
        **widths_in_gguf(fields, "deepseek2"), "num_key_value_heads": config["num_attention_heads"],
        "rope_scaling": scaling or None, "topk_method": "noaux_tc" if of_v3 else plain,
    }  # fmt: skip


def joined(found: dict[str, Tensor], config: Found) -> dict[str, Tensor]:
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


IN_GGUF = InGguf(GGUF, _OF_BOTH_IN_GGUF, "deepseek2", _in_gguf, joined=joined)
