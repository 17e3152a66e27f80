"""Models of ours in .gguf files, written by the library `gguf`.

Names come from that library; what else changes is written out as llama.cpp's conversion/*.py does it.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.models import LanguageModel

Arrays = dict[str, np.ndarray]
IDS = np.array([[3, 1, 4, 1, 5]])
SIZES = {
    "max_length": 16, "d_model": 64, "n_heads": 4, "d_ff": 96, "n_layers": 2, "n_key_heads": 2,
    "tie_output": True, "rotary_base": 5000.0,
}  # fmt: skip


def llama(**changes: Any) -> LanguageModel:
    model = LanguageModel(LlamaConfig(11, **SIZES | changes), np.random.default_rng(0))
    for _, parameter in model.parameters():
        parameter.value[...] = np.random.default_rng(parameter.value.size).normal(0.0, 0.5, parameter.value.shape)
    return model


def permute(weights: np.ndarray, n_heads: int) -> np.ndarray:
    """As llama.cpp does: convert_hf_to_gguf.py, LlamaModel.permute."""
    halves = weights.reshape(n_heads, 2, weights.shape[0] // n_heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def architecture_of(name: str) -> str:
    """Their name of a family of ours."""
    return FAMILIES[name].in_gguf.architecture or name  # type: ignore[union-attr]


def write_gguf(
    path: Path,
    model: LanguageModel,
    quantized: gguf.GGMLQuantizationType | None = None,
    architecture: str = "llama",
    tensors: dict[str, np.ndarray] | None = None,
    at_most: int = 0,
    **more: Any,
) -> Path:
    """Write a model with their library. quantized: of the matrices. more: further metadata; None leaves one out.

    at_most: how many tensors each file has.
    """
    config = model.config
    metadata: dict[str, Any] = {
        "llama.vocab_size": config.vocabulary,
        "llama.block_count": config.n_layers,
        "llama.context_length": config.max_length,
        "llama.embedding_length": config.d_model,
        "llama.feed_forward_length": config.d_ff,
        "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": getattr(config, "n_key_heads", None),
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.freq_base": config.rotary_base,
        "llama.rope.dimension_count": config.d_model // config.n_heads,
    } | {name.replace("__", "."): value for name, value in more.items()}
    metadata = {name.replace("llama.", f"{architecture}.", 1): value for name, value in metadata.items()}
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=at_most)
    for name, value in metadata.items():
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case str():
                writer.add_string(name, value)
            case list():
                writer.add_array(name, value)
    for name, x in (converted(model) if tensors is None else tensors).items():
        if quantized is not None and x.ndim > 1:
            writer.add_tensor(name, gguf.quantize(x, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


ARCHITECTURES = {
    "mixtral": "LLAMA",
    "olmo3": "OLMO2",
    "granitemoehybrid": "GRANITE_HYBRID",
    "kimi_linear": "KIMI_LINEAR",
}  # where not the file's name in capitals
PERMUTED = ("llama", "smollm3", "mixtral", "granite", "granitemoehybrid")


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


def converted(model: LanguageModel, name: str = "llama", split: bool = True) -> Arrays:
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
        if name in PERMUTED and (heads := re.search(r"self_attn\.([qk])_proj", place)):
            x = permute(x, c.n_heads if heads[1] == "q" else c.n_key_heads)
        if "gemma" in name and "norm" in place:
            x = x + 1.0
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
    scaled = getattr(c, "scaled_angles", None) or {}
    if scaled.get("kind") == "longrope":
        found |= {f"rope_factors_{at}.weight": np.array(scaled[at]) for at in ("short", "long")}
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
    found |= {"rope.dimension_count": getattr(c, "d_rotary", None) or c.d_head}
    if name in ("gemma2", "gemma3_text"):
        found |= {"attn_logit_softcapping": getattr(c, "score_cap", None), "final_logit_softcapping": c.logit_cap}
        found |= {"attention.sliding_window": c.window, "rope.freq_base_swa": getattr(c, "local_base", None)}
        scaled = getattr(c, "scaled_angles", None) or {}
        found |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaled["factor"]} if scaled else {}
    elif name == "phi3" and c.scaled_angles:
        found |= {"rope.scaling.type": "longrope", "attention.sliding_window": c.window or 0}
        found |= {"rope.scaling.original_context_length": c.scaled_angles["trained"]}
        found |= {"rope.scaling.attn_factor": c.scaled_angles["attention"]}
    elif name == "olmo3":
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
    elif hasattr(c, "k"):
        found |= experts(c, *(["expert_feed_forward_length"] if name == "qwen3_moe" else []))
    return found


def written(
    path: Path,
    name: str,
    changes: dict[str, Any],
    split: bool = True,
    quantized: gguf.GGMLQuantizationType | None = None,
) -> LanguageModel:
    """A small model of a family, written to a file."""
    config = dataclasses.replace(FAMILIES[name].example()[0], **{"norm_eps": 2.0**-10, **changes})
    model = ordinary(config.build(), np.random.default_rng(0)).to(dtype="float32")
    own = {f"llama__{key.replace('.', '__')}": x for key, x in metadata(name, config, split).items() if x is not None}
    tensors, kind = converted(model, name, split), architecture_of(name)
    write_gguf(path, model, quantized, architecture=kind, tensors=tensors, **own)
    return model
