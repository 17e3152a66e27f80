"""BLOOM: Le Scao et al. 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", section 3.2.

A GPT-2 whose only positions are linear biases of the scores (ALiBi), with one more norm right after the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.layers import LayerNorm
from ...core.models.language_model import LanguageModelParts
from ..after.alibi_models import AlibiLanguageModelConfig
from .family import READERS, WRITERS, Family, InGguf, classes
from .fields import Fields, small
from .heads import TOKENS


@dataclass(frozen=True)
class BloomConfig(AlibiLanguageModelConfig):
    """Sizes of a BLOOM. d_ff is 4 · d_model in every published one."""

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of BLOOM: a GPT-2 with linear biases, and a norm in place of the embedding's dropout."""
        parts = super().parts(rng)
        parts.embed.norm, parts.embed.dropout = LayerNorm(self.d_model, self.norm_eps), 0.0
        return parts


FIELDS = """
vocab_size             size        vocabulary
seq_length             size        max_length           2048
hidden_size            size        d_model
n_head                 size        n_heads
n_layer                size        n_layers
hidden_dropout         rate        dropout
attention_dropout      rate        attention_dropout
layer_norm_epsilon     positive    norm_eps             1e-5
tie_word_embeddings    flag        tie_output           true
"""
_OTHER_NAMES = {"hidden_size": "n_embed", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"}


def as_today(fields: Fields) -> Fields:
    """The fields under one of their two names."""
    for name, other in _OTHER_NAMES.items():
        if (value := fields.get(other)) is not None:
            fields = fields.otherwise(**{name: value})
            fields.same(name, other)
    return fields


NAMES = """
word_embeddings                     =       tokens
word_embeddings_layernorm           =       embed.norm
h.*.(input,post_attention)_layernorm  =  stack.layers.*.(self_attention,feed_forward).norm
h.*.self_attention.query_key_value  T:n_heads stack.layers.*.self_attention.sublayer.query|key|value
h.*.self_attention.dense            T       stack.layers.*.self_attention.sublayer.output
h.*.mlp.dense_(h_to_4h,4h_to_h)     T       stack.layers.*.feed_forward.sublayer.(inner,output)
ln_f                                =       stack.final_norm
/lm_head                            =       output
/lm_head                            ~       tokens
"""
# llama.cpp, convert_hf_to_gguf.py, BloomModel.
GGUF = "blk.*.attn_qkv heads h.*.self_attention.query_key_value"
_OTHERS_IN_GGUF = "n_inner = intermediate_size\nnum_attention_heads = num_attention_heads"  # the second for `heads`
FAMILY = Family(
    "bloom", "transformer", BloomConfig, classes("Bloom", WRITERS | READERS), FIELDS, NAMES,
    only={"apply_residual_connection_post_layernorm": False}, as_today=as_today,
    more_ours=lambda fields, found, head, stored: {"d_ff": 4 * found["d_model"]},
    adds="as GPT-2; linear biases of the scores (ALiBi), a norm after the embedding",
    small=small(FIELDS, bos_token_id=None, eos_token_id=None),
    heads={TOKENS: "classifier"},
    in_gguf=InGguf(GGUF, fields=_OTHERS_IN_GGUF),
    ignored="pretraining_tp slow_but_exact offset_alibi skip_bias_add* *_fusion attention_softmax_in_fp32 n_inner",
)  # fmt: skip
