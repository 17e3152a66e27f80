"""Granite 4: IBM 2025. State spaces in most layers, attention in a few, experts beside a network that all tokens use.

The state spaces are those of Mamba-2 (Dao and Gu 2024), the experts those of DeepSeekMoE (Dai et al. 2024, section
3.2), the four factors those of Granite 3. The layers that attend may do without positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module
from ..after.experts import MixtureOfExperts
from ..after.gated import GatedFeedForward
from ..after.routing import SharedExperts
from . import granite, llama, mamba2
from .family import WRITERS_ALONE, Family, Found, InGguf, Stored, classes
from .fields import Fields
from .layer_kinds import full_layers, kinds_in_gguf, two_kinds


@dataclass(frozen=True)
class GraniteHybridConfig(granite.GraniteConfig):
    """Sizes of a Granite 4. full: the layers that attend; turned: whether those have positions.

    n_states, d_state, n_groups, expand, kernel, conv_bias, state_bias: of Mamba-2, whose heads are together expand
    times as wide as d_model. d_shared: of the network that all tokens use; d_ff, n_experts, k: of the others, if any.
    """

    full: tuple[int, ...] = ()
    turned: bool = False
    n_states: int = 128
    d_state: int = 256
    n_groups: int = 1
    expand: int = 2
    kernel: int = 4
    conv_bias: bool = True
    state_bias: bool = False
    d_shared: int = 1024
    n_experts: int = 8
    k: int = 2

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""

        def feed_forward(i: int) -> Module:
            shared = GatedFeedForward(self.d_model, self.d_shared, self.activation, False, rng)
            experts = self.n_experts, self.k, self.activation
            if not self.n_experts:
                return shared
            return SharedExperts(shared, MixtureOfExperts(self.d_model, self.d_ff, *experts, rng=rng))

        return {
            **super().differs(rng),
            "turn": lambda i: self.turn(i) if self.turned else (None, None),
            "other": lambda i: None if i in self.full else mamba2.mixer(self, rng),
            "feed_forward": feed_forward,
        }


FIELDS = f"""{granite.FACTORS}
mamba_n_heads             size  n_states    128
mamba_d_state             size  d_state     256
mamba_n_groups            size  n_groups    1
mamba_expand              size  expand      2
mamba_d_conv              size  kernel      4
mamba_conv_bias           flag  conv_bias   true
mamba_proj_bias           flag  state_bias  false
shared_intermediate_size  size  d_shared    1024
num_experts_per_tok       size  k           2
attention_bias            flag  bias        false
num_local_experts         count  n_experts  8
"""
_OTHER = "linear_attention"


def as_today(fields: Fields) -> Fields:
    """The fields with today's names of the kinds of layers. A step may have any length."""
    kinds = fields.get("layer_types") or fields.get("layers_block_type")
    older = {"mamba": _OTHER, "attention": "full_attention"}
    renamed = kinds and [older.get(kind, kind) if isinstance(kind, str) else kind for kind in kinds]
    return mamba2.with_any_step(fields).instead(layer_types=renamed)


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    if fields.get("mamba_d_head") != "auto":
        mamba2.head_width(fields, "mamba_d_head", found)
    turned = {None: False, "nope": False, "rope": True}
    if (kind := fields.get("position_embedding_type")) not in turned:
        raise ValueError(f"position_embedding_type must be null, 'nope' or 'rope', got {str(kind)[:40]!r}")
    return {"full": full_layers(fields, found["n_layers"], _OTHER, ()), "turned": turned[kind]}


def _theirs(config: GraniteHybridConfig) -> Found:
    kinds = two_kinds(config.n_layers, _OTHER, config.full)
    return {"layer_types": kinds, "position_embedding_type": "rope" if config.turned else None}


NAMES = f"""{llama.NAMES}{mamba2.MIXER.replace("mixer", "mamba")}
layers.*.shared_mlp.input_linear                T   stack.layers.*.feed_forward.sublayer.gate|inner
layers.*.shared_mlp.output_linear               T   stack.layers.*.feed_forward.sublayer.output
layers.*.shared_mlp.input_linear                T   stack.layers.*.feed_forward.sublayer.shared.gate|inner
layers.*.shared_mlp.output_linear               T   stack.layers.*.feed_forward.sublayer.shared.output
layers.*.block_sparse_moe.router.layer          T   stack.layers.*.feed_forward.sublayer.routed.router
layers.*.block_sparse_moe.input_linear.weight   T   stack.layers.*.feed_forward.sublayer.routed.experts.*.gate|inner
layers.*.block_sparse_moe.output_linear.weight  T   stack.layers.*.feed_forward.sublayer.routed.experts.*.output
layers.*.shared_mlp.(gate,up)_proj              |T  stack.layers.*.feed_forward.sublayer.(gate,inner)
layers.*.shared_mlp.(gate,up)_proj              |T  stack.layers.*.feed_forward.sublayer.shared.(gate,inner)
layers.*.block_sparse_moe.experts.*.gate_proj   |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.gate
layers.*.block_sparse_moe.experts.*.up_proj     |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.inner
layers.*.block_sparse_moe.experts.*.down_proj   |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.output
layers.*.block_sparse_moe.router                |T  stack.layers.*.feed_forward.sublayer.routed.router
layers.*.block_sparse_moe.experts.gate_up_proj  |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.gate|inner
layers.*.block_sparse_moe.experts.down_proj     |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.output
"""
GGUF = f"""{llama.PAIRED}{mamba2.MIXER_IN_GGUF.replace("mixer", "mamba")}
blk.*.ffn_(gate,up,down,gate_shexp,up_shexp)  =  layers.*.shared_mlp.(gate_proj,up_proj,output_linear,gate_proj,up_proj)
blk.*.ffn_down_shexp                          =  layers.*.shared_mlp.output_linear
blk.*.ffn_gate_inp                            =  layers.*.block_sparse_moe.router.layer
blk.*.ffn_(gate,up,down)_exps                 =  layers.*.block_sparse_moe.experts.*.(gate,up,down)_proj
"""


IN_GGUF = f"""{granite.FACTORS_IN_GGUF}
mamba_n_heads    size   ssm.time_step_rank
mamba_d_state    size   ssm.state_size
mamba_n_groups   size   ssm.group_count
mamba_d_conv     size   ssm.conv_kernel
mamba_conv_bias  there  *ssm_conv1d.bias
mamba_proj_bias  there  *ssm_in.bias
attention_bias   there  *attn_q.bias
"""


def in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """The width of the states, and the experts, if there are any."""

    def size(name: str, default: int | None = None) -> int:
        return fields.size(f"granitehybrid.{name}", default)

    routed = "blk.0.ffn_gate_inp.weight" in stored
    return {
        "mamba_expand": size("ssm.inner_size") // config["hidden_size"],
        "num_local_experts": size("expert_count") if routed else 0,
        "num_experts_per_tok": size("expert_used_count", 2) if routed else 2,
        "shared_intermediate_size": size("expert_shared_feed_forward_length", config["intermediate_size"]),
        "layer_types": kinds_in_gguf(fields, "granitehybrid", config["num_hidden_layers"], _OTHER),
        "position_embedding_type": "rope" if fields.get("granitehybrid.rope.scaling.finetuned") else None,
    }


SMALL = granite.SMALL | {
    "num_hidden_layers": 3, "layer_types": [_OTHER, "full_attention", _OTHER], "rms_norm_eps": 1e-2,
    "mamba_n_heads": 4, "mamba_d_state": 5, "mamba_n_groups": 2, "mamba_d_conv": 3, "shared_intermediate_size": 7,
    "num_local_experts": 3, "num_experts_per_tok": 2,
}  # fmt: skip

FAMILY = Family(
    "granitemoehybrid", "model", GraniteHybridConfig, classes("GraniteMoeHybrid", WRITERS_ALONE),
    FIELDS, NAMES,
    as_today=as_today, base=llama.BASE, more_ours=_ours, more_theirs=_theirs,
    adds="state spaces (Mamba-2) in most layers; experts beside a network of all tokens; constant factors",
    small=SMALL,
    ignored="mamba_chunk_size",
    in_gguf=InGguf(GGUF, IN_GGUF, "granitehybrid", in_gguf),
)  # fmt: skip
