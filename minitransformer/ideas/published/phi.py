"""Phi: Li et al. 2023, "Textbooks Are All You Need II: phi-1.5 technical report", section 2.1.

A GPT-NeoX with one norm for attention and feed-forward network, shared key heads, and a bias of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import (
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    InputEmbedding,
    LayerNorm,
    Residual,
    ScaledDotProduct,
)
from ...core.models.language_model import LanguageModelParts
from ..after.grouped import grouped
from ..after.parallel_block import ParallelLayer
from ..after.scaled_angles import scaled_turn
from . import angles, gpt_neox
from .bart import BiasedOutput
from .family import BODY, WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written
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

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Phi."""
        d, turn = self.d_model, scaled_turn(self.rotary_base, None, self.d_rotary)

        def layer() -> EncoderLayer:
            mix, norm = ScaledDotProduct(dropout=self.attention_dropout), LayerNorm(d, self.norm_eps)
            attention = grouped(d, self.n_heads, self.n_key_heads or 1, rng=rng, mix=mix, turn=turn)
            sublayers = attention, FeedForward(d, self.d_ff, self.activation, rng=rng)
            return ParallelLayer.of(*(Residual(f, norm, "pre", self.dropout) for f in sublayers))

        tokens = Embedding(self.vocabulary, d, std=0.02, rng=rng)
        table = tokens if self.tie_output else Embedding(self.vocabulary, d, std=0.02, rng=rng)
        return LanguageModelParts(
            embed=InputEmbedding(tokens, None, dropout=self.dropout),
            stack=Encoder.of([layer() for _ in range(self.n_layers)], LayerNorm(d, self.norm_eps), self.recompute),
            output=BiasedOutput(table, self.vocabulary) if self.logit_bias else table,
        )


FIELDS = """
vocab_size                 size        vocabulary
max_position_embeddings    size        max_length           2048
hidden_size                size        d_model
num_attention_heads        size        n_heads
num_key_value_heads        size        n_key_heads          n_heads
intermediate_size          size        d_ff
num_hidden_layers          size        n_layers
resid_pdrop                rate        dropout
attention_dropout          rate        attention_dropout
hidden_act                 activation  activation           "gelu_new"
layer_norm_eps             positive    norm_eps             1e-5
tie_word_embeddings        flag        tie_output           false
"""


def ours(fields: Fields, head: str, stored: Stored) -> PhiConfig:
    """The config of Phi's config.json."""
    fields.only(qk_layernorm=False)
    found = fields.read(FIELDS)
    found["tie_output"] |= head == BODY
    width = found["d_model"] // max(1, found["n_heads"])
    turns = gpt_neox.unscaled(fields.otherwise(partial_rotary_factor=0.5), width)
    return PhiConfig(**found, **turns, logit_bias=head != BODY)


def theirs(config: PhiConfig) -> dict[str, Any]:
    """Phi's config.json."""
    return {**written(config, FIELDS), "partial_rotary_factor": 1.0, **angles.written(config)}


NAMES = """
embed_tokens                           =  tokens
layers.*.input_layernorm               =  stack.layers.*.self_attention.norm
layers.*.self_attn.q_proj              T  stack.layers.*.self_attention.sublayer.query
layers.*.self_attn.k_proj              T  stack.layers.*.self_attention.sublayer.key
layers.*.self_attn.v_proj              T  stack.layers.*.self_attention.sublayer.value
layers.*.self_attn.dense               T  stack.layers.*.self_attention.sublayer.output
layers.*.mlp.fc1                       T  stack.layers.*.feed_forward.sublayer.inner
layers.*.mlp.fc2                       T  stack.layers.*.feed_forward.sublayer.output
final_layernorm                        =  stack.final_norm
/lm_head                               =  output
/lm_head                               =  output.tokens
/lm_head                               ~  tokens
/lm_head.bias                          =  output.logit_bias
"""


GGUF = """
token_embd         =  embed_tokens
output_norm        =  final_layernorm
output             =  /lm_head
blk.*.attn_norm    =  layers.*.input_layernorm
blk.*.attn_q       =  layers.*.self_attn.q_proj
blk.*.attn_k       =  layers.*.self_attn.k_proj
blk.*.attn_v       =  layers.*.self_attn.v_proj
blk.*.attn_output  =  layers.*.self_attn.dense
blk.*.ffn_up       =  layers.*.mlp.fc1
blk.*.ffn_down     =  layers.*.mlp.fc2
"""
_KEY_HEADS = "num_key_value_heads = num_key_value_heads"


FAMILY = Family(
    "phi", "model", classes("Phi", WRITERS | {"ForTokenClassification": TOKENS}), ours, theirs, NAMES,
    recipe=PhiConfig,
    adds="as GPT-NeoX; one norm for both sub-layers, a bias of the logits",
    in_gguf=InGguf(GGUF, architecture="phi2", fields=gpt_neox.GGUF_FIELDS + _KEY_HEADS),
    small={
        "vocab_size": 13, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2,
        "intermediate_size": 10, "num_hidden_layers": 2, "max_position_embeddings": 32,
        "bos_token_id": None, "eos_token_id": None,
    },
)  # fmt: skip
