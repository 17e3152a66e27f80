"""OLMo Hybrid: OLMo Team 2026. An OLMo 3 whose windows have become memories; every fourth layer attends to everything.

The memories are those of Gated DeltaNet (Yang, Kautz and Hatamizadeh 2024), whose β may reach 2. Layers with one have
their norms before each sub-layer, those that attend have them after it. The published models have no positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module, RMSNorm, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.gated import GatedFeedForward
from ..after.gated_delta_net import GatedDeltaNet
from ..after.grouped import grouped
from ..after.sandwich import Normed, NormedUpdate
from . import llama, olmo2, qwen3_5
from .decoder import decoder_of
from .family import WRITERS_ALONE, Family, Found, classes
from .fields import Fields
from .layer_kinds import full_layers


@dataclass(frozen=True)
class OlmoHybridConfig(qwen3_5.Qwen35Config):
    """Sizes of an OLMo Hybrid: those of a Qwen3.5. turned: whether the layers that attend have positions.

    doubled: whether β goes up to 2.
    """

    turned: bool = False
    doubled: bool = True

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of OLMo Hybrid."""

        def norm(width: int = self.d_model) -> RMSNorm:
            return RMSNorm(width, self.norm_eps)

        def normed(part: Any) -> Normed:
            return Normed(part, norm(part.d_out))

        def placed(i: int, part: Module) -> Module:
            return NormedUpdate(part, norm(), self.dropout) if i in (self.full or ()) else part

        def attention(i: int) -> Module:
            if i not in (self.full or ()):
                sizes = self.n_memories, self.n_memory_keys, self.d_key, self.d_value, self.kernel
                most = 2.0 if self.doubled else 1.0
                return GatedDeltaNet(self.d_model, *sizes, activation=self.activation, eps=1e-5, rng=rng, most=most)
            turn = self.turn(i) if self.turned else (None, None)
            heads = self.n_heads, self.n_key_heads or 1, self.d_head
            mix = ScaledDotProduct(dropout=self.attention_dropout)
            return grouped(self.d_model, *heads, self.bias, None, rng, mix, turn, normed)

        return decoder_of(
            self,
            rng,
            norm=norm,
            attention=lambda i: placed(i, attention(i)),
            feed_forward=lambda i: placed(i, GatedFeedForward(self.d_model, self.d_ff, self.activation, False, rng)),
        )


def _sizes(fields: Fields) -> Found:
    """Those of a Llama. Without positions, the base of the angles is null."""
    angles = fields.get("rope_parameters")
    turned = not (isinstance(angles, dict) and angles.get("rope_theta", 0.0) is None)
    return {**llama.sizes(fields if turned else fields.instead(rope_parameters=None)), "turned": turned}


def as_today(fields: Fields) -> Fields:
    """The fields with the sizes of memories that follow from others."""
    keys = fields.size("linear_num_key_heads", heads := fields.size("num_attention_heads"))
    width = fields.size("linear_key_head_dim", max(1, 3 * fields.size("hidden_size") // (4 * keys)))
    usual = {"linear_num_value_heads": heads, "linear_num_key_heads": keys, "linear_key_head_dim": width}
    return fields.otherwise(**usual, linear_value_head_dim=2 * width)


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    n = found["n_layers"]
    full = full_layers(fields, n, qwen3_5.OTHER, tuple(range(3, n, 4)) or (n - 1,))
    if not 0 < len(full) < n:
        raise ValueError("layer_types must have layers of both kinds")
    return {"full": full}


def _theirs(config: OlmoHybridConfig) -> Found:
    angles = {} if config.turned else {"rope_theta": None, "rope_parameters": {"rope_theta": None}}
    return {**qwen3_5.theirs(config), **angles}


_REMEMBER = """
layers.*.attention_layer_norm                =      stack.layers.*.self_attention.norm
layers.*.input_layernorm                     |=     stack.layers.*.self_attention.norm
layers.*.linear_attn.(q,k,v,g,b,a)_proj T stack.layers.*.self_attention.sublayer.(query,key,value,gate,rate,step)
layers.*.linear_attn.(q,k,v)_conv1d.weight   taps   stack.layers.*.self_attention.sublayer.convolution.(query,key,value)
layers.*.linear_attn.conv1d.weight           |taps  stack.layers.*.self_attention.sublayer.convolution.query|key|value
layers.*.linear_attn.(A_log,dt_bias,o_norm)  =      stack.layers.*.self_attention.sublayer.(log_rate,shift,norm)
layers.*.linear_attn.o_proj                  T      stack.layers.*.self_attention.sublayer.output
layers.*.feedforward_layer_norm              =      stack.layers.*.feed_forward.norm
layers.*.post_attention_layernorm            |=     stack.layers.*.feed_forward.norm
"""
_ATTEND = """
layers.*.feedforward_layer_norm        |=    stack.layers.*.self_attention.norm
"""


def names(config: OlmoHybridConfig) -> str:
    """The table of names. Each layer has those of its kind."""
    kinds = [_ATTEND if i in (config.full or ()) else _REMEMBER for i in range(config.n_layers)]
    return olmo2.NAMES + "".join(kind.replace("*", str(i)) for i, kind in enumerate(kinds))


SMALL = {name: value for name, value in qwen3_5.SMALL.items() if name not in ("rope_parameters", "head_dim")} | {
    "rope_parameters": {"rope_theta": None}, "num_hidden_layers": 3,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 3,
}  # fmt: skip
FAMILY = Family(
    "olmo_hybrid", "model", OlmoHybridConfig, classes("OlmoHybrid", WRITERS_ALONE),
    f"{qwen3_5.FIELDS}linear_allow_neg_eigval flag doubled true", names,
    as_today=as_today, base=(_sizes, llama.written_sizes), usual={"max_position_embeddings": 65536},
    more_ours=_ours, more_theirs=_theirs,
    adds="a memory by the gated delta rule in three of four layers, which may write the opposite of what it holds",
    small=SMALL,
    ignored="linear_a_log_* linear_dt_*",
)  # fmt: skip
