"""ALBERT: Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations".

Section 3.1: one layer is used many times. The embedding tables are narrow; a projection maps them to its width.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from . import bert
from .family import ENCODERS, Family, Stored, classes
from .fields import Fields
from .text_encoder import TextEncoderConfig


def ours(fields: Fields, head: str, stored: Stored) -> TextEncoderConfig:
    """The config of ALBERT's config.json."""
    fields.only(num_hidden_groups=1, inner_group_num=1)
    fields = fields.otherwise(hidden_act="gelu_new")
    config = bert.ours(fields, head, stored)
    width, pooler = fields.size("embedding_size", 128), "tanh" if "pooler.weight" in stored else None
    return dataclasses.replace(config, width=width, shared=True, pooler=pooler)


def theirs(config: TextEncoderConfig) -> dict[str, Any]:
    """ALBERT's config.json."""
    once = {"num_hidden_groups": 1, "inner_group_num": 1, "classifier_dropout_prob": config.dropout}
    return {**bert.theirs(config), **once, "embedding_size": config.width}


NAMES = (
    bert.NAMES
    + """
encoder.embedding_hidden_mapping_in            T  embed.projection
encoder.albert_layer_groups.0.albert_layers.0.attention.query      T  encoder.layers.0.self_attention.sublayer.query
encoder.albert_layer_groups.0.albert_layers.0.attention.key        T  encoder.layers.0.self_attention.sublayer.key
encoder.albert_layer_groups.0.albert_layers.0.attention.value      T  encoder.layers.0.self_attention.sublayer.value
encoder.albert_layer_groups.0.albert_layers.0.attention.dense      T  encoder.layers.0.self_attention.sublayer.output
encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm  =  encoder.layers.0.self_attention.norm
encoder.albert_layer_groups.0.albert_layers.0.ffn                  T  encoder.layers.0.feed_forward.sublayer.inner
encoder.albert_layer_groups.0.albert_layers.0.ffn_output           T  encoder.layers.0.feed_forward.sublayer.output
encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm  =  encoder.layers.0.feed_forward.norm
pooler                                         T  pool.dense
"""
)
MASKED_NAMES = """
/HEAD.dense                                    T  dense
/HEAD.LayerNorm                                =  norm
/sop_classifier.classifier                     -
"""


def names(config: TextEncoderConfig) -> str:
    """The table of names."""
    return NAMES + bert.masked(config, "predictions", MASKED_NAMES)


FAMILY = Family(
    "albert", "albert", classes("Albert", ENCODERS | bert.PRETRAINED), ours, theirs, names,
    recipe=TextEncoderConfig,
    adds="as BERT; one layer used many times, a narrow token table with a projection",
    small=bert.SMALL | {"embedding_size": 7, "num_hidden_layers": 3},
    ignored="down_scale_factor gap_size net_structure_type num_memory_blocks layers_to_keep",
)  # fmt: skip
