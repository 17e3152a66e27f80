"""DistilBERT: Sanh et al. 2019, "DistilBERT, a distilled version of BERT". BERT with half the layers and no types."""

from __future__ import annotations

from typing import Any

from .family import BODY, CLASSES, MASKED, Family, Stored
from .fields import ACTIVATIONS, Fields, renamed, their_activation
from .text_encoder import TextEncoderConfig

SIZES = {
    "vocabulary": "vocab_size",
    "max_length": "max_position_embeddings",
    "d_model": "dim",
    "n_heads": "n_heads",
    "d_ff": "hidden_dim",
    "n_layers": "n_layers",
}
RATES = {"dropout": "dropout", "attention_dropout": "attention_dropout"}


def ours(fields: Fields, head: str, stored: Stored) -> TextEncoderConfig:
    """The config of DistilBERT's config.json."""
    return TextEncoderConfig(
        **fields.sizes(SIZES),
        **fields.rates(RATES),
        activation=fields.choice("activation", ACTIVATIONS, "gelu"),
        norm_eps=1e-12,
        types=0,
        pooler=False,
        tie_output=fields.flag("tie_word_embeddings", True),
    )


def theirs(config: TextEncoderConfig) -> dict[str, Any]:
    """DistilBERT's config.json."""
    return {
        **renamed(config, SIZES, RATES),
        "activation": their_activation(config.activation),
        "tie_word_embeddings": config.tie_output,
        "pad_token_id": 0,
    }


NAMES = """
embeddings.word_embeddings                     =  tokens
embeddings.position_embeddings                 =  embed.positions
embeddings.LayerNorm                           =  embed.norm
transformer.layer.*.attention.q_lin            T  stack.layers.*.self_attention.sublayer.query
transformer.layer.*.attention.k_lin            T  stack.layers.*.self_attention.sublayer.key
transformer.layer.*.attention.v_lin            T  stack.layers.*.self_attention.sublayer.value
transformer.layer.*.attention.out_lin          T  stack.layers.*.self_attention.sublayer.output
transformer.layer.*.sa_layer_norm              =  stack.layers.*.self_attention.norm
transformer.layer.*.ffn.lin1                   T  stack.layers.*.feed_forward.sublayer.inner
transformer.layer.*.ffn.lin2                   T  stack.layers.*.feed_forward.sublayer.output
transformer.layer.*.output_layer_norm          =  stack.layers.*.feed_forward.norm
embeddings.position_ids                        -
"""
MASKED_NAMES = """
vocab_transform                                T  dense
vocab_layer_norm                               =  norm
vocab_projector                                =  output
vocab_projector.bias                           =  logit_bias
vocab_projector                                ~  encoder.tokens
"""
CLASSES_NAMES = """
pre_classifier                                 T  dense
classifier                                     T  output
"""


def names(config: TextEncoderConfig, head: str) -> tuple[str, str]:
    """The tables of the body and of the head."""
    return NAMES, {MASKED: MASKED_NAMES, CLASSES: CLASSES_NAMES}.get(head, "")


FAMILY = Family(
    "distilbert",
    "distilbert",
    {"DistilBertModel": BODY, "DistilBertForMaskedLM": MASKED, "DistilBertForSequenceClassification": CLASSES},
    ours,
    theirs,
    names,
    class_activation="relu",
)
