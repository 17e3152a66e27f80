"""LFM2: Liquid AI 2025, "LFM2 Technical Report", section 2. Most layers mix three tokens, and a few attend.

In most layers a short convolution between two gates takes the place of attention. The layers that attend are Qwen3's:
shared heads of keys, norms of queries and keys of each head, rotary positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Module
from ...core.models.language_model import LanguageModelParts
from ..after.gated import GatedFeedForward
from ..after.gated_convolution import GatedConvolution
from ..after.qk_norm import qk_norm
from . import llama
from .decoder import decoder
from .family import BODY, WORDS, Family, InGguf, Stored
from .fields import Fields
from .layer_kinds import FULL, full_layers, two_kinds


@dataclass(frozen=True)
class Lfm2Config(llama.LlamaConfig):
    """Sizes of an LFM2. full: the layers that attend, by default all; kernel, conv_bias: of the convolutions."""

    norm_eps: float = 1e-5
    tie_output: bool = True
    full: tuple[int, ...] | None = None
    kernel: int = 3
    conv_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "full", tuple(range(self.n_layers)) if self.full is None else self.full)

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of LFM2."""

        def convolution(i: int) -> Module | None:
            return None if i in (self.full or ()) else GatedConvolution(self.d_model, self.kernel, self.conv_bias, rng)

        return decoder(
            self,
            rng,
            turn=lambda i: qk_norm(self.d_head or 1, self.norm_eps, then=self.turn(i)),
            other=convolution,
            feed_forward=lambda i: GatedFeedForward(self.d_model, self.d_ff, bias=False, rng=rng),
        )


def ours(fields: Fields, head: str, stored: Stored) -> Lfm2Config:
    """The config of LFM2's config.json."""
    width, eps = fields.size("block_ff_dim", fields.size("intermediate_size", 12288)), fields.positive("norm_eps", 1e-5)
    block, factor = fields.size("block_multiple_of", 256), fields.positive("block_ffn_dim_multiplier", 1.0)
    if fields.flag("block_auto_adjust_ff_dim", True):  # two thirds, times a factor, rounded up to whole blocks
        width = -(-int(factor * int(2 * width / 3)) // block) * block
    tied = fields.flag("tie_embedding", fields.flag("tie_word_embeddings", True))
    known = {"rms_norm_eps": eps, "intermediate_size": width, "tie_word_embeddings": tied}
    usual = {"num_key_value_heads": 8, "max_position_embeddings": 128000, "rope_theta": 1e6}
    found = llama.sizes(Fields({**usual, **fields.document, **known}, fields.asked), head)
    attending = fields.get("full_attn_idxs", range(found["n_layers"]))
    full = full_layers(fields, found["n_layers"], "conv", attending)
    found |= {"kernel": fields.size("conv_L_cache", 3), "conv_bias": fields.flag("conv_bias", False)}
    return Lfm2Config(**found, full=full)


def theirs(config: Lfm2Config) -> dict[str, Any]:
    """LFM2's config.json."""
    return {
        **llama.written_sizes(config),
        "norm_eps": config.norm_eps,
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": config.kernel,
        "conv_bias": config.conv_bias,
        "layer_types": two_kinds(config.n_layers, "conv", config.full or ()),
    }


NAMES = (
    llama.NAMES
    + """
layers.*.operator_norm         =     stack.layers.*.self_attention.norm
layers.*.self_attn.out_proj    T     stack.layers.*.self_attention.sublayer.output
layers.*.self_attn.q_layernorm =     stack.layers.*.self_attention.sublayer.turn_query.norm
layers.*.self_attn.k_layernorm =     stack.layers.*.self_attention.sublayer.turn_key.norm
layers.*.conv.in_proj          T     stack.layers.*.self_attention.sublayer.gate_in|gate_out|inner
layers.*.conv.conv.weight      taps  stack.layers.*.self_attention.sublayer.convolution.weight
layers.*.conv.conv.bias        =     stack.layers.*.self_attention.sublayer.convolution.bias
layers.*.conv.out_proj         T     stack.layers.*.self_attention.sublayer.last
layers.*.ffn_norm              =     stack.layers.*.feed_forward.norm
layers.*.feed_forward.w1       T     stack.layers.*.feed_forward.sublayer.gate
layers.*.feed_forward.w3       T     stack.layers.*.feed_forward.sublayer.inner
layers.*.feed_forward.w2       T     stack.layers.*.feed_forward.sublayer.output
embedding_norm                 =     stack.final_norm
"""
)

GGUF = (
    llama.GGUF
    + """
token_embd_norm          =     embedding_norm
blk.*.attn_norm          =     layers.*.operator_norm
blk.*.attn_output        =     layers.*.self_attn.out_proj
blk.*.attn_q_norm        =     layers.*.self_attn.q_layernorm
blk.*.attn_k_norm        =     layers.*.self_attn.k_layernorm
blk.*.shortconv.in_proj  =     layers.*.conv.in_proj
blk.*.shortconv.conv     taps  layers.*.conv.conv
blk.*.shortconv.out_proj =     layers.*.conv.out_proj
blk.*.ffn_norm           =     layers.*.ffn_norm
blk.*.ffn_gate           =     layers.*.feed_forward.w1
blk.*.ffn_up             =     layers.*.feed_forward.w3
blk.*.ffn_down           =     layers.*.feed_forward.w2
"""
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The convolutions: a layer without heads of keys has one. The width of the networks is the final one."""
    n_layers, heads = config["num_hidden_layers"], fields.get("lfm2.attention.head_count_kv")
    return {
        "norm_eps": config["rms_norm_eps"],
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": fields.size("lfm2.shortconv.l_cache"),
        "conv_bias": any(name.endswith("shortconv.in_proj.bias") for name in stored),
        "layer_types": [FULL if n else "conv" for n in np.broadcast_to(heads, n_layers)],
    }


SMALL = {name: value for name, value in llama.SMALL.items() if name != "head_dim"} | {
    "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "norm_eps": 1e-2,
    "hidden_size": 24, "block_multiple_of": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}  # fmt: skip

FAMILY = Family(
    "lfm2", "model", {"Lfm2Model": BODY, "Lfm2ForCausalLM": WORDS}, ours, theirs, NAMES,
    recipe=Lfm2Config,
    adds="a short convolution between two gates in most layers, attention in the others",
    small=SMALL,
    in_gguf=InGguf(GGUF, in_gguf),
    ignored="use_pos_enc conv_dim conv_dim_out conv_use_xavier_init",
)  # fmt: skip
