"""Phi-3: Abdin et al. 2024, "Phi-3 Technical Report", section 2. A Llama for long texts, with fused maps in its file.

LongRoPE's two lists of factors divide the angles, and Phi-4-mini rotates three quarters of each head. Queries, keys and
values lie in one matrix of the file, and so do the gate and the inner map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import llama
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields


@dataclass(frozen=True)
class Phi3Config(llama.LlamaConfig):
    """Sizes of a Phi-3: those of a Llama."""

    norm_eps: float = 1e-5


_DEFAULTS = {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}


def ours(fields: Fields, head: str, stored: Stored) -> Phi3Config:
    """The config of Phi-3's config.json."""
    fields = fields.otherwise(**_DEFAULTS)
    fields.only(attention_bias=False)
    return Phi3Config(**llama.sizes(fields, head, partial=True), window=fields.size_or_none("sliding_window"))


def theirs(config: Phi3Config) -> dict[str, Any]:
    """Phi-3's config.json."""
    trained = (config.scaled_angles or {}).get("trained", config.max_length)
    sizes = {**llama.written_sizes(config), "sliding_window": config.window}
    return {**sizes, "original_max_position_embeddings": trained}  # theirs counts more than the one inside


NAMES = (
    llama.NAMES
    + """
layers.*.self_attn.qkv_proj            T  stack.layers.*.self_attention.sublayer.query|key|value
layers.*.mlp.gate_up_proj              T  stack.layers.*.feed_forward.sublayer.gate|inner
"""
)

GGUF = (
    llama.GGUF
    + """
blk.*.attn_qkv     =  layers.*.self_attn.qkv_proj
blk.*.ffn_up       =  layers.*.mlp.gate_up_proj
"""
)


def window_in_gguf(fields: Fields, stored: Stored, config: Any) -> dict[str, Any]:
    """The window; 0 is none."""
    return {"sliding_window": fields.get("phi3.attention.sliding_window") or None}


FAMILY = Family(
    "phi3", "model", classes("Phi3", WRITERS), ours, theirs, NAMES,
    recipe=Phi3Config,
    adds="as Llama; rotary angles divided by factors (LongRoPE), in a part of each head",
    in_gguf=InGguf(GGUF, window_in_gguf),
    small={name: value for name, value in llama.SMALL.items() if name != "head_dim"} | {
        "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1,
        "original_max_position_embeddings": 24, "partial_rotary_factor": 0.5,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0],
        },
    },
)  # fmt: skip
