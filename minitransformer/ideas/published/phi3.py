"""Phi-3: Abdin et al. 2024, "Phi-3 Technical Report", section 2. A Llama for long texts, with fused maps in its file.

LongRoPE's two lists of factors divide the angles, and Phi-4-mini rotates three quarters of each head. Queries, keys and
values lie in one matrix of the file, and so do the gate and the inner map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import llama
from .family import WRITERS, Family, Stored, classes
from .fields import Fields


@dataclass(frozen=True)
class Phi3Config(llama.LlamaConfig):
    """Sizes of a Phi-3: those of a Llama. trained: the length of its first training, before longer texts."""

    norm_eps: float = 1e-5
    trained: int = 4096


_DEFAULTS = {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}


def ours(fields: Fields, head: str, stored: Stored) -> Phi3Config:
    """The config of Phi-3's config.json."""
    fields = fields.otherwise(**_DEFAULTS)
    fields.only(attention_bias=False)
    sizes, trained = llama.sizes(fields, head, partial=True), fields.size("original_max_position_embeddings")
    return Phi3Config(**sizes, window=fields.size_or_none("sliding_window"), trained=trained)


def theirs(config: Phi3Config) -> dict[str, Any]:
    """Phi-3's config.json."""
    sizes = {**llama.written_sizes(config), "sliding_window": config.window}
    return {**sizes, "original_max_position_embeddings": config.trained}


NAMES = """
embed_tokens                           =  tokens
layers.*.input_layernorm               =  stack.layers.*.self_attention.norm
layers.*.self_attn.qkv_proj            T  stack.layers.*.self_attention.sublayer.query|key|value
layers.*.self_attn.o_proj              T  stack.layers.*.self_attention.sublayer.output
layers.*.post_attention_layernorm      =  stack.layers.*.feed_forward.norm
layers.*.mlp.gate_up_proj              T  stack.layers.*.feed_forward.sublayer.gate|inner
layers.*.mlp.down_proj                 T  stack.layers.*.feed_forward.sublayer.output
norm                                   =  stack.final_norm
/lm_head                               =  output
/lm_head                               ~  tokens
"""


FAMILY = Family(
    "phi3", "model", classes("Phi3", WRITERS), ours, theirs, NAMES,
    recipe=Phi3Config,
    adds="as Llama; rotary angles divided by factors (LongRoPE), in a part of each head; a window",
    small=llama.SMALL | {
        "head_dim": 8, "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1, "sliding_window": 6,
        "original_max_position_embeddings": 8, "partial_rotary_factor": 0.5,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0],
        },
    },
)  # fmt: skip
