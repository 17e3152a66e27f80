"""ELECTRA: Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".

A small masked-language model, the generator, replaces some tokens; the discriminator says of each token whether it was
replaced (section 2). Both are BERTs, here with a token table that may be narrower than the layers (section 3.2).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from . import bert
from .family import CLASSES, ENCODERS, MASKED, Family, Stored, classes
from .fields import Fields
from .heads import REPLACED
from .text_encoder import TextEncoderConfig


def ours(fields: Fields, head: str, stored: Stored) -> TextEncoderConfig:
    """The config of ELECTRA's config.json."""
    config = bert.ours(fields, head, stored)
    if head == MASKED and config.activation != "gelu":
        raise ValueError("hidden_act must be gelu, because the generator's head uses it")
    width = fields.size("embedding_size", 128)
    return dataclasses.replace(config, width=None if width == config.d_model else width, pooler=None)


def theirs(config: TextEncoderConfig) -> dict[str, Any]:
    """ELECTRA's config.json."""
    return {**bert.theirs(config), "embedding_size": config.width or config.d_model}


NAMES = (
    bert.NAMES
    + """
embeddings_project                             T  embed.projection
/generator_predictions.dense                   T  dense
/generator_predictions.LayerNorm               =  norm
/generator_lm_head                             =  output
/generator_lm_head                             ~  embed.tokens
/generator_lm_head.bias                        =  logit_bias
/discriminator_predictions.dense               T  prediction.dense
/classifier.dense                              T  pool.dense
"""
)


FAMILY = Family(
    "electra", "electra", classes("Electra", ENCODERS | {"ForPreTraining": REPLACED}), ours, theirs, NAMES,
    class_pooler="gelu",
    recipe=TextEncoderConfig,
    adds="as BERT; a narrow token table with a projection, a head that finds replaced tokens",
    small=bert.SMALL | {"embedding_size": 7},
    heads={CLASSES: "classifier.out_proj", REPLACED: "discriminator_predictions.dense_prediction"},
    ignored="summary_*",
)  # fmt: skip
