"""T5: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".

Section 2.1: a relative position bias, RMSNorm, no other biases. Version 1.1 has a gated feed-forward network and a
separate table for the logits, which are then not scaled. mT5 (Xue et al. 2021) is version 1.1 in many languages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import layers
from ...core.arrays.backend import Rng
from ...core.models.encoder_only import EncoderOnlyParts, MeanPool
from ...core.models.transformer import Transformer, TransformerParts
from ..after.factors import ScaledOutput
from ..after.gated import GatedFeedForward
from ..after.relative_bias import RelativeBias
from ..after.score_bias import Biased
from . import twice_read
from .family import BODY, CLASSES, ENCODER, WORDS, Family, Found, InGguf, Stored, classes
from .fields import ACTIVATIONS, Fields, their_activation
from .heads import ANSWERS, TOKENS
from .text_encoder import TextEncoder
from .weight_files import Tensor

FIELDS = """
vocab_size                         size      source_vocabulary
d_model                            size      d_model
num_heads                          size      n_heads
d_ff                               size      d_ff
d_kv                               size      d_head
num_layers                         size      n_encoder_layers
num_decoder_layers                 size      n_decoder_layers    n_encoder_layers
dropout_rate                       rate      dropout
layer_norm_epsilon                 positive  norm_eps            1e-6
relative_attention_num_buckets     size      buckets             32
relative_attention_max_distance    size      max_distance        128
"""
_FEED_FORWARD = {name: (meaning, False) for name, meaning in ACTIVATIONS.items()} | {
    f"gated-{name}": ("gelu_tanh" if name == "gelu" else meaning, True) for name, meaning in ACTIVATIONS.items()
}


@dataclass(frozen=True)
class T5Config:
    """Sizes of a T5. The defaults are those of T5-Small. scale_logits: by 1/√d_model, as version 1.0 does."""

    source_vocabulary: int
    target_vocabulary: int
    d_model: int = 512
    n_heads: int = 8
    d_head: int = 64
    d_ff: int = 2048
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    dropout: float = 0.1
    activation: str = "relu"
    gated: bool = False
    norm_eps: float = 1e-6
    buckets: int = 32
    max_distance: int = 128
    tie_output: bool = True
    scale_logits: bool = True
    recompute: bool = False
    share_embeddings: ClassVar[bool] = True  # no T5 has two tables

    def build(self, rng: Rng | None = None) -> Transformer:
        """The model of these sizes, untrained."""
        return Transformer(self, rng)

    def parts(self, rng: Rng) -> TransformerParts:
        """The parts of T5. No biases, scores without a scale, and positions as a bias of the scores."""
        d, h, width = self.d_model, self.n_heads, self.d_head
        tokens = layers.Embedding(self.source_vocabulary, d, rng=rng)
        before, around = (RelativeBias(h, self.buckets, self.max_distance, both, rng=rng) for both in (False, True))
        biased = {kind: Biased(bias, 1.0, self.dropout) for kind, bias in (("before", before), ("around", around))}

        def residual(sublayer: layers.Module) -> layers.Residual:
            return layers.Residual(sublayer, layers.RMSNorm(d, self.norm_eps), "pre", self.dropout)

        def attention(mix: Any) -> layers.Residual:
            return residual(layers.MultiHeadAttention(d, h, width, width, False, rng=rng, mix=mix))

        def feed_forward() -> layers.Residual:
            kind = GatedFeedForward if self.gated else layers.FeedForward
            return residual(kind(d, self.d_ff, self.activation, False, rng))

        plain = layers.ScaledDotProduct(1.0, self.dropout)
        encoder = [
            layers.EncoderLayer.of(attention(biased["around"]), feed_forward()) for _ in range(self.n_encoder_layers)
        ]
        decoder = [
            layers.DecoderLayer.of(attention(biased["before"]), attention(plain), feed_forward())
            for _ in range(self.n_decoder_layers)
        ]
        table = tokens if self.tie_output else layers.Embedding(self.target_vocabulary, d, rng=rng)
        return TransformerParts(
            embed_source=layers.InputEmbedding(tokens, None, dropout=self.dropout),
            embed_target=layers.InputEmbedding(tokens, None, dropout=self.dropout),
            encoder=layers.Encoder.of(encoder, layers.RMSNorm(d, self.norm_eps), self.recompute),
            decoder=layers.Decoder.of(decoder, layers.RMSNorm(d, self.norm_eps), self.recompute),
            output=ScaledOutput(table, d**0.5) if self.scale_logits else table,
        )


@dataclass(frozen=True)
class T5EncoderConfig(T5Config):
    """Sizes of a T5 of which only the encoder is here."""

    head: ClassVar[str] = ENCODER

    @property
    def vocabulary(self) -> int:
        """Of the source, the only text."""
        return self.source_vocabulary

    def build(self, rng: Rng | None = None) -> TextEncoder:  # type: ignore[override]
        """The encoder of these sizes, untrained."""
        return TextEncoder(self, rng)

    def parts(self, rng: Rng) -> EncoderOnlyParts:  # type: ignore[override]
        """The parts of T5 that read the source."""
        parts = super().parts(rng)
        return EncoderOnlyParts(parts.embed_source, parts.encoder, MeanPool())


@dataclass(frozen=True)
class T5ReaderConfig(twice_read.ReadByBoth, T5Config):
    """Sizes of a T5 that reads a text with both sides, as the body of a head."""

    start: int | None = 0


def _ours(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    """The file's tensors show whether the table is tied; the field means the scale."""
    scaled = fields.flag("tie_word_embeddings", True)
    if head == WORDS and not scaled and "lm_head.weight" not in stored:
        raise ValueError("lm_head.weight is missing, though tie_word_embeddings is false")
    return _of_both(fields, found, head, stored, "relu", fields.flag("scale_decoder_outputs", scaled))


def _mt5_ours(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    """In mT5 tie_word_embeddings means nothing: published files contradict it."""
    fields.get("tie_word_embeddings")
    return _of_both(fields, found, head, stored, "gated-gelu", scale_logits=False)


def _of_both(fields: Fields, found: Found, head: str, stored: Stored, feed_forward: str, scale_logits: bool) -> Found:
    if head not in (ENCODER, TOKENS):  # the library computes something else without it
        fields.only(is_encoder_decoder=True)
    activation, gated = fields.choice("feed_forward_proj", _FEED_FORWARD, feed_forward)
    if fields.get("dense_act_fn") is not None:  # it goes before what feed_forward_proj says
        activation = fields.activation("dense_act_fn", "relu")
    start = {"start": fields.get("decoder_start_token_id") or 0} if head in (CLASSES, ANSWERS) else {}
    return start | {
        "target_vocabulary": found["source_vocabulary"],
        "activation": activation,
        "gated": fields.flag("is_gated_act", gated),
        "scale_logits": scale_logits,
        "tie_output": _tied(stored, "lm_head.weight", "shared.weight"),
    }


def _tied(stored: Stored, output: str, table: str) -> bool:
    """Whether a file has no table for the output, or twice the same."""
    first, second = stored.get(output), stored.get(table)
    return first is None or (second is not None and np.array_equal(first.read(), second.read()))


def _theirs(config: T5Config) -> Found:
    kind = their_activation(config.activation)
    return {
        "feed_forward_proj": f"gated-{'gelu' if kind == 'gelu_new' else kind}" if config.gated else kind,
        "tie_word_embeddings": config.scale_logits,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": getattr(config, "start", 0),
    }


NAMES = f"""
shared                          =  (target_tokens,embed_source.tokens)
(encoder,decoder).embed_tokens  ~  target_tokens
(encoder,decoder).embed_tokens  ~  embed_source.tokens
shared                          =  embed.tokens
encoder.embed_tokens            ~  embed.tokens
SIDE.block.*.layer.0.layer_norm               =  SIDE.layers.*.self_attention.norm
SIDE.block.*.layer.0.SelfAttention.(q,k,v,o)  T  SIDE.layers.*.self_attention.sublayer.(query,key,value,output)
SIDE.block.0.layer.0.SelfAttention.relative_attention_bias  =  SIDE.layers.0.self_attention.sublayer.mix.bias
LAST.layer_norm                 =  SIDE.layers.*.feed_forward.norm
LAST.DenseReluDense.(wi,wo)     T  SIDE.layers.*.feed_forward.sublayer.(inner,output)
SIDE.final_layer_norm           =  SIDE.final_norm
READ.layer_norm                 =  decoder.layers.*.cross_attention.norm
READ.EncDecAttention.(q,k,v,o)  T  decoder.layers.*.cross_attention.sublayer.(query,key,value,output)
decoder.block.0.layer.1.EncDecAttention.relative_attention_bias  -
/lm_head                        =  (output,output.tokens)
/lm_head                        ~  target_tokens
{twice_read.NAMES}"""
GATED = """
LAST.DenseReluDense.(wi_0,wi_1)  T  SIDE.layers.*.feed_forward.sublayer.(gate,inner)
"""


def names(config: T5Config) -> str:
    """The table of names."""
    return _of_both_sides(NAMES + (GATED if config.gated else ""))


def _of_both_sides(table: str) -> str:
    """A table in which SIDE is both sides, LAST the feed-forward network, and READ what reads the memory."""
    last = table.replace("LAST", "(encoder.block.*.layer.1,decoder.block.*.layer.2)")
    return last.replace("READ", "decoder.block.*.layer.1").replace("SIDE", "(encoder,decoder)")


# llama.cpp, convert_hf_to_gguf.py, T5Model; the names as above.
GGUF = _of_both_sides("""
(token_embd,output)              =  (shared,/lm_head)
(enc,dec).blk.*.attn_rel_b       =  SIDE.block.*.layer.0.SelfAttention.relative_attention_bias
(enc,dec).blk.*.attn_norm        =  SIDE.block.*.layer.0.layer_norm
(enc,dec).blk.*.attn_(q,k,v,o)   =  SIDE.block.*.layer.0.SelfAttention.(q,k,v,o)
(enc,dec).blk.*.ffn_norm         =  LAST.layer_norm
(enc,dec).blk.*.ffn_(gate,up,down)  =  LAST.DenseReluDense.(wi_0,wi_1,wo)
(enc,dec).output_norm            =  SIDE.final_layer_norm
dec.blk.*.cross_attn_norm        =  READ.layer_norm
dec.blk.*.cross_attn_(q,k,v,o)   =  READ.EncDecAttention.(q,k,v,o)
dec.blk.*.cross_attn_rel_b       =  READ.EncDecAttention.relative_attention_bias
""")


def in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """The decoder's layers and the buckets.

    A file names neither the activation, which goes with the form, nor the scale of logits, which goes with one table.
    """
    kind = "t5" if (both := "dec.output_norm.weight" in stored) else "t5encoder"
    gated = "enc.blk.0.ffn_gate.weight" in stored
    start = fields.get(f"{kind}.decoder_start_token_id")
    return {
        "architectures": ["T5ForConditionalGeneration" if both else "T5EncoderModel"],
        "tie_word_embeddings": _tied(stored, "output.weight", "token_embd.weight"),
        "num_decoder_layers": fields.size(f"{kind}.decoder_block_count", config["num_hidden_layers"]),
        "relative_attention_num_buckets": fields.size(f"{kind}.attention.relative_buckets_count"),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "decoder_start_token_id": 0 if start is None else start,
    }


def joined(found: dict[str, Tensor], config: Found) -> dict[str, Tensor]:
    """The inner map, which has another name in a folder where there is no gate."""
    if config["feed_forward_proj"] != "relu":
        return found
    return {name.replace(".wi_1.", ".wi."): tensor for name, tensor in found.items()}


_SMALL = {
    "vocab_size": 13, "d_model": 12, "d_kv": 5, "num_heads": 3, "d_ff": 8, "num_layers": 2, "pad_token_id": 1,
    "eos_token_id": None, "decoder_start_token_id": 2, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}  # fmt: skip
_ENDS = {
    "Model": BODY, "ForConditionalGeneration": WORDS, "EncoderModel": ENCODER, "ForTokenClassification": TOKENS,
    "ForSequenceClassification": CLASSES, "ForQuestionAnswering": ANSWERS,
}  # fmt: skip
_OF_BOTH: dict[str, Any] = {
    "small": _SMALL,
    "more_theirs": _theirs,
    "ignored": "n_positions is_decoder",
    "of_head": {
        ENCODER: T5EncoderConfig, TOKENS: T5EncoderConfig, CLASSES: T5ReaderConfig, ANSWERS: T5ReaderConfig
    },
    "heads": {TOKENS: "classifier"} | twice_read.LAST_MAP,
    "prefixes": {TOKENS: "transformer", CLASSES: "transformer"},
}  # fmt: skip
FAMILIES = (
    Family(
        "t5", "", T5Config, classes("T5", _ENDS), FIELDS, names, more_ours=_ours,
        adds="a relative position bias, RMSNorm, unscaled scores, gated feed-forward networks (v1.1)",
        **_OF_BOTH,
        in_gguf=InGguf(
            GGUF, "", "t5 t5encoder", in_gguf, "n_positions = max_position_embeddings",
            ignored="attention.layer_norm_epsilon",  # the same again
            joined=joined,
        ),
    ),
    Family(
        "mt5", "", T5Config, classes("MT5", _ENDS), FIELDS, names, more_ours=_mt5_ours,
        adds="as T5 v1.1",
        **_OF_BOTH,
    ),
)  # fmt: skip
