"""ModernBERT: Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder ...", section 2.1.

A BERT with rotary positions, gated feed-forward networks and pre-norm order. Only every third layer sees the whole
text; the others see a window on both sides, and have another rotary base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import layers
from ...core.arrays.backend import Rng
from ...core.models.encoder_only import EncoderOnlyParts, MeanPool
from ..after.both_sides.layer import near
from ..after.gated import GatedFeedForward
from ..after.norm_without_bias import LayerNormWithoutBias, NoNorm
from ..after.rotary import rotary_turn
from . import angles
from .family import BODY, CLASSES, ENCODERS, MASKED, Family, Found, InGguf, classes
from .fields import GENERAL, Fields, small, their_activation
from .heads import ANSWERS, FirstOfAll, Pooled, Prediction
from .layer_kinds import FULL, SLIDING, base_of, full_every, kinds
from .text_encoder import EncoderSizes, MaskedLanguageModel, TextEncoder

__all__ = ["MaskedLanguageModel", "ModernBertConfig", "TextEncoder"]  # `models.load` finds the models of this config


@dataclass(frozen=True)
class ModernBertConfig(EncoderSizes):
    """Sizes of a ModernBERT. The defaults are those of ModernBERT-Base.

    every: the layers 0, every, 2 · every, ... see the whole text, with angles of base rotary_base; the others see
    window // 2 tokens on each side, with local_base.
    """

    max_length: int = 8192
    d_ff: int = 1152
    n_layers: int = 22
    dropout: float = 0.0
    attention_dropout: float = 0.0
    norm_eps: float = 1e-5
    bias: bool = False  # of attention's maps
    ff_bias: bool = False
    norm_bias: bool = False
    head_bias: bool = False
    pooling: str = "cls"  # the first token's vector is that of the text, in a classifier; "mean": the mean
    every: int = 3
    window: int = 128
    rotary_base: float = 160000.0
    local_base: float = 10000.0

    def parts(self, rng: Rng) -> EncoderOnlyParts:
        """The parts of ModernBERT."""
        d, h = self.d_model, self.n_heads

        def layer(i: int) -> layers.EncoderLayer:
            local = i % self.every
            mix = near(self.window // 2 if local else None, layers.ScaledDotProduct(dropout=self.attention_dropout))
            turn = rotary_turn(self.local_base if local else self.rotary_base)
            attention = layers.MultiHeadAttention(d, h, bias=self.bias, rng=rng, mix=mix, turn=turn)
            feed_forward = GatedFeedForward(d, self.d_ff, self.activation, self.ff_bias, rng)
            first: Any = self.norm() if i else NoNorm(d)  # the embedding has a norm already
            parts = layers.Residual(attention, first, "pre"), layers.Residual(feed_forward, self.norm(), "pre")
            return layers.EncoderLayer.of(*parts)

        tokens = layers.Embedding(self.vocabulary, d, std=0.02, rng=rng)
        embed = layers.InputEmbedding(tokens, None, dropout=self.dropout, norm=self.norm())
        stack = layers.Encoder.of([layer(i) for i in range(self.n_layers)], self.norm())
        return EncoderOnlyParts(embed, stack, MeanPool())

    def norm(self) -> Any:
        """A norm of vectors of width d_model."""
        return (layers.LayerNorm if self.norm_bias else LayerNormWithoutBias)(self.d_model, self.norm_eps)

    def prediction(self, width: int, rng: Rng) -> tuple[layers.Linear, Any]:
        """The map and the norm before the logits of a masked-language model."""
        return layers.Linear(self.d_model, width, self.head_bias, rng), self.norm()

    def before_head(self, head: str, rng: Rng) -> Prediction | Pooled:
        """What stands between the body and any other head, in a classifier together with its pool."""
        dense, norm = self.prediction(self.d_model, rng)
        prediction = Prediction(dense, self.activation, norm)
        pool = FirstOfAll() if self.pooling == "cls" else MeanPool()
        return Pooled(pool, prediction) if head == CLASSES else prediction


FIELDS = f"""{GENERAL}
max_position_embeddings    size        max_length           8192
embedding_dropout          rate        dropout
hidden_activation          activation  activation           "gelu"
norm_eps                   positive    norm_eps             1e-5
attention_bias             flag        bias                 false
mlp_bias                   flag        ff_bias              false
norm_bias                  flag        norm_bias            false
classifier_bias            flag        head_bias            false
local_attention            size        window               128
global_attn_every_n_layers size        every                3
tie_word_embeddings        flag        tie_output           true
"""


def _ours(fields: Fields, found: Found, head: str, *_: Any) -> Found:
    """Older files have the two bases in fields of their own."""
    if head != BODY and fields.activation("classifier_activation", "gelu") != found["activation"]:
        raise ValueError("classifier_activation must be that of the layers, hidden_activation")
    if (width := found["d_model"] // found["n_heads"]) % 2:
        raise ValueError(f"a head must have an even width, since rotary positions turn pairs of numbers; got {width}")
    if head == MASKED:
        fields.only(decoder_bias=True)
    return {
        "every": full_every(fields, found["n_layers"], 3, "global_attn_every_n_layers", first=0),
        "rotary_base": base_of(fields, FULL, width, 160000.0, "global_rope_theta"),
        "local_base": base_of(fields, SLIDING, width, 10000.0, "local_rope_theta"),
        "pooling": fields.choice("classifier_pooling", {"cls": "cls", "mean": "mean"}, "cls"),
    }


def _theirs(config: ModernBertConfig) -> Found:
    bases = {FULL: angles.one(config.rotary_base, None), SLIDING: angles.one(config.local_base, None)}
    return {
        "classifier_activation": their_activation(config.activation), "classifier_pooling": config.pooling,
        "rope_parameters": bases, "layer_types": kinds(config.n_layers, config.every, first=0),
    }  # fmt: skip


NAMES = """
embeddings.(tok_embeddings,norm)  =  embed.(tokens,norm)
layers.*.(attn,mlp)_norm          =  encoder.layers.*.(self_attention,feed_forward).norm
layers.*.attn.Wqkv                T  encoder.layers.*.self_attention.sublayer.query|key|value
layers.*.attn.Wo                  T  encoder.layers.*.self_attention.sublayer.output
layers.*.mlp.Wi                   T  encoder.layers.*.feed_forward.sublayer.gate|inner
layers.*.mlp.Wo                   T  encoder.layers.*.feed_forward.sublayer.output
final_norm                        =  encoder.final_norm
/head.dense                       T  dense
/head.norm                        =  norm
/head.dense                       T  prediction.dense
/head.norm                        =  prediction.norm
/head.dense                       T  pool.prediction.dense
/head.norm                        =  pool.prediction.norm
/decoder                          =  output
/decoder                          ~  embed.tokens
/decoder.bias                     =  logit_bias
"""

# llama.cpp, convert_hf_to_gguf.py, ModernBertModel: a body alone.
_IN_GGUF = """
architectures               =         ["ModernBertModel"]
attention_bias              there     blk.0.attn_qkv.bias
mlp_bias                    there     blk.0.ffn_up.bias
norm_bias                   there     blk.0.ffn_norm.bias
local_rope_theta            positive  rope.freq_base_swa                10000.0
local_attention             size      attention.sliding_window
global_attn_every_n_layers  size      attention.sliding_window_pattern  3
"""


def _in_gguf(fields: Fields, stored: Any, config: Found) -> Found:
    """Nothing more. No layer is causal."""
    fields.only(**{"modern-bert.attention.causal": False})
    return {}


FAMILY = Family(
    "modernbert", "model", ModernBertConfig, classes("ModernBert", ENCODERS), FIELDS, NAMES,
    only={"position_embedding_type": "absolute", "rope_scaling": None}, more_ours=_ours, more_theirs=_theirs,
    adds="rotary positions of two bases, a window on both sides in most layers, gated feed-forward networks",
    small=small(
        FIELDS, num_hidden_layers=3, max_position_embeddings=16, pad_token_id=1, local_attention=5,
        global_attn_every_n_layers=2, bos_token_id=None, eos_token_id=None, cls_token_id=None, sep_token_id=None,
    ),
    heads={ANSWERS: "classifier"},
    in_gguf=InGguf("", _IN_GGUF, "modern-bert", _in_gguf, "global_rope_theta = rope_theta"),
    ignored="initializer_cutoff_factor deterministic_flash_attn sparse_pred* reference_compile layer_norm_eps repad_* "
    "classifier_activation decoder_bias",
)  # fmt: skip
