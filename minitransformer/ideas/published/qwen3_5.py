"""Qwen3.5, the part that reads text: Qwen Team 2026. Three of four layers keep a memory, and the fourth attends.

The memory is that of Gated DeltaNet (Yang, Kautz and Hatamizadeh 2024). Attention has norms of queries and keys,
rotates a quarter of each head, and lets its output through a gate; all norms but the memory's multiply by 1 + γ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Rng
from ...core.layers import Module, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.gated import GatedFeedForward
from ..after.gated_delta_net import GatedDeltaNet
from ..after.output_gate import gated_attention
from ..after.qk_norm import qk_norm
from ..after.sandwich import OffsetRMSNorm
from . import gemma, llama
from .decoder import decoder_of
from .family import BODY, WORDS, Change, Family, Found, InGguf, Stored, Whole
from .fields import Fields
from .layer_kinds import full_layers, two_kinds


@dataclass(frozen=True)
class Qwen35Config(llama.LlamaConfig):
    """Sizes of a Qwen3.5. n_heads, n_key_heads, d_head: of attention; bias: of its maps. full: the layers that attend.

    n_memories: memories of a layer, which share n_memory_keys heads of keys; d_key, d_value: their sizes; kernel: of
    the convolution.
    """

    full: tuple[int, ...] | None = None  # by default every fourth
    n_memories: int = 32
    n_memory_keys: int = 16
    d_key: int = 128
    d_value: int = 128
    kernel: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        fourth = tuple(range(3, self.n_layers, 4))
        object.__setattr__(self, "full", fourth if self.full is None else self.full)

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of Qwen3.5."""

        def attention(i: int) -> Module:
            if i not in (self.full or ()):
                sizes = self.n_memories, self.n_memory_keys, self.d_key, self.d_value, self.kernel
                return GatedDeltaNet(self.d_model, *sizes, self.norm_eps, self.activation, rng=rng)
            heads: Any = {"n_heads": self.n_heads, "n_key_heads": self.n_key_heads, "d_head": self.d_head}
            turn = qk_norm(self.d_head or 1, self.norm_eps, then=self.turn(), kind=OffsetRMSNorm)
            mix = ScaledDotProduct(dropout=self.attention_dropout)
            return gated_attention(self.d_model, **heads, bias=self.bias, rng=rng, mix=mix, turn=turn)

        return decoder_of(
            self,
            rng,
            norm=lambda: OffsetRMSNorm(self.d_model, self.norm_eps),
            attention=attention,
            feed_forward=lambda i: self.feed_forward(i, rng),
        )

    def feed_forward(self, i: int, rng: Rng) -> Module:
        """The feed-forward network of layer i."""
        return GatedFeedForward(self.d_model, self.d_ff, self.activation, bias=False, rng=rng)


FIELDS = """
linear_num_value_heads  size  n_memories     32
linear_num_key_heads    size  n_memory_keys  16
linear_key_head_dim     size  d_key          128
linear_value_head_dim   size  d_value        128
linear_conv_kernel_dim  size  kernel         4
attention_bias          flag  bias           false
"""
OTHER = "linear_attention"


def as_today(fields: Fields) -> Fields:
    """Without the share of each axis of an image in the angles: a text has the same position along all of them."""
    angles = fields.get("rope_parameters")
    if not isinstance(angles, dict):
        return fields
    kept = {name: value for name, value in angles.items() if name not in ("mrope_section", "mrope_interleaved")}
    return fields.instead(rope_parameters=kept)


def ours(fields: Fields, found: Found, *_: Any) -> Found:
    """The layers that attend."""
    every = fields.size("full_attention_interval", 4)
    usual = range(every - 1, found["n_layers"], every)
    return {"full": full_layers(fields, found["n_layers"], OTHER, usual)}


def theirs(config: Any) -> Found:
    """The kinds of layers."""
    return {"layer_types": two_kinds(config.n_layers, OTHER, config.full or ())}


PARTIAL: dict[str, Any] = {
    "as_today": as_today,
    "base": (lambda fields: llama.sizes(fields, partial=True), llama.written_sizes),
}
NAMES = f"""{llama.NAMES}
layers.*.self_attn.q_proj                  T     stack.layers.*.self_attention.sublayer.sublayer.query.whole
layers.*.self_attn.(k,v)_proj              T     stack.layers.*.self_attention.sublayer.sublayer.(key,value)
layers.*.self_attn.o_proj                  T     stack.layers.*.self_attention.sublayer.last
layers.*.self_attn.(q,k)_norm              =     stack.layers.*.self_attention.sublayer.sublayer.turn_(query,key).norm
layers.*.linear_attn.in_proj_qkv           T     stack.layers.*.self_attention.sublayer.query|key|value
layers.*.linear_attn.in_proj_(z,b,a)       T     stack.layers.*.self_attention.sublayer.(gate,rate,step)
layers.*.linear_attn.conv1d.weight         taps  stack.layers.*.self_attention.sublayer.convolution.query|key|value
layers.*.linear_attn.(A_log,dt_bias,norm)  =     stack.layers.*.self_attention.sublayer.(log_rate,shift,norm)
layers.*.linear_attn.out_proj              T     stack.layers.*.self_attention.sublayer.output
"""

OF_BOTH_IN_GGUF = f"""{gemma.GGUF}
blk.*.attn_output          =           layers.*.self_attn.o_proj
blk.*.attn_(qkv,gate)      tiled       layers.*.linear_attn.in_proj_(qkv,z)
blk.*.ssm_conv1d           tiled+taps  layers.*.linear_attn.conv1d
blk.*.ssm_a                tiled+log   layers.*.linear_attn.A_log
blk.*.ssm_dt.bias          tiled       layers.*.linear_attn.dt_bias
blk.*.ssm_norm             =           layers.*.linear_attn.norm
blk.*.post_attention_norm  plus1       layers.*.post_attention_layernorm
blk.*.ssm_out              columns     layers.*.linear_attn.out_proj
"""
GGUF = f"""{OF_BOTH_IN_GGUF}
blk.*.ssm_(beta,alpha)  tiled  layers.*.linear_attn.in_proj_(b,a)
"""


def _grouped(numbers: np.ndarray, config: Mapping[str, Any], name: str) -> np.ndarray:
    """Rows of values, by heads of keys. llama.cpp has the first of each head of keys, then the second of each, ..."""
    n_keys = config["linear_num_key_heads"]
    first = 2 * n_keys * config["linear_key_head_dim"] if "qkv" in name or "conv1d" in name else 0
    values = numbers[first:].reshape(config["linear_num_value_heads"] // n_keys, n_keys, -1, *numbers.shape[1:])
    return np.concatenate([numbers[:first], values.swapaxes(0, 1).reshape(numbers[first:].shape)])


_CHANGES: dict[str, Change] = {
    "tiled": _grouped,
    "columns": lambda numbers, config, name: _grouped(numbers.T, config, name).T,
}


MEMORY_IN_GGUF = """
linear_num_value_heads  size  ssm.time_step_rank
linear_num_key_heads    size  ssm.group_count
linear_key_head_dim     size  ssm.state_size
linear_conv_kernel_dim  size  ssm.conv_kernel
"""


def memory_in_gguf(kind: str) -> Callable[[Fields, Stored, Found], Found]:
    """The width of a memory's values, and the kinds of layers. kind: of the file."""

    def memory(fields: Fields, stored: Stored, config: Found) -> Found:
        width = fields.size(f"{kind}.ssm.inner_size") // fields.size(f"{kind}.ssm.time_step_rank")
        every, n_layers = fields.size(f"{kind}.full_attention_interval", 4), config["num_hidden_layers"]
        full = range(every - 1, n_layers, every)
        return {"linear_value_head_dim": width, "layer_types": two_kinds(n_layers, OTHER, full)}

    return memory


SMALL = llama.SMALL | {
    "head_dim": 8, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 5,
    "linear_conv_kernel_dim": 3, "rms_norm_eps": 1e-2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25},
}  # fmt: skip

FAMILY = Family(
    "qwen3_5_text", "model", Qwen35Config, {"Qwen3_5TextModel": BODY, "Qwen3_5ForCausalLM": WORDS}, FIELDS, NAMES,
    **PARTIAL,
    usual={"num_key_value_heads": 4, "head_dim": 256, "partial_rotary_factor": 0.25}, more_ours=ours,
    more_theirs=theirs,
    adds="a memory by the gated delta rule in three of four layers; attention with a gate, a quarter of it rotated",
    small=SMALL,
    for_training=lambda config: "mtp.*",
    whole=Whole("qwen3_5", "Qwen3_5ForConditionalGeneration", "model.visual.* visual.*"),
    in_gguf=InGguf(
        GGUF, MEMORY_IN_GGUF, "qwen35", memory_in_gguf("qwen35"), changes=_CHANGES,
        ignored="rope.dimension_sections",  # a text has the same position along all axes of an image
    ),
    ignored="full_attention_interval mtp_*",
)  # fmt: skip
