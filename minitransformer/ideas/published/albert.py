"""ALBERT: Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations".

Section 3.1: one layer is used many times. The embedding tables are narrow; a projection maps them to its width.
"""

from . import bert
from .family import ENCODERS, Family, Found, Stored, classes
from .fields import Fields
from .text_encoder import TextEncoderConfig


def _ours(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    return {"shared": True, "pooler": "tanh" if "pooler.weight" in stored else None}


def _theirs(config: TextEncoderConfig) -> Found:
    return {"num_hidden_groups": 1, "inner_group_num": 1, "classifier_dropout_prob": config.dropout}


NAMES = f"""{bert.NAMES}
encoder.embedding_hidden_mapping_in      T  embed.projection
LAYER.attention.(query,key,value,dense)  T  encoder.layers.0.self_attention.sublayer.(query,key,value,output)
LAYER.attention.LayerNorm                =  encoder.layers.0.self_attention.norm
LAYER.(ffn,ffn_output)                   T  encoder.layers.0.feed_forward.sublayer.(inner,output)
LAYER.full_layer_layer_norm              =  encoder.layers.0.feed_forward.norm
pooler                                   T  pool.dense
""".replace("LAYER", "encoder.albert_layer_groups.0.albert_layers.0")
MASKED_NAMES = """
/HEAD.dense      T  dense
/HEAD.LayerNorm  =  norm
/sop_classifier.classifier  -
"""


def names(config: TextEncoderConfig) -> str:
    """The table of names."""
    return NAMES + bert.masked(config, "predictions", MASKED_NAMES)


FAMILY = Family(
    "albert", "albert", TextEncoderConfig, classes("Albert", ENCODERS | bert.PRETRAINED),
    f"{bert.FIELDS}embedding_size size width 128", names,
    usual={"hidden_act": "gelu_new"}, only={**bert.ONE_SIDED, "num_hidden_groups": 1, "inner_group_num": 1},
    more_ours=_ours, more_theirs=_theirs,
    adds="as BERT; one layer used many times, a narrow token table with a projection",
    small=bert.SMALL | {"embedding_size": 7, "num_hidden_layers": 3},
    ignored="down_scale_factor gap_size net_structure_type num_memory_blocks layers_to_keep",
)  # fmt: skip
