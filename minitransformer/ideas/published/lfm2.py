"""LFM2: Liquid AI 2025, "LFM2 Technical Report", section 2. Most layers mix three tokens, and a few attend.

In most layers a short convolution between two gates takes the place of attention. The layers that attend are Qwen3's:
shared heads of keys, norms of queries and keys of each head, rotary positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module
from ..after.gated import GatedFeedForward
from ..after.gated_convolution import GatedConvolution
from ..after.qk_norm import qk_norm
from . import llama
from .family import WRITERS_ALONE, Family, Found, InGguf, Stored, classes
from .fields import Fields
from .layer_kinds import full_layers, kinds_in_gguf, two_kinds


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

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""

        def convolution(i: int) -> Module | None:
            return None if i in (self.full or ()) else GatedConvolution(self.d_model, self.kernel, self.conv_bias, rng)

        return {
            "turn": lambda i: qk_norm(self.d_head or 1, self.norm_eps, then=self.turn(i)),
            "other": convolution,
            "feed_forward": lambda i: GatedFeedForward(self.d_model, self.d_ff, bias=False, rng=rng),
        }


def as_today(fields: Fields) -> Fields:
    """The fields under Llama's names, with the final width of the networks."""
    width, eps = fields.size("block_ff_dim", fields.size("intermediate_size", 12288)), fields.positive("norm_eps", 1e-5)
    block, factor = fields.size("block_multiple_of", 256), fields.positive("block_ffn_dim_multiplier", 1.0)
    if fields.flag("block_auto_adjust_ff_dim", True):  # two thirds, times a factor, rounded up to whole blocks
        width = -(-int(factor * int(2 * width / 3)) // block) * block
    tied = fields.flag("tie_embedding", fields.flag("tie_word_embeddings", True))
    return fields.instead(rms_norm_eps=eps, intermediate_size=width, tie_word_embeddings=tied)


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    attending = fields.get("full_attn_idxs", range(found["n_layers"]))
    return {"full": full_layers(fields, found["n_layers"], "conv", attending)}


def _theirs(config: Lfm2Config) -> Found:
    kinds = two_kinds(config.n_layers, "conv", config.full or ())
    return {"norm_eps": config.norm_eps, "block_auto_adjust_ff_dim": False, "layer_types": kinds}


FIELDS = """
conv_L_cache  size  kernel     3
conv_bias     flag  conv_bias  false
"""
NAMES = f"""{llama.NAMES}
layers.*.(operator,ffn)_norm        =     stack.layers.*.(self_attention,feed_forward).norm
layers.*.self_attn.out_proj         T     stack.layers.*.self_attention.sublayer.output
layers.*.self_attn.(q,k)_layernorm  =     stack.layers.*.self_attention.sublayer.turn_(query,key).norm
layers.*.conv.in_proj               T     stack.layers.*.self_attention.sublayer.gate_in|gate_out|inner
layers.*.conv.conv.weight           taps  stack.layers.*.self_attention.sublayer.convolution.weight
layers.*.conv.conv.bias             =     stack.layers.*.self_attention.sublayer.convolution.bias
layers.*.conv.out_proj              T     stack.layers.*.self_attention.sublayer.last
layers.*.feed_forward.(w1,w3,w2)    T     stack.layers.*.feed_forward.sublayer.(gate,inner,output)
embedding_norm                      =     stack.final_norm
"""
GGUF = """
token_embd_norm                =     embedding_norm
blk.*.shortconv.(in,out)_proj  =     layers.*.conv.(in,out)_proj
blk.*.shortconv.conv           taps  layers.*.conv.conv
"""
_IN_GGUF = """
block_auto_adjust_ff_dim  =      false
conv_L_cache              size   shortconv.l_cache
conv_bias                 there  *shortconv.in_proj.bias
"""


def _in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """What has another name than Llama's, and the kinds of layers. The width of the networks is the final one."""
    kinds = kinds_in_gguf(fields, "lfm2", config["num_hidden_layers"], "conv")
    return {"norm_eps": config["rms_norm_eps"], "layer_types": kinds}


SMALL = {name: value for name, value in llama.SMALL.items() if name != "head_dim"} | {
    "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "norm_eps": 1e-2,
    "hidden_size": 24, "block_multiple_of": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}  # fmt: skip

FAMILY = Family(
    "lfm2", "model", Lfm2Config, classes("Lfm2", WRITERS_ALONE), FIELDS, NAMES,
    as_today=as_today, base=llama.BASE,
    usual={"num_key_value_heads": 8, "max_position_embeddings": 128000, "rope_theta": 1e6}, more_ours=_ours,
    more_theirs=_theirs,
    adds="a short convolution between two gates in most layers, attention in the others",
    small=SMALL,
    in_gguf=InGguf(GGUF, _IN_GGUF, more=_in_gguf),
    ignored="use_pos_enc conv_dim conv_dim_out conv_use_xavier_init",
)  # fmt: skip
