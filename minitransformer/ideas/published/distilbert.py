"""DistilBERT: Sanh et al. 2019, "DistilBERT, a distilled version of BERT", section 3. Half of BERT, without types."""

import math

from .family import ENCODERS, Family, Found, InGguf, Stored, classes
from .fields import Fields, small
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


NAMES = """
embeddings.(word_embeddings,position_embeddings,LayerNorm)  =  embed.(tokens,positions,norm)
transformer.layer.*.attention.(q,k,v,out)_lin T encoder.layers.*.self_attention.sublayer.(query,key,value,output)
transformer.layer.*.(sa,output)_layer_norm                  =  encoder.layers.*.(self_attention,feed_forward).norm
transformer.layer.*.ffn.(lin1,lin2)                         T  encoder.layers.*.feed_forward.sublayer.(inner,output)
embeddings.position_ids                                     -
/vocab_transform                                            T  dense
/vocab_(layer_norm,projector)                               =  (norm,output)
/vocab_projector.bias                                       =  logit_bias
/vocab_projector                                            ~  embed.tokens
/pre_classifier                                             T  pool.dense
"""


# llama.cpp, convert_hf_to_gguf.py, DistilBertModel: a body alone, as a BERT without types of tokens.
GGUF = "blk.*.(attn,layer)_output_norm = transformer.layer.*.(sa,output)_layer_norm"


def _in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """Nothing more. A folder has no number below the root."""
    fields.only(**{"bert.attention.causal": False})
    if not math.isclose(config["rms_norm_eps"], 1e-12, rel_tol=1e-6):
        raise ValueError(f"bert.attention.layer_norm_epsilon of a DistilBERT is 1e-12, got {config['rms_norm_eps']}")
    return {"architectures": ["DistilBertModel"]}


FAMILY = Family(
    "distilbert", "distilbert", TextEncoderConfig, classes("DistilBert", ENCODERS), FIELDS, NAMES,
    more_ours=lambda *_: {"norm_eps": 1e-12, "types": 0, "pooler": None},
    more_theirs=lambda config: {"pad_token_id": 0},
    class_pooler="relu",
    adds="as BERT; without token types",
    small=small(FIELDS, max_position_embeddings=16),
    in_gguf=InGguf(GGUF, "", "bert", _in_gguf, when=lambda metadata, stored: "token_types.weight" not in stored),
    ignored="sinusoidal_pos_embds tie_weights_",  # the file has the table
)  # fmt: skip
