"""GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"."""

from __future__ import annotations

from typing import Any

from ..models.language_model import LanguageModelConfig
from .family import BODY, WORDS, Family, Stored
from .fields import ACTIVATIONS, Fields, renamed, their_activation

SIZES = {
    "vocabulary": "vocab_size",
    "max_length": "n_positions",
    "d_model": "n_embd",
    "n_heads": "n_head",
    "n_layers": "n_layer",
}
RATES = {"dropout": "resid_pdrop", "attention_dropout": "attn_pdrop"}


def ours(fields: Fields, head: str, stored: Stored) -> LanguageModelConfig:
    """The config of GPT-2's config.json."""
    fields.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    sizes = fields.sizes(SIZES)
    return LanguageModelConfig(
        **sizes,
        **fields.rates(RATES),
        d_ff=fields.size("n_inner", 4 * sizes["d_model"]),
        activation=fields.choice("activation_function", ACTIVATIONS, "gelu_new"),
        norm_eps=fields.positive("layer_norm_epsilon", 1e-5),
        tie_output=fields.flag("tie_word_embeddings", True) or head == BODY,
    )


def theirs(config: LanguageModelConfig) -> dict[str, Any]:
    """GPT-2's config.json."""
    return {
        **renamed(config, SIZES, RATES),
        "n_inner": config.d_ff,
        "embd_pdrop": config.dropout,
        "activation_function": their_activation(config.activation),
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tie_output,
        "bos_token_id": None,
        "eos_token_id": None,
    }


NAMES = """
wte                =  tokens
wpe                =  embed.positions
h.*.ln_1           =  stack.layers.*.self_attention.norm
h.*.attn.c_attn    =  stack.layers.*.self_attention.sublayer.query|key|value
h.*.attn.c_proj    =  stack.layers.*.self_attention.sublayer.output
h.*.ln_2           =  stack.layers.*.feed_forward.norm
h.*.mlp.c_fc       =  stack.layers.*.feed_forward.sublayer.inner
h.*.mlp.c_proj     =  stack.layers.*.feed_forward.sublayer.output
ln_f               =  stack.final_norm
h.*.attn.bias      -
h.*.attn.masked_bias  -
"""
WORDS_NAMES = """
lm_head            =  output
lm_head            ~  tokens
"""


def names(config: LanguageModelConfig, head: str) -> tuple[str, str]:
    """The tables of the body and of the head."""
    return NAMES, {WORDS: WORDS_NAMES}.get(head, "")


FAMILY = Family(
    "gpt2",
    "transformer",
    {"GPT2Model": BODY, "GPT2LMHeadModel": WORDS},
    ours,
    theirs,
    names,
)
