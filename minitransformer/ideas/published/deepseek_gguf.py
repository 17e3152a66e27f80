"""How the families of DeepSeek lie in a .gguf file, where both are called deepseek2.

llama.cpp, gguf-py/gguf/constants.py has the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import llama
from .fields import Fields
from .gguf import Changed, Packed
from .qwen3_moe import ROUTED_IN_GGUF
from .weight_files import Tensor

GGUF = (
    llama.GGUF
    + ROUTED_IN_GGUF
    + """
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


def in_gguf(fields: Fields, stored: Any, config: Mapping[str, Any], kind: str = "deepseek2") -> dict[str, Any]:
    """The widths of heads, the experts, and how much YaRN sharpens the scores: llama.cpp has a tenth of its weight."""

    def size(name: str, default: int | None = None) -> int:
        return fields.size(f"{kind}.{name}", default)

    rotated, scaling = size("rope.dimension_count"), dict(config.get("rope_scaling") or {})
    lengths = {each: f"attention.{each}_length" for each in ("key", "value")}
    widths = {each: size(f"{name}_mla", fields.get(f"{kind}.{name}")) for each, name in lengths.items()}
    if tenth := fields.get(f"{kind}.rope.scaling.yarn_log_multiplier"):
        scaling["mscale"] = scaling["mscale_all_dim"] = round(10.0 * tenth, 6)  # it is stored in float32
    found = {
        "qk_rope_head_dim": rotated, "head_dim": rotated, "qk_nope_head_dim": widths["key"] - rotated,
        "v_head_dim": widths["value"], "num_key_value_heads": config["num_attention_heads"],
        "kv_lora_rank": size("attention.kv_lora_rank"), "n_routed_experts": size("expert_count"),
        "q_lora_rank": fields.size_or_none(f"{kind}.attention.q_lora_rank"),
        "moe_intermediate_size": size("expert_feed_forward_length"), "n_shared_experts": size("expert_shared_count"),
        "num_experts_per_tok": size("expert_used_count"), "n_group": size("expert_group_count", 1),
        "routed_scaling_factor": fields.positive(f"{kind}.expert_weights_scale", 1.0),
        "first_k_dense_replace": fields.get(f"{kind}.leading_dense_block_count", 0),
        "topk_group": size("expert_group_used_count", 1), "partial_rotary_factor": 1.0,
        "norm_topk_prob": fields.get(f"{kind}.expert_weights_norm", False), "rope_scaling": scaling or None,
    }  # fmt: skip
    of_v3 = fields.get(f"{kind}.expert_gating_func") == SIGMOID
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
