"""BERT: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".

Section 3: the encoder of 2017 alone, which looks both ways, with GELU, learned positions, token types, and a pooler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .family import ENCODERS, MASKED, Family, InGguf, Stored, classes
from .fields import Fields, general, written
from .text_encoder import TextEncoderConfig

FIELDS = """
vocab_size                      size        vocabulary
max_position_embeddings         size        max_length
hidden_size                     size        d_model
num_attention_heads             size        n_heads
intermediate_size               size        d_ff
num_hidden_layers               size        n_layers
hidden_dropout_prob             rate        dropout
attention_probs_dropout_prob    rate        attention_dropout
hidden_act                      activation  activation           "gelu"
layer_norm_eps                  positive    norm_eps             1e-12
type_vocab_size                 size        types                2
tie_word_embeddings             flag        tie_output           true
"""
PRETRAINED = {"ForPreTraining": MASKED}  # with a second head, which is not read
ONE_SIDED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}


def ours(fields: Fields, head: str, stored: Stored) -> TextEncoderConfig:
    """The config of BERT's config.json."""
    fields.only(**ONE_SIDED)
    return TextEncoderConfig(**fields.read(FIELDS), pooler="tanh" if "pooler.dense.weight" in stored else None)


def theirs(config: TextEncoderConfig) -> dict[str, Any]:
    """BERT's config.json."""
    return written(config, FIELDS)


NAMES = """
embeddings.word_embeddings                     =  embed.tokens
embeddings.position_embeddings                 =  embed.positions
embeddings.token_type_embeddings               =  embed.types
embeddings.LayerNorm                           =  embed.norm
encoder.layer.*.attention.self.query           T  encoder.layers.*.self_attention.sublayer.query
encoder.layer.*.attention.self.key             T  encoder.layers.*.self_attention.sublayer.key
encoder.layer.*.attention.self.value           T  encoder.layers.*.self_attention.sublayer.value
encoder.layer.*.attention.output.dense         T  encoder.layers.*.self_attention.sublayer.output
encoder.layer.*.attention.output.LayerNorm     =  encoder.layers.*.self_attention.norm
encoder.layer.*.intermediate.dense             T  encoder.layers.*.feed_forward.sublayer.inner
encoder.layer.*.output.dense                   T  encoder.layers.*.feed_forward.sublayer.output
encoder.layer.*.output.LayerNorm               =  encoder.layers.*.feed_forward.norm
embeddings.position_ids                        -
"""
POOLER = """
pooler.dense                                   T  pool.dense
"""
MASKED_NAMES = """
/HEAD.transform.dense                          T  dense
/HEAD.transform.LayerNorm                      =  norm
/cls.seq_relationship                          -
"""
TIED = """
/HEAD.bias                                     =  logit_bias
/HEAD.decoder.bias                             ~  logit_bias
/HEAD.decoder                                  ~  embed.tokens
"""
UNTIED = """
/HEAD.decoder                                  =  output
/HEAD.decoder.bias                             =  logit_bias
/HEAD.bias                                     +  logit_bias
"""


def masked(config: TextEncoderConfig, head: str, table: str) -> str:
    """The table of names for a masked-language model's head and logits. head: the file's name for HEAD."""
    return (table + (TIED if config.tie_output else UNTIED)).replace("HEAD", head)


def names(config: TextEncoderConfig) -> str:
    """The table of names."""
    return NAMES + POOLER + masked(config, "cls.predictions", MASKED_NAMES)


# llama.cpp, convert_hf_to_gguf.py, BertModel: a body alone, without the pooler. A RoBERTa's file has no rows before
# position 0.
GGUF = """
token_embd                =  embeddings.word_embeddings
position_embd             =  embeddings.position_embeddings
token_types               =  embeddings.token_type_embeddings
token_embd_norm           =  embeddings.LayerNorm
blk.*.attn_q              =  encoder.layer.*.attention.self.query
blk.*.attn_k              =  encoder.layer.*.attention.self.key
blk.*.attn_v              =  encoder.layer.*.attention.self.value
blk.*.attn_output         =  encoder.layer.*.attention.output.dense
blk.*.attn_output_norm    =  encoder.layer.*.attention.output.LayerNorm
blk.*.ffn_up              =  encoder.layer.*.intermediate.dense
blk.*.ffn_down            =  encoder.layer.*.output.dense
blk.*.layer_output_norm   =  encoder.layer.*.output.LayerNorm
"""


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """How many types of tokens there are."""
    fields.only(**{"bert.attention.causal": False})
    return {"architectures": ["BertModel"], "type_vocab_size": stored["token_types.weight"].shape[0]}


SMALL = {
    "vocab_size": 13, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8, "num_hidden_layers": 2,
    "max_position_embeddings": 16, "pad_token_id": 1,
}  # fmt: skip
FAMILY = Family(
    "bert", "bert", classes("Bert", ENCODERS | PRETRAINED), ours, theirs, names,
    recipe=TextEncoderConfig,
    adds="learned positions, token types and a pooler",
    small=SMALL,
    in_gguf=InGguf(GGUF, in_gguf, fields=general(FIELDS)),
    ignored="pooler_type pooler_*_size pooler_num_* pooler_size_per_head directionality",
)  # fmt: skip
