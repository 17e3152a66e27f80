"""Llama in a GGUF file: its metadata as a config.json, and its tensors with Llama's names and order of rows.

llama.cpp rotates neighbouring numbers of a head; the models in Llama's folders rotate each number of the first half
with one of the second. So the program that writes GGUF (convert_hf_to_gguf.py) moves the rows of each head's queries
and keys:

    their row  0  1  2  3    ...
    our row    0  h  1  h+1  ...        where h is half the width of a head
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .fields import Fields
from .gguf import File, Packed

_SIZES = {
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
}
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True)
class _Moved(Packed):
    """A tensor of queries or keys; `read` puts its rows back in order. n_heads: the number of its heads."""

    n_heads: int = 1

    def read(self) -> np.ndarray:
        """Its numbers, in float32."""
        stored = super().read()
        pairs = stored.reshape(self.n_heads, -1, 2, *stored.shape[1:])
        return pairs.swapaxes(1, 2).reshape(stored.shape)


def document(file: File) -> dict[str, Any]:
    """The config.json of a file's metadata. Raises ValueError for a model that is not a plain Llama."""
    found = file.metadata
    kind = found.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"general.architecture must be 'llama' in a .gguf file, got {str(kind)[:60]!r}")
    if found.get("llama.expert_count"):
        raise ValueError("llama.expert_count: a mixture of experts is not supported")
    fields = Fields(found)
    fields.only(**{"llama.rope.scaling.type": "none"})
    if found.get("split.count", 0) not in (0, 1):
        raise ValueError("split.count: a model in several .gguf files is not supported; join them first")
    config: dict[str, Any] = {theirs: fields.size(f"llama.{name}") for theirs, name in _SIZES.items()}
    if config["num_attention_heads"] > config["hidden_size"]:
        raise ValueError("llama.attention.head_count must be at most llama.embedding_length")
    n_heads, width = config["num_attention_heads"], config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = fields.size("llama.attention.head_count_kv", n_heads)
    config["head_dim"] = fields.size("llama.attention.key_length", width)
    if fields.size("llama.rope.dimension_count", config["head_dim"]) != config["head_dim"]:
        raise ValueError(f"llama.rope.dimension_count must be the width {config['head_dim']} of a head")
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise ValueError("token_embd.weight must be the matrix (vocabulary, width) of tokens")
    return config | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "rope_theta": fields.positive("llama.rope.freq_base", 10000.0),
        "rms_norm_eps": fields.positive("llama.attention.layer_norm_rms_epsilon"),
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
    }


def tensors(file: File, config: Mapping[str, Any]) -> dict[str, Packed]:
    """The tensors of a file under Llama's names. config: its config.json. Names unknown to Llama stay as they are."""
    found: dict[str, Packed] = {}
    for name, packed in file.tensors.items():
        place, leaf = name.rpartition(".")[::2]
        layer, part = place.rpartition(".")[::2]
        theirs = f"{_NAMES[part]}.{leaf}" if part in _NAMES else name
        if layer.startswith("blk.") and part in _NAMES:
            theirs = f"model.layers.{layer.removeprefix('blk.')}.{theirs}"
        found[theirs] = dataclasses.replace(packed, name=theirs)
        if part in ("attn_q", "attn_k"):
            n_heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            if packed.shape[0] % (2 * n_heads):
                raise ValueError(f"{name} has {packed.shape[0]} rows, not {n_heads} heads of even width")
            found[theirs] = _Moved(**vars(found[theirs]), n_heads=n_heads)
    if len(found) < len(file.tensors):
        raise ValueError("two tensors have names for the same tensor of Llama")
    return found
