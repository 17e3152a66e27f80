"""Phi: Li et al. 2023, "Textbooks Are All You Need II: phi-1.5 technical report", section 2.1.

A GPT-NeoX with one norm for attention and feed-forward network, shared key heads, and a bias of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import FeedForward, Module, Residual
from ...core.models.language_model import LanguageModelParts
from ..after.grouped import grouped
from ..after.parallel_block import ParallelLayer
from ..after.scaled_angles import scaled_turn
from . import angles, gpt_neox, llama
from .bart import BiasedOutput
from .decoder import decoder_of
from .family import BODY, WRITERS, Family, Found, InGguf, classes
from .fields import GENERAL, Fields, small
from .heads import TOKENS


@dataclass(frozen=True)
class PhiConfig(gpt_neox.GptNeoxConfig):
    """Sizes of a Phi. n_key_heads: n_heads unless given. The layers are always parallel, and all maps have biases."""

    activation: str = "gelu_tanh"
    n_key_heads: int | None = None
    logit_bias: bool = True  # a body without a head has none

    def __post_init__(self) -> None:
        if self.n_key_heads is None:
            object.__setattr__(self, "n_key_heads", self.n_heads)

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of Phi."""
        d, turn = self.d_model, scaled_turn(self.rotary_base, None, self.d_rotary)
        norms = [self.norm() for _ in range(self.n_layers)]  # one for both sub-layers

        def attention(i: int) -> Residual:
            heads = self.n_heads, self.n_key_heads or 1
            return normed(i, grouped(d, *heads, rng=rng, mix=self.mix(), turn=turn))

        def normed(i: int, part: Module) -> Residual:
            return Residual(part, norms[i], "pre", self.dropout)

        return decoder_of(
            self,
            rng,
            norm=self.norm,
            attention=attention,
            feed_forward=lambda i: normed(i, FeedForward(d, self.d_ff, self.activation, rng=rng)),
            layer=ParallelLayer,
            output=lambda table: BiasedOutput(table, self.vocabulary) if self.logit_bias else table,
        )


FIELDS = f"""{GENERAL}
num_key_value_heads        size        n_key_heads   n_heads
resid_pdrop                rate        dropout
hidden_act                 activation  activation    "gelu_new"
layer_norm_eps             positive    norm_eps      1e-5
"""


def _ours(fields: Fields, found: Found, head: str, *_: Any) -> Found:
    width = found["d_model"] // max(1, found["n_heads"])
    return {**gpt_neox.unscaled(fields, width), "logit_bias": head != BODY}


NAMES = f"""{llama.NAMES}
layers.*.self_attn.dense  T  stack.layers.*.self_attention.sublayer.output
layers.*.mlp.(fc1,fc2)    T  stack.layers.*.feed_forward.sublayer.(inner,output)
final_layernorm           =  stack.final_norm
/lm_head.bias             =  output.logit_bias
"""
FAMILY = Family(
    "phi", "model", PhiConfig, classes("Phi", WRITERS | {"ForTokenClassification": TOKENS}), FIELDS, NAMES,
    only={"qk_layernorm": False}, usual={"partial_rotary_factor": 0.5}, more_ours=_ours,
    more_theirs=lambda config: {"partial_rotary_factor": 1.0, **angles.written(config)},
    adds="as GPT-NeoX; one norm for both sub-layers, a bias of the logits",
    in_gguf=InGguf(
        architecture="phi2", fields="(rope_theta,partial_rotary_factor) = (rope_theta,partial_rotary_factor)"
    ),
    small=small(
        FIELDS, hidden_size=24, num_attention_heads=6, num_key_value_heads=2, intermediate_size=10, bos_token_id=None,
        eos_token_id=None,
    ),
)  # fmt: skip
