"""DistilBERT: Sanh et al. 2019, "DistilBERT, a distilled version of BERT", section 3. Half of BERT, without types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .family import ENCODERS, Family, InGguf, Stored, classes
from .fields import Fields, written
from .text_encoder import TextEncoderConfig

FIELDS = """
vocab_size                 size        vocabulary
max_position_embeddings    size        max_length
dim                        size        d_model
n_heads                    size        n_heads
hidden_dim                 size        d_ff
n_layers                   size        n_layers
dropout                    rate        dropout
attention_dropout          rate        attention_dropout
activation                 activation  activation           "gelu"
tie_word_embeddings        flag        tie_output           true
"""


def ours(fields: Fields, head: str, stored: Stored) -> TextEncoderConfig:
    """The config of DistilBERT's config.json."""
    return TextEncoderConfig(**fields.read(FIELDS), norm_eps=1e-12, types=0, pooler=None)


def theirs(config: TextEncoderConfig) -> dict[str, Any]:
    """DistilBERT's config.json."""
    return {**written(config, FIELDS), "pad_token_id": 0}


NAMES = """
embeddings.word_embeddings                     =  embed.tokens
embeddings.position_embeddings                 =  embed.positions
embeddings.LayerNorm                           =  embed.norm
transformer.layer.*.attention.q_lin            T  encoder.layers.*.self_attention.sublayer.query
transformer.layer.*.attention.k_lin            T  encoder.layers.*.self_attention.sublayer.key
transformer.layer.*.attention.v_lin            T  encoder.layers.*.self_attention.sublayer.value
transformer.layer.*.attention.out_lin          T  encoder.layers.*.self_attention.sublayer.output
transformer.layer.*.sa_layer_norm              =  encoder.layers.*.self_attention.norm
transformer.layer.*.ffn.lin1                   T  encoder.layers.*.feed_forward.sublayer.inner
transformer.layer.*.ffn.lin2                   T  encoder.layers.*.feed_forward.sublayer.output
transformer.layer.*.output_layer_norm          =  encoder.layers.*.feed_forward.norm
embeddings.position_ids                        -
/vocab_transform                               T  dense
/vocab_layer_norm                              =  norm
/vocab_projector                               =  output
/vocab_projector.bias                          =  logit_bias
/vocab_projector                               ~  embed.tokens
/pre_classifier                                T  pool.dense
"""


# llama.cpp, convert_hf_to_gguf.py, DistilBertModel: a body alone, as a BERT without types of tokens.
GGUF = """
token_embd               =  embeddings.word_embeddings
position_embd            =  embeddings.position_embeddings
token_embd_norm          =  embeddings.LayerNorm
blk.*.attn_q             =  transformer.layer.*.attention.q_lin
blk.*.attn_k             =  transformer.layer.*.attention.k_lin
blk.*.attn_v             =  transformer.layer.*.attention.v_lin
blk.*.attn_output        =  transformer.layer.*.attention.out_lin
blk.*.attn_output_norm   =  transformer.layer.*.sa_layer_norm
blk.*.ffn_up             =  transformer.layer.*.ffn.lin1
blk.*.ffn_down           =  transformer.layer.*.ffn.lin2
blk.*.layer_output_norm  =  transformer.layer.*.output_layer_norm
"""
GGUF_FIELDS = """
dim                      =  hidden_size
n_heads                  =  num_attention_heads
hidden_dim               =  intermediate_size
n_layers                 =  num_hidden_layers
max_position_embeddings  =  max_position_embeddings
"""


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing more. A folder has no number below the root."""
    fields.only(**{"bert.attention.causal": False})
    if not math.isclose(config["rms_norm_eps"], 1e-12, rel_tol=1e-6):
        raise ValueError(f"bert.attention.layer_norm_epsilon of a DistilBERT is 1e-12, got {config['rms_norm_eps']}")
    return {"architectures": ["DistilBertModel"]}


FAMILY = Family(
    "distilbert", "distilbert", classes("DistilBert", ENCODERS), ours, theirs, NAMES,
    class_pooler="relu",
    recipe=TextEncoderConfig,
    adds="as BERT; without token types",
    small={
        "vocab_size": 13, "dim": 12, "n_heads": 3, "hidden_dim": 8, "n_layers": 2, "max_position_embeddings": 16,
    },
    in_gguf=InGguf(
        GGUF, in_gguf, "bert", fields=GGUF_FIELDS, when=lambda metadata, stored: "token_types.weight" not in stored
    ),
    ignored="sinusoidal_pos_embds tie_weights_",  # the file has the table
)  # fmt: skip
