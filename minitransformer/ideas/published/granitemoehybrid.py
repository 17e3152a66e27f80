"""Granite 4: IBM 2025. State spaces in most layers, attention in a few, experts beside a network that all tokens use.

The state spaces are those of Mamba-2 (Dao and Gu 2024), the experts those of DeepSeekMoE (Dai et al. 2024, section
3.2), the four factors those of Granite 3. The layers that attend may do without positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Module, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.experts import MixtureOfExperts
from ..after.gated import GatedFeedForward
from ..after.routing import SharedExperts
from . import granite, llama, mamba2
from .decoder import decoder
from .family import BODY, WORDS, Family, InGguf, Stored
from .fields import Fields, written
from .layer_kinds import full_layers, two_kinds


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

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Granite 4."""

        def feed_forward(i: int) -> Module:
            shared = GatedFeedForward(self.d_model, self.d_shared, self.activation, False, rng)
            experts = self.n_experts, self.k, self.activation
            if not self.n_experts:
                return shared
            return SharedExperts(shared, MixtureOfExperts(self.d_model, self.d_ff, *experts, rng=rng))

        return decoder(
            self,
            rng,
            mix=lambda i: ScaledDotProduct(self.score_factor, self.attention_dropout),
            turn=lambda i: self.turn(i) if self.turned else (None, None),
            other=lambda i: None if i in self.full else mamba2.mixer(self, rng),
            feed_forward=feed_forward,
            **self.factors(),
        )


FIELDS = """
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
"""
_OTHER = "linear_attention"


def ours(fields: Fields, head: str, stored: Stored) -> GraniteHybridConfig:
    """The config of Granite 4's config.json. A step may have any length."""
    mamba2.check_steps(fields)
    kinds = fields.get("layer_types") or fields.get("layers_block_type")
    older = {"mamba": _OTHER, "attention": "full_attention"}
    renamed = kinds and [older.get(kind, kind) if isinstance(kind, str) else kind for kind in kinds]
    fields = Fields({**fields.document, "layer_types": renamed}, fields.asked)
    found = {**llama.sizes(fields, head), **fields.read(FIELDS), **fields.read(granite.FIELDS)}
    if fields.get("mamba_d_head") != "auto":
        mamba2.head_width(fields, "mamba_d_head", found)
    turned = {None: False, "nope": False, "rope": True}
    if (kind := fields.get("position_embedding_type")) not in turned:
        raise ValueError(f"position_embedding_type must be null, 'nope' or 'rope', got {str(kind)[:40]!r}")
    experts = 0 if fields.get("num_local_experts") == 0 else fields.size("num_local_experts", 8)
    full = full_layers(fields, found["n_layers"], _OTHER, ())
    return GraniteHybridConfig(**found, full=full, turned=turned[kind], n_experts=experts)


def theirs(config: GraniteHybridConfig) -> dict[str, Any]:
    """Granite 4's config.json."""
    tables = {**written(config, FIELDS), **written(config, granite.FIELDS)}
    kinds = two_kinds(config.n_layers, _OTHER, config.full)
    place = "rope" if config.turned else None
    own = {"layer_types": kinds, "position_embedding_type": place, "num_local_experts": config.n_experts}
    return {**llama.written_sizes(config), **tables, **own}


NAMES = (
    granite.NAMES
    + mamba2.MIXER.replace("mixer", "mamba")
    + """
layers.*.shared_mlp.input_linear   T     stack.layers.*.feed_forward.sublayer.gate|inner
layers.*.shared_mlp.output_linear  T     stack.layers.*.feed_forward.sublayer.output
layers.*.shared_mlp.input_linear   T     stack.layers.*.feed_forward.sublayer.shared.gate|inner
layers.*.shared_mlp.output_linear  T     stack.layers.*.feed_forward.sublayer.shared.output
layers.*.block_sparse_moe.router.layer         T   stack.layers.*.feed_forward.sublayer.routed.router
layers.*.block_sparse_moe.input_linear.weight  T   stack.layers.*.feed_forward.sublayer.routed.experts.*.gate|inner
layers.*.block_sparse_moe.output_linear.weight T   stack.layers.*.feed_forward.sublayer.routed.experts.*.output
layers.*.shared_mlp.gate_proj                  |T  stack.layers.*.feed_forward.sublayer.gate
layers.*.shared_mlp.up_proj                    |T  stack.layers.*.feed_forward.sublayer.inner
layers.*.shared_mlp.gate_proj                  |T  stack.layers.*.feed_forward.sublayer.shared.gate
layers.*.shared_mlp.up_proj                    |T  stack.layers.*.feed_forward.sublayer.shared.inner
layers.*.block_sparse_moe.experts.*.gate_proj  |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.gate
layers.*.block_sparse_moe.experts.*.up_proj    |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.inner
layers.*.block_sparse_moe.experts.*.down_proj  |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.output
layers.*.block_sparse_moe.router               |T  stack.layers.*.feed_forward.sublayer.routed.router
layers.*.block_sparse_moe.experts.gate_up_proj |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.gate|inner
layers.*.block_sparse_moe.experts.down_proj    |T  stack.layers.*.feed_forward.sublayer.routed.experts.*.output
"""
)

GGUF = (
    llama.PAIRED_GGUF
    + mamba2.MIXER_IN_GGUF.replace("mixer", "mamba")
    + """
blk.*.ffn_gate           =         layers.*.shared_mlp.gate_proj
blk.*.ffn_up             =         layers.*.shared_mlp.up_proj
blk.*.ffn_down           =         layers.*.shared_mlp.output_linear
blk.*.ffn_gate_shexp     =         layers.*.shared_mlp.gate_proj
blk.*.ffn_up_shexp       =         layers.*.shared_mlp.up_proj
blk.*.ffn_down_shexp     =         layers.*.shared_mlp.output_linear
blk.*.ffn_gate_inp       =         layers.*.block_sparse_moe.router.layer
blk.*.ffn_gate_exps      =         layers.*.block_sparse_moe.experts.*.gate_proj
blk.*.ffn_up_exps        =         layers.*.block_sparse_moe.experts.*.up_proj
blk.*.ffn_down_exps      =         layers.*.block_sparse_moe.experts.*.down_proj
"""
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The factors, the states and the experts: a layer without heads of keys has states."""

    def size(name: str, default: int | None = None) -> int:
        return fields.size(f"granitehybrid.{name}", default)

    n_experts = 0 if "blk.0.ffn_gate_inp.weight" not in stored else size("expert_count")
    heads = fields.get("granitehybrid.attention.head_count_kv")
    return granite.factors_in_gguf(fields, "granitehybrid") | {
        "mamba_n_heads": size("ssm.time_step_rank"), "mamba_d_state": size("ssm.state_size"),
        "mamba_n_groups": size("ssm.group_count"), "mamba_d_conv": size("ssm.conv_kernel"),
        "mamba_expand": size("ssm.inner_size") // config["hidden_size"], "num_local_experts": n_experts,
        "mamba_conv_bias": any(name.endswith("ssm_conv1d.bias") for name in stored),
        "mamba_proj_bias": any(name.endswith("ssm_in.bias") for name in stored),
        "attention_bias": any(name.endswith("attn_q.bias") for name in stored),
        "shared_intermediate_size": size("expert_shared_feed_forward_length", config["intermediate_size"]),
        "num_experts_per_tok": size("expert_used_count", 2) if n_experts else 2,
        "layer_types": ["full_attention" if n else _OTHER for n in np.broadcast_to(heads, config["num_hidden_layers"])],
        "position_embedding_type": "rope" if fields.get("granitehybrid.rope.scaling.finetuned") else None,
    }  # fmt: skip


SMALL = granite.SMALL | {
    "num_hidden_layers": 3, "layer_types": [_OTHER, "full_attention", _OTHER], "rms_norm_eps": 1e-2,
    "mamba_n_heads": 4, "mamba_d_state": 5, "mamba_n_groups": 2, "mamba_d_conv": 3, "shared_intermediate_size": 7,
    "num_local_experts": 3, "num_experts_per_tok": 2,
}  # fmt: skip

FAMILY = Family(
    "granitemoehybrid", "model", {"GraniteMoeHybridModel": BODY, "GraniteMoeHybridForCausalLM": WORDS},
    ours, theirs, NAMES,
    recipe=GraniteHybridConfig,
    adds="state spaces (Mamba-2) in most layers; experts beside a network of all tokens; constant factors",
    small=SMALL,
    ignored="mamba_chunk_size",
    in_gguf=InGguf(GGUF, in_gguf, "granitehybrid"),
)  # fmt: skip
