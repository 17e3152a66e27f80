"""ELECTRA: Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".

A small masked-language model, the generator, replaces some tokens; the discriminator says of each token whether it was
replaced (section 2). Both are BERTs, here with a token table that may be narrower than the layers (section 3.2).
"""

from typing import Any

from . import bert
from .family import CLASSES, ENCODERS, MASKED, Family, Found, classes
from .fields import Fields
from .heads import REPLACED
from .text_encoder import TextEncoderConfig


def _ours(fields: Fields, found: Found, head: str, *_: Any) -> Found:
    if head == MASKED and found["activation"] != "gelu":
        raise ValueError("hidden_act must be gelu, because the generator's head uses it")
    width = fields.size("embedding_size", 128)
    return {"width": None if width == found["d_model"] else width, "pooler": None}


NAMES = f"""{bert.NAMES}
embeddings_project                T  embed.projection
/generator_predictions.dense      T  dense
/generator_predictions.LayerNorm  =  norm
/generator_lm_head                =  output
/generator_lm_head                ~  embed.tokens
/generator_lm_head.bias           =  logit_bias
/discriminator_predictions.dense  T  prediction.dense
/classifier.dense                 T  pool.dense
"""
FAMILY = Family(
    "electra", "electra", TextEncoderConfig, classes("Electra", ENCODERS | {"ForPreTraining": REPLACED}),
    bert.FIELDS, NAMES,
    only=bert.ONE_SIDED, more_ours=_ours,
    more_theirs=lambda config: {"embedding_size": config.width or config.d_model},
    class_pooler="gelu",
    adds="as BERT; a narrow token table with a projection, a head that finds replaced tokens",
    small=bert.SMALL | {"embedding_size": 7},
    heads={CLASSES: "classifier.out_proj", REPLACED: "discriminator_predictions.dense_prediction"},
    ignored="summary_*",
)  # fmt: skip
