"""Phi-3: Abdin et al. 2024, "Phi-3 Technical Report", section 2. A Llama for long texts, with fused maps in its file.

LongRoPE's two lists of factors divide the angles, and Phi-4-mini rotates three quarters of each head. Queries, keys and
values lie in one matrix of the file, and so do the gate and the inner map.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import llama
from .family import WRITERS, Family, InGguf, classes


@dataclass(frozen=True)
class Phi3Config(llama.LlamaConfig):
    """Sizes of a Phi-3: those of a Llama."""

    norm_eps: float = 1e-5


NAMES = f"""{llama.NAMES}
layers.*.self_attn.qkv_proj  T  stack.layers.*.self_attention.sublayer.query|key|value
layers.*.mlp.gate_up_proj    T  stack.layers.*.feed_forward.sublayer.gate|inner
"""
FAMILY = Family(
    "phi3", "model", Phi3Config, classes("Phi3", WRITERS), llama.WINDOW, NAMES,
    base=(lambda fields: llama.sizes(fields, partial=True), llama.written_sizes),
    usual={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
    only={"attention_bias": False},
    more_theirs=lambda config: {  # it counts more than the one inside
        "original_max_position_embeddings": (config.scaled_angles or {}).get("trained", config.max_length)
    },
    adds="as Llama; rotary angles divided by factors (LongRoPE), in a part of each head",
    in_gguf=InGguf(  # 0 is no window
        more=lambda fields, stored, config: {"sliding_window": fields.get("phi3.attention.sliding_window") or None},
    ),
    small={name: value for name, value in llama.SMALL.items() if name != "head_dim"} | {
        "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1,
        "original_max_position_embeddings": 24, "partial_rotary_factor": 0.5,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0],
        },
    },
)  # fmt: skip
