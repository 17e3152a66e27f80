"""BERT: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".

Section 3: the encoder of 2017 alone, which looks both ways, with GELU, learned positions, token types, and a pooler.
"""

from .family import ENCODERS, MASKED, Family, Found, InGguf, Stored, classes
from .fields import GENERAL, Fields, small
from .names import in_gguf
from .text_encoder import TextEncoderConfig

FIELDS = f"""{GENERAL}
max_position_embeddings         size        max_length
hidden_dropout_prob             rate        dropout
attention_probs_dropout_prob    rate        attention_dropout
hidden_act                      activation  activation           "gelu"
layer_norm_eps                  positive    norm_eps             1e-12
type_vocab_size                 size        types                2
tie_word_embeddings             flag        tie_output           true
"""
PRETRAINED = {"ForPreTraining": MASKED}  # with a second head, which is not read
ONE_SIDED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}


def pooler(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    """f of the pooler, if the file has one."""
    return {"pooler": "tanh" if "pooler.dense.weight" in stored else None}


NAMES = """
embeddings.(word_embeddings,position_embeddings,token_type_embeddings,LayerNorm)  =  embed.(tokens,positions,types,norm)
encoder.layer.*.attention.self.(query,key,value)  T  encoder.layers.*.self_attention.sublayer.(query,key,value)
encoder.layer.*.attention.output.dense            T  encoder.layers.*.self_attention.sublayer.output
encoder.layer.*.attention.output.LayerNorm        =  encoder.layers.*.self_attention.norm
encoder.layer.*.(intermediate,output).dense       T  encoder.layers.*.feed_forward.sublayer.(inner,output)
encoder.layer.*.output.LayerNorm                  =  encoder.layers.*.feed_forward.norm
embeddings.position_ids                           -
"""
POOLER = """
pooler.dense                                   T  pool.dense
"""
MASKED_NAMES = """
/HEAD.transform.dense      T  dense
/HEAD.transform.LayerNorm  =  norm
/cls.seq_relationship      -
"""
TIED = """
/HEAD.bias          =  logit_bias
/HEAD.decoder.bias  ~  logit_bias
/HEAD.decoder       ~  embed.tokens
"""
UNTIED = """
/HEAD.decoder       =  output
/HEAD.decoder.bias  =  logit_bias
/HEAD.bias          +  logit_bias
"""


def masked(config: TextEncoderConfig, head: str, table: str) -> str:
    """The table of names for a masked-language model's head and logits. head: the file's name for HEAD."""
    return (table + (TIED if config.tie_output else UNTIED)).replace("HEAD", head)


def names(config: TextEncoderConfig) -> str:
    """The table of names."""
    return NAMES + POOLER + masked(config, "cls.predictions", MASKED_NAMES)


# llama.cpp, convert_hf_to_gguf.py, BertModel: a body alone, without the pooler. A RoBERTa's file has no rows before
# position 0.
GGUF = in_gguf(NAMES, """
blk.*.attn_output_norm   =  encoder.layer.*.attention.output.LayerNorm
blk.*.layer_output_norm  =  encoder.layer.*.output.LayerNorm
""")  # fmt: skip


def _in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """How many types of tokens there are."""
    fields.only(**{"bert.attention.causal": False})
    return {"architectures": ["BertModel"], "type_vocab_size": stored["token_types.weight"].shape[0]}


SMALL = small(FIELDS, max_position_embeddings=16, pad_token_id=1)
FAMILY = Family(
    "bert", "bert", TextEncoderConfig, classes("Bert", ENCODERS | PRETRAINED), FIELDS, names,
    only=ONE_SIDED, more_ours=pooler,
    adds="learned positions, token types and a pooler",
    small=SMALL,
    in_gguf=InGguf(GGUF, more=_in_gguf),
    ignored="pooler_type pooler_*_size pooler_num_* pooler_size_per_head directionality",
)  # fmt: skip
