"""Llama: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2; and four others.

Llama 3 (Grattafiori et al. 2024, section 3.2) shares heads of keys and has a larger base of rotary angles, which 3.1
scales. Mistral (Jiang et al. 2023, section 2) attends within a window, and Qwen2 (Yang et al. 2024, section 2.2) adds
biases to queries, keys and values. Ministral is a Mistral, and Seed-OSS a Qwen2, under a name of its own. Everything
else is the same, including the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import ScaledDotProduct
from ...core.models.language_model import LanguageModel, LanguageModelParts
from ..after.scaled_angles import scaled_turn
from ..after.scaled_angles.angles import follow_length
from . import angles
from .decoder import DecoderSizes, decoder, within
from .family import READERS, WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written
from .heads import ANSWERS
from .rereading import RereadingLanguageModel

FIELDS = """
vocab_size                 size        vocabulary
hidden_size                size        d_model
num_attention_heads        size        n_heads
intermediate_size          size        d_ff
num_hidden_layers          size        n_layers
max_position_embeddings    size        max_length           2048
attention_dropout          rate        attention_dropout
hidden_act                 activation  activation           "silu"
rms_norm_eps               positive    norm_eps             1e-6
num_key_value_heads        size        n_key_heads          n_heads
tie_word_embeddings        flag        tie_output           false
"""


@dataclass(frozen=True)
class LlamaConfig(DecoderSizes):
    """Sizes of a Llama, Mistral or Qwen2. n_key_heads and d_head: n_heads and d_model / n_heads unless given."""

    n_key_heads: int | None = None  # the query heads share them
    d_head: int | None = None
    qkv_bias: bool | None = None  # for queries, keys and values; None: like `bias`
    d_rotary: int | None = None  # how many numbers of each head are rotated; None: all
    window: int | None = None  # how many tokens attention sees, including the current one

    def __post_init__(self) -> None:
        super().__post_init__()
        meant = {"n_key_heads": self.n_heads, "d_head": self.d_model // max(1, self.n_heads), "qkv_bias": self.bias}
        for name, value in meant.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def build(self, rng: np.random.Generator | None = None) -> LanguageModel:
        """The model of these sizes, untrained."""
        return (RereadingLanguageModel if follow_length(self.scaled_angles) else LanguageModel)(self, rng)

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i."""
        return scaled_turn(self.rotary_base, self.scaled_angles, self.d_rotary)

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values."""
        return within(self.window, ScaledDotProduct(dropout=self.attention_dropout))

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Llama."""
        return decoder(self, rng)


def sizes(fields: Fields, head: str, partial: bool = False) -> dict[str, Any]:
    """What the config.json of every family like Llama has, under our names. partial: see `angles.read`."""
    found = fields.read(FIELDS, head)
    width = fields.size("head_dim", max(1, found["d_model"] // found["n_heads"]))
    return {**found, "d_head": width, **angles.read(fields, width, partial)}


def written_sizes(config: LlamaConfig) -> dict[str, Any]:
    """The fields of a config.json that every family like Llama has."""
    return {**written(config, FIELDS), "head_dim": config.d_head, **angles.written(config)}


def llama_ours(fields: Fields, head: str, stored: Stored) -> LlamaConfig:
    """The config of Llama's config.json."""
    fields.only(pretraining_tp=1, rope_interleaved=False)
    bias = fields.flag("attention_bias", False)
    if bias != fields.flag("mlp_bias", False):
        raise ValueError("attention_bias and mlp_bias must be equal: here either all maps have biases or none do")
    return LlamaConfig(**sizes(fields, head), bias=bias)


def llama_theirs(config: LlamaConfig) -> dict[str, Any]:
    """Llama's config.json."""
    return {**written_sizes(config), "attention_bias": config.bias, "mlp_bias": config.bias}


def mistral_ours(fields: Fields, head: str, stored: Stored) -> LlamaConfig:
    """The config of Mistral's config.json."""
    fields = fields.otherwise(num_key_value_heads=8, max_position_embeddings=131072, sliding_window=4096)
    return LlamaConfig(**sizes(fields, head), window=fields.size_or_none("sliding_window"))


def ministral_ours(fields: Fields, head: str, stored: Stored) -> LlamaConfig:
    """The config of Ministral's config.json, which lists the kinds of its layers."""
    config = mistral_ours(fields, head, stored)
    of_one_kind(fields, config.window)
    return config


def mistral_theirs(config: LlamaConfig) -> dict[str, Any]:
    """Mistral's config.json."""
    return {**written_sizes(config), "sliding_window": config.window}


def window_of_qwen(fields: Fields) -> int | None:
    """The window of all layers of a Qwen, if it has one."""
    fields.only(use_mrope=False)
    window, whole = fields.size_or_none("sliding_window"), fields.get("max_window_layers", 28)
    if not fields.flag("use_sliding_window", False):
        window = None
    if window is not None and whole != 0:
        raise ValueError("use_sliding_window needs max_window_layers 0: here all layers have the window")
    of_one_kind(fields, window)
    return window


def of_one_kind(fields: Fields, window: int | None) -> None:
    """Require that all layers have a window, or none has. A config without layer_types means this too."""
    kind = "full_attention" if window is None else "sliding_attention"
    fields.only(layer_types=[kind] * fields.size("num_hidden_layers"))


def seed_oss_ours(fields: Fields, head: str, stored: Stored) -> LlamaConfig:
    """The config of Seed-OSS's config.json."""
    fields = fields.otherwise(num_key_value_heads=8, head_dim=128, max_position_embeddings=524288)
    fields.only(pretraining_tp=1, mlp_bias=(bias := fields.flag("attention_out_bias", False)))
    return LlamaConfig(**sizes(fields, head), bias=bias, qkv_bias=fields.flag("attention_bias", True))


def seed_oss_theirs(config: LlamaConfig) -> dict[str, Any]:
    """Seed-OSS's config.json."""
    biases = {"attention_bias": config.qkv_bias, "attention_out_bias": config.bias, "mlp_bias": config.bias}
    return {**written_sizes(config), **biases}


def seed_oss_in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """Which maps have biases."""
    return {"attention_bias": "blk.0.attn_q.bias" in stored, "attention_out_bias": "blk.0.attn_output.bias" in stored}


def qwen2_ours(fields: Fields, head: str, stored: Stored) -> LlamaConfig:
    """The config of Qwen2's config.json."""
    return LlamaConfig(**sizes(fields, head), qkv_bias=True, window=window_of_qwen(fields))


def qwen2_theirs(config: LlamaConfig) -> dict[str, Any]:
    """Qwen2's config.json."""
    kind = "full_attention" if config.window is None else "sliding_attention"
    return {
        **written_sizes(config),
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": config.n_layers if config.window is None else 0,
        "layer_types": [kind] * config.n_layers,
    }


# llama.cpp, gguf-py/gguf/constants.py.
GGUF = """
token_embd         =  embed_tokens
output_norm        =  norm
output             =  /lm_head
blk.*.attn_norm    =  layers.*.input_layernorm
blk.*.attn_q       =  layers.*.self_attn.q_proj
blk.*.attn_k       =  layers.*.self_attn.k_proj
blk.*.attn_v       =  layers.*.self_attn.v_proj
blk.*.attn_output  =  layers.*.self_attn.o_proj
blk.*.ffn_norm     =  layers.*.post_attention_layernorm
blk.*.ffn_gate     =  layers.*.mlp.gate_proj
blk.*.ffn_up       =  layers.*.mlp.up_proj
blk.*.ffn_down     =  layers.*.mlp.down_proj
"""
PAIRED_GGUF = re.sub("(attn_[qk] +)=", r"\1halves", GGUF)


def biases_in_gguf(fields: Fields, stored: Stored, config: Any) -> dict[str, Any]:
    """Which maps have biases: only the tensors show it."""
    found = {"attention_bias": "blk.0.attn_output.bias", "mlp_bias": "blk.0.ffn_up.bias"}
    return {field: name in stored for field, name in found.items()}


IGNORED = "is_llama_config max_sequence_length"
NAMES = """
embed_tokens                           =  tokens
layers.*.input_layernorm               =  stack.layers.*.self_attention.norm
layers.*.self_attn.q_proj              T  stack.layers.*.self_attention.sublayer.query
layers.*.self_attn.k_proj              T  stack.layers.*.self_attention.sublayer.key
layers.*.self_attn.v_proj              T  stack.layers.*.self_attention.sublayer.value
layers.*.self_attn.o_proj              T  stack.layers.*.self_attention.sublayer.output
layers.*.post_attention_layernorm      =  stack.layers.*.feed_forward.norm
layers.*.mlp.gate_proj                 T  stack.layers.*.feed_forward.sublayer.gate
layers.*.mlp.up_proj                   T  stack.layers.*.feed_forward.sublayer.inner
layers.*.mlp.down_proj                 T  stack.layers.*.feed_forward.sublayer.output
norm                                   =  stack.final_norm
layers.*.self_attn.rotary_emb.inv_freq -
/lm_head                               =  output
/lm_head                               ~  tokens
"""


SMALL = {
    "vocab_size": 13, "hidden_size": 12, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 8, "num_hidden_layers": 2, "max_position_embeddings": 32, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}  # fmt: skip
WINDOW_OF_QWEN = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
FAMILIES = (
    Family(
        "llama", "model", classes("Llama", WRITERS | READERS), llama_ours, llama_theirs, NAMES,
        recipe=LlamaConfig,
        adds="rotary positions, shared key heads, RMSNorm, gated feed-forward networks",
        small=SMALL,
        prefixes={ANSWERS: "transformer"},
        ignored=IGNORED,
        in_gguf=InGguf(PAIRED_GGUF, biases_in_gguf),
    ),
    Family(
        "mistral", "model", classes("Mistral", WRITERS | READERS), mistral_ours, mistral_theirs, NAMES,
        recipe=LlamaConfig,
        adds="as Llama; a window",
        small=SMALL | {"sliding_window": 3},
    ),
    Family(
        "ministral", "model", classes("Ministral", WRITERS | READERS), ministral_ours, mistral_theirs, NAMES,
        recipe=LlamaConfig,
        adds="as Mistral",
        small=SMALL | {"sliding_window": 3},
        prefixes={ANSWERS: "transformer"},
    ),
    Family(
        "seed_oss", "model", classes("SeedOss", WRITERS | READERS), seed_oss_ours, seed_oss_theirs, NAMES,
        recipe=LlamaConfig,
        adds="as Qwen2",
        small=SMALL | {"attention_bias": True},
        in_gguf=InGguf(GGUF.replace("TURNED", "=").replace("ffn_norm ", "post_attention_norm "), seed_oss_in_gguf),
        prefixes={ANSWERS: "transformer"},
    ),
    Family(
        "qwen2", "model", classes("Qwen2", WRITERS | READERS), qwen2_ours, qwen2_theirs, NAMES,
        recipe=LlamaConfig,
        adds="as Llama; biases of queries, keys and values",
        small=SMALL | WINDOW_OF_QWEN,
        prefixes={ANSWERS: "transformer"},
        in_gguf=InGguf(GGUF),
    ),
)  # fmt: skip
