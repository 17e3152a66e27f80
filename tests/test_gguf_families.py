"""GGUF files of hybrids and of families with experts: each opens as the folder of the same model.

Names come from the library `gguf`; what else changes is written out as llama.cpp's conversion/*.py does it.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from test_gguf import architecture_of, permute, write_gguf

from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.core.models import LanguageModel
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.models import from_pretrained

Arrays = dict[str, np.ndarray]
ARCHITECTURES = {
    "mixtral": "LLAMA",
    "olmo3": "OLMO2",
    "granitemoehybrid": "GRANITE_HYBRID",
    "kimi_linear": "KIMI_LINEAR",
}  # where not the file's name in capitals


def tiled(x: np.ndarray, n_keys: int, per_key: int, first: int = 0) -> np.ndarray:
    """_LinearAttentionVReorderBase._reorder_v_heads, from row `first` on."""
    rows = x[first:].reshape(n_keys, per_key, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x[first:].shape)
    return np.concatenate([x[:first], rows])


def of_memory(name: str, x: np.ndarray, c: Any, tile: bool) -> tuple[str, np.ndarray]:
    """Qwen3NextModel.modify_tensors, and for Qwen3.5 what its base class does before."""
    per_key = c.n_memories // c.n_memory_keys
    if tile and "linear_attn." in name and "linear_attn.norm" not in name:
        first = 2 * c.n_memory_keys * c.d_key if "qkv" in name or "conv1d" in name else 0
        turned = "out_proj" in name
        x = tiled(x.T if turned and x.ndim == 2 else x, c.n_memory_keys, per_key, first)
        x = x.T if turned and x.ndim == 2 else x
    if name.endswith("A_log"):
        x = -np.exp(x)
    elif name.endswith("dt_bias"):
        name = name.replace("dt_bias", "dt_proj.bias")
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        x = x + 1.0
    return name, x


def split_memory(name: str, x: np.ndarray, c: Any) -> Arrays:
    """Queries, keys and values of Qwen3-Next in one tensor, gates in another."""
    per_key = c.n_memories // c.n_memory_keys * c.d_value
    by_heads = x.reshape(c.n_memory_keys, 2 * c.d_key + 2 * per_key, -1)
    parts = np.split(by_heads, np.cumsum([c.d_key, c.d_key, per_key]), axis=1)
    q, k, v, z = (part.reshape(-1, x.shape[1]) for part in parts)
    block = name.split(".")[2]
    return {f"blk.{block}.attn_qkv.weight": np.concatenate([q, k, v]), f"blk.{block}.attn_gate.weight": z}


def split_latent(name: str, x: np.ndarray, c: Any) -> Arrays:
    """DeepseekV2Model.modify_tensors: the map of keys for each head and transposed, that of values for each head."""
    keys, values = np.split(x.reshape(c.n_heads, c.d_head + c.d_value, -1), [c.d_head], axis=1)
    block = name.split(".")[2]
    return {f"blk.{block}.attn_k_b.weight": keys.swapaxes(1, 2), f"blk.{block}.attn_v_b.weight": values}


def of_states(place: str, x: np.ndarray, c: Any) -> Arrays:
    """Of Mamba2Model.modify_tensors and GraniteMoeModel.modify_tensors what changes more than a name."""
    block = f"blk.{place.split('.')[2]}" if "layers" in place else ""
    ends = "_exps" if "block_sparse_moe" in place else "_shexp" if c.n_experts else ""
    if "input_linear" in place:
        gate, up = np.split(x, 2, axis=-2)
        return {f"{block}.ffn_gate{ends}.weight": gate, f"{block}.ffn_up{ends}.weight": up}
    if "shared_mlp.output_linear" in place:
        return {f"{block}.ffn_down{ends}.weight": x}
    if place.endswith("A_log"):
        return {f"{block}.ssm_a": -np.exp(x)[:, None]}
    if place.endswith("mamba.D"):
        return {f"{block}.ssm_d": x[:, None]}
    if place.endswith("mamba.norm.weight"):
        return {f"{block}.ssm_norm.weight": x.reshape(c.n_groups, -1)}
    return {f"{block}.ssm_dt.bias": x} if place.endswith("dt_bias") else {}


def of_channels(place: str, x: np.ndarray) -> Arrays:
    """KimiLinearModel.modify_tensors: convolutions and rates have four axes in a file."""
    block = f"blk.{place.split('.')[2]}"
    if place.endswith("A_log"):
        return {f"{block}.ssm_a": np.ascontiguousarray(-np.exp(x), np.float32)}
    if place.endswith("dt_bias"):
        return {f"{block}.ssm_dt.bias": x}
    return {f"{block}.ssm_conv1d_{place.split('.')[4][0]}.weight": x.reshape(1, len(x), 1, -1)}


def stacked(folder: Arrays) -> Arrays:
    """The experts of a layer in one tensor for each map."""
    found: dict[str, list[np.ndarray]] = {}
    for name, x in folder.items():
        expert = re.fullmatch(r"model\.layers\.(\d+)\.(mlp|block_sparse_moe)\.experts\.\d+\.(\w+)\.weight", name)
        if expert is None:
            found[name] = [x]
        elif expert[2] == "mlp":
            found.setdefault(f"model.layers.{expert[1]}.mlp.experts.{expert[3]}.weight", []).append(x)
        else:
            found.setdefault(f"layers.{expert[1]}.feed_forward.experts.{expert[3]}.weight", []).append(x)
    return {name: np.stack(parts) if "experts" in name else parts[0] for name, parts in found.items()}


def converted(model: LanguageModel, name: str, split: bool) -> Arrays:
    """The tensors of a family's model in a file. split: as later versions of the program do."""
    c, kind = model.config, architecture_of(name)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[ARCHITECTURES.get(name, kind.upper())], c.n_layers)
    found: Arrays = {}
    folder = {place.theirs: place.read() for place in FAMILIES[name].layout(model, "model.").places}
    for place, x in stacked(folder).items():
        theirs = place
        if name == "granitemoehybrid" and (own := of_states(place, x, c)):
            found |= {key: np.ascontiguousarray(part, np.float32) for key, part in own.items()}
            continue
        if name in ("mixtral", "granite", "granitemoehybrid") and (
            heads := re.search(r"self_attn\.([qk])_proj", place)
        ):
            x = permute(x, c.n_heads if heads[1] == "q" else c.n_key_heads)
        if name in ("qwen3_5_text", "qwen3_next"):
            theirs, x = of_memory(place, x, c, name == "qwen3_5_text")
        if split and "in_proj_qkvz" in place:
            found |= split_memory(place, x, c)
            continue
        if split and "kv_b_proj" in place:
            found |= split_latent(place, x, c)
            continue
        if name == "kimi_linear" and place.endswith(("_conv1d.weight", "A_log", "dt_bias")):
            found |= of_channels(place, x)
            continue
        theirs = theirs.replace("e_score_correction_bias", "e_score_correction.bias")
        known = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        assert known is not None, theirs
        found[known] = x.squeeze() if 1 in x.shape else x
    return {theirs: np.ascontiguousarray(x, np.float32) for theirs, x in found.items()}


def experts(c: Any, *more: str) -> dict[str, Any]:
    found = {"expert_count": c.n_experts, "expert_used_count": c.k}
    widths = {"expert_feed_forward_length": "d_expert", "expert_shared_feed_forward_length": "d_shared"}
    return found | {theirs: getattr(c, ours) for theirs, ours in widths.items() if theirs in more}


def memory(c: Any) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": c.kernel, "ssm.state_size": c.d_key, "ssm.group_count": c.n_memory_keys,
        "ssm.time_step_rank": c.n_memories, "ssm.inner_size": c.d_value * c.n_memories,
        "full_attention_interval": c.full[0] + 1, "rope.dimension_count": c.d_rotary,
    }  # fmt: skip


def states(c: Any) -> dict[str, Any]:
    heads = [c.n_key_heads if i in c.full else 0 for i in range(c.n_layers)]
    found = {"expert_count": c.n_experts, "expert_used_count": c.k} if c.n_experts else {}
    return found | {
        "attention.head_count_kv": heads, "ssm.conv_kernel": c.kernel, "ssm.state_size": c.d_state,
        "ssm.group_count": c.n_groups, "ssm.inner_size": c.expand * c.d_model, "ssm.time_step_rank": c.n_states,
        "expert_shared_feed_forward_length": c.d_shared, "rope.scaling.finetuned": c.turned,
    }  # fmt: skip


def latent(c: Any, split: bool) -> dict[str, Any]:
    width = c.d_head + c.d_rotary
    lengths = {"key_length": c.d_latent + c.d_rotary, "value_length": c.d_latent, "key_length_mla": width}
    lengths |= {"value_length_mla": c.d_value, "head_count_kv": 1}
    before = {"key_length": width, "value_length": c.d_value, "head_count_kv": c.n_heads}
    scaled = c.scaled_angles or {}
    of_angles = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": scaled.get("factor"),
        "rope.scaling.original_context_length": scaled.get("trained"),
        "rope.scaling.yarn_log_multiplier": 0.1 * c.sharpness,
    }  # fmt: skip
    return {f"attention.{name}": value for name, value in (lengths if split else before).items()} | experts(
        c, "expert_feed_forward_length"
    ) | {
        "attention.q_lora_rank": c.d_query, "attention.kv_lora_rank": c.d_latent, "rope.dimension_count": c.d_rotary,
        "leading_dense_block_count": c.n_dense, "expert_shared_count": c.n_shared,
        "expert_weights_scale": c.gate_factor, "expert_group_count": c.n_groups, "expert_group_used_count": c.groups,
    } | (of_angles if scaled else {})  # fmt: skip


def metadata(name: str, c: Any, split: bool) -> dict[str, Any]:
    """What set_gguf_parameters writes beside what it writes for all."""
    if name.startswith("deepseek"):
        of_v3 = {"expert_gating_func": 2, "expert_weights_norm": c.gates_sum} if "v3" in name else {}
        return latent(c, split) | of_v3
    if name == "kimi_linear":
        heads = [int(i in c.full) for i in range(c.n_layers)]
        return latent(c, split) | {
            "attention.head_count_kv": heads, "attention.value_length": None, "ssm.conv_kernel": c.kernel,
            "kda.head_dim": c.d_memory, "expert_gating_func": 2, "rope.dimension_count": c.d_rotary,
        }  # fmt: skip
    found: dict[str, Any] = {"attention.key_length": c.d_head, "attention.value_length": c.d_head}
    found |= {"rope.dimension_count": c.d_head}
    if name == "olmo3":
        found |= {"attention.sliding_window": c.window, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
        found |= {"rope.scaling.original_context_length": 8, "rope.scaling.yarn_attn_factor": 1.25}
        found |= {"attention.sliding_window_pattern": [not c.is_full(i) for i in range(c.n_layers)]}
    elif name.startswith("granite"):
        found |= {"attention.scale": c.score_factor, "embedding_scale": c.embedding_factor}
        found |= {"residual_scale": c.update_factor, "logit_scale": c.logit_divisor}
        found |= states(c) if "hybrid" in name else {}
    elif name == "lfm2":
        heads = [c.n_key_heads if i in c.full else 0 for i in range(c.n_layers)]
        found |= {"attention.head_count_kv": heads, "shortconv.l_cache": c.kernel}
    elif name == "qwen3_5_text":
        found |= memory(c) | {"rope.dimension_sections": [11, 11, 10, 0]}
    elif name == "qwen3_next":
        found |= memory(c) | experts(c, "expert_feed_forward_length", "expert_shared_feed_forward_length")
    elif name not in ("olmo2", "seed_oss"):
        found |= experts(c, *(["expert_feed_forward_length"] if name == "qwen3_moe" else []))
    return found


YARN = {
    "kind": "yarn", "factor": 4.0, "trained": 8, "fast": 32.0, "slow": 1.0, "truncate": True, "attention": 1.25,
}  # fmt: skip
EXACT = {"embedding_factor": 3.0, "score_factor": 0.5, "update_factor": 0.25, "logit_divisor": 1.75}
HYBRID: dict[str, Any] = {"n_layers": 4, "full": (1, 3)}  # as full_attention_interval says it


def written(path: Path, name: str, changes: dict[str, Any], split: bool = True) -> LanguageModel:
    """A small model of a family, written to a file."""
    config = dataclasses.replace(FAMILIES[name].example()[0], norm_eps=2.0**-10, **changes)
    model = ordinary(config.build(), np.random.default_rng(0)).to(dtype="float32")
    own = {f"llama__{key.replace('.', '__')}": x for key, x in metadata(name, config, split).items() if x is not None}
    tensors, kind = converted(model, name, split), architecture_of(name)
    write_gguf(path, model, architecture=kind, tensors=tensors, **own)
    return model


@pytest.mark.few(5)
@pytest.mark.parametrize("name, changes, split", [
    ("mixtral", {"window": None}, True), ("qwen3_moe", {"window": None, "dense": ()}, True), ("olmoe", {}, True),
    ("olmo2", {}, True), ("olmo3", {"scaled_angles": YARN, "local_base": 500.0}, True), ("granite", EXACT, True),
    ("granitemoehybrid", EXACT | {"k": 2}, True), ("granitemoehybrid", EXACT | {"n_experts": 0}, True),
    ("lfm2", {}, True), ("qwen3_5_text", HYBRID, True), ("qwen3_next", HYBRID | {"dense": ()}, True),
    ("qwen3_next", HYBRID | {"dense": ()}, False), ("deepseek_v2", {}, True), ("deepseek_v2", {"d_query": None}, False),
    ("deepseek_v3", {"sharpness": 0.75, "scaled_angles": YARN | {"attention": 1.0}}, True),
    ("kimi_linear", {}, True), ("seed_oss", {"qkv_bias": True}, True),
])  # fmt: skip
def test_a_family_opens_from_a_file_as_from_a_folder(tmp_path: Path, name: str, changes: Any, split: bool) -> None:
    model = written(tmp_path / "model.gguf", name, changes, split)
    found = from_pretrained(tmp_path / "model.gguf")
    assert found.config == model.config
    for key, value in found.state().items():
        np.testing.assert_allclose(value, model.state()[key], rtol=0, atol=5e-7, err_msg=key)
