"""BART: Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training ...", section 2.1; and three related.

Pegasus (Zhang et al. 2020) puts its norms before the sub-layers; Marian (Junczys-Dowmunt et al. 2018) puts them after,
like BART. Both encode positions by sines and cosines: first all sines, then all cosines. mBART (Liu et al. 2020) is a
BART with the norms of Pegasus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import layers, ops
from ...core.arrays.backend import Array, Pullback, Rng
from ...core.arrays.float16 import sum_over
from ...core.models.transformer import Transformer, TransformerParts
from . import twice_read
from .family import BODY, CLASSES, WORDS, Family, Found, Stored, classes
from .fields import Fields
from .heads import ANSWERS
from .position_tables import HalvesPositions, OffsetPositions, in_halves

FIELDS = """
vocab_size                 size        source_vocabulary
d_model                    size        d_model
encoder_attention_heads    size        n_heads
encoder_ffn_dim            size        d_ff
encoder_layers             size        n_encoder_layers
decoder_layers             size        n_decoder_layers
max_position_embeddings    size        n_positions
dropout                    rate        dropout
attention_dropout          rate        attention_dropout
activation_function        activation  activation           "gelu"
scale_embedding            flag        scale_embedding      false
tie_word_embeddings        flag        tie_output           true
"""
# For each family in this file: the fields of our config that all its models share.
_OF_BART: dict[str, Any] = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
_OF_MBART = _OF_BART | {"norm_order": "pre"}
_OF_PEGASUS: dict[str, Any] = {"positions": "halves", "norm_order": "pre"}
_OF_MARIAN: dict[str, Any] = {"positions": "halves"}


@dataclass(frozen=True)
class BartConfig:
    """Sizes of a BART, Pegasus or Marian. The defaults are those of BART-Base."""

    source_vocabulary: int
    target_vocabulary: int
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "gelu"
    norm_order: str = "post"
    positions: str = "learned"  # or "halves": all sines, then all cosines
    n_positions: int = 1024  # in a learned table
    position_offset: int = 0  # rows of the learned table before position 0
    scale_embedding: bool = False  # by √d_model
    embedding_norm: bool = False
    share_embeddings: bool = True
    tie_output: bool = True
    logit_bias: bool = False
    recompute: bool = False

    def build(self, rng: Rng | None = None) -> Transformer:
        """The model of these sizes, untrained."""
        return Transformer(self, rng)

    def parts(self, rng: Rng) -> TransformerParts:
        """The parts of BART."""
        d, pre = self.d_model, self.norm_order == "pre"
        sizes = (d, self.n_heads, self.d_ff, self.dropout, self.attention_dropout, self.activation, self.norm_order)
        source_tokens = layers.Embedding(self.source_vocabulary, d, rng=rng)
        target_tokens = source_tokens if self.share_embeddings else layers.Embedding(self.target_vocabulary, d, rng=rng)

        def embed(tokens: layers.Embedding) -> layers.InputEmbedding:
            scale = math.sqrt(d) if self.scale_embedding else 1.0
            norm = layers.LayerNorm(d) if self.embedding_norm else None
            if self.positions == "halves":
                return layers.InputEmbedding(tokens, HalvesPositions(d), scale, self.dropout, norm=norm)
            learned = OffsetPositions(self.n_positions, d, self.position_offset, rng)
            return layers.InputEmbedding(tokens, learned, scale, self.dropout, norm=norm)

        embed_source, embed_target = embed(source_tokens), embed(target_tokens)
        encoder = [layers.EncoderLayer(*sizes, rng=rng) for _ in range(self.n_encoder_layers)]
        decoder = [layers.DecoderLayer(*sizes, rng=rng) for _ in range(self.n_decoder_layers)]
        table = target_tokens if self.tie_output else layers.Embedding(self.target_vocabulary, d, rng=rng)
        return TransformerParts(
            embed_source=embed_source,
            embed_target=embed_target,
            encoder=layers.Encoder.of(encoder, layers.LayerNorm(d) if pre else None, self.recompute),
            decoder=layers.Decoder.of(decoder, layers.LayerNorm(d) if pre else None, self.recompute),
            output=BiasedOutput(table, self.target_vocabulary) if self.logit_bias else table,
        )


@dataclass(frozen=True)
class BartReaderConfig(twice_read.ReadByBoth, BartConfig):
    """Sizes of a BART that reads a text with both sides, as the body of a head."""

    start: int | None = 2  # before the decoder's text; None: the last token of the text
    end: int | None = None  # which token decides a class; None: the last one


class BiasedOutput(layers.Module):
    """logits = x tableᵀ + logit_bias. x: (..., width); logits: (..., vocabulary); logit_bias: (vocabulary,), zeros."""

    def __init__(self, tokens: layers.Embedding, vocabulary: int) -> None:
        self.tokens = tokens
        self.logit_bias = layers.Parameter(np.zeros(vocabulary, np.float32))

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dx."""
        products, products_backward = self.tokens.unembed(x)
        logits = products + self.logit_bias.value

        def backward(dlogits: Array) -> Array:
            self.logit_bias.grad += sum_over(dlogits, axis=tuple(range(dlogits.ndim - 1)))
            dproducts = dlogits
            dx = products_backward(dproducts)
            return dx

        return logits, backward

    def unembed_cost(self, batch: int, length: int) -> layers.Cost:
        """That of the table."""
        return self.tokens.unembed_cost(batch, length)


def _ours(fields: Fields, found: Found, head: str, stored: Stored, particular: Found) -> Found:
    fields.same("encoder_attention_heads", "decoder_attention_heads")
    fields.same("encoder_ffn_dim", "decoder_ffn_dim")
    fields.only(
        normalize_before=particular.get("norm_order") == "pre",
        normalize_embedding=particular.get("embedding_norm", False),
        num_hidden_layers=found["n_encoder_layers"],
    )
    if particular["positions"] == "halves":
        _check_positions(stored, found["d_model"])
    own: Found = {}
    if head in (CLASSES, ANSWERS):
        own["start"] = fields.get("decoder_start_token_id", 2) or 0
        if particular is _OF_MBART:  # its texts end with the name of their language
            own = {"start": None, "end": fields.count("eos_token_id", 2)}
    return {
        **own,
        **particular,
        "target_vocabulary": fields.size("decoder_vocab_size", found["source_vocabulary"]),
        "share_embeddings": fields.flag("share_encoder_decoder_embeddings", True) and found["tie_output"],
        "logit_bias": "final_logits_bias" in stored and bool(np.any(stored["final_logits_bias"].read())),
    }


def _check_positions(stored: Stored, width: int) -> None:
    """If a file holds a table of positions, require that it equals the one we compute."""
    if width % 2:
        raise ValueError(f"d_model must be even, since sines and cosines for the positions come in pairs; got {width}")
    for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
        if name in stored:
            shape = stored[name].shape
            if len(shape) != 2 or shape[1] != width:
                raise ValueError(f"{name} has shape {shape}, but d_model is {width}")
            if abs(stored[name].read() - in_halves(ops.sinusoidal_positions(*shape))).max() > 1e-2:
                raise ValueError(f"{name} does not hold sines and cosines; only BART can have learned positions")


def _theirs(config: BartConfig) -> Found:
    end = getattr(config, "end", None)
    return {
        "decoder_attention_heads": config.n_heads,
        "decoder_ffn_dim": config.d_ff,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "forced_eos_token_id": None,
        "decoder_start_token_id": getattr(config, "start", 0),
        **({} if end is None else {"eos_token_id": end}),
    }


def _marian_theirs(config: BartConfig) -> Found:
    shared = {"share_encoder_decoder_embeddings": config.share_embeddings}
    return {**_theirs(config), "decoder_vocab_size": config.target_vocabulary, **shared}


SHARED = """
shared                          =  (target_tokens,embed_source.tokens)
(encoder,decoder).embed_tokens  ~  target_tokens
(encoder,decoder).embed_tokens  ~  embed_source.tokens
"""
APART = """
shared                -
encoder.embed_tokens  =  embed_source.tokens
decoder.embed_tokens  =  target_tokens
"""
# The lines for both sides, and for what reads the memory, which Whisper has too.
SIDES = """
SIDE.layers.*.self_attn.(q,k,v,out)_proj  T  SIDE.layers.*.self_attention.sublayer.(query,key,value,output)
SIDE.layers.*.self_attn_layer_norm        =  SIDE.layers.*.self_attention.norm
SIDE.layers.*.(fc1,fc2)                   T  SIDE.layers.*.feed_forward.sublayer.(inner,output)
SIDE.layers.*.final_layer_norm            =  SIDE.layers.*.feed_forward.norm
SIDE.layer_norm                           =  SIDE.final_norm
"""
READING = SIDES.replace("SIDE", "(encoder,decoder)") + """
decoder.layers.*.encoder_attn.(q,k,v,out)_proj  T  decoder.layers.*.cross_attention.sublayer.(query,key,value,output)
decoder.layers.*.encoder_attn_layer_norm        =  decoder.layers.*.cross_attention.norm
"""  # fmt: skip
LAYERS = f"""
(encoder,decoder).embed_positions      =  embed_(source,target).positions
(encoder,decoder).layernorm_embedding  =  embed_(source,target).norm
{READING}
(encoder,decoder).embed_positions      -
/lm_head                               =  (output,output.tokens)
/lm_head                               ~  target_tokens
/final_logits_bias                     row  output.logit_bias
/final_logits_bias                     -
{twice_read.NAMES}"""


def _positions(config: BartConfig) -> dict[str, Array]:
    """The tables of sines and cosines, which a Pegasus has in its files."""
    table = in_halves(ops.sinusoidal_positions(config.n_positions, config.d_model))
    return {f"{side}.embed_positions.weight": table for side in ("encoder", "decoder")}


def names(config: BartConfig) -> str:
    """The table of names. All but a Marian keep a shared table also where nothing shares it."""
    return marian_names(config) + ("" if config.share_embeddings else "shared + target_tokens")


def marian_names(config: BartConfig) -> str:
    """The table of names of a Marian."""
    return (SHARED if config.share_embeddings else APART) + LAYERS


_SMALL = {
    "vocab_size": 13, "d_model": 12, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 16, "pad_token_id": 1,
    "bos_token_id": None, "eos_token_id": None, "forced_eos_token_id": None, "decoder_start_token_id": 2,
}  # fmt: skip


def _of(particular: Found) -> dict[str, Any]:
    """What the families have in common, and what reads the fields of one. particular: what all its models share."""
    return {
        "only": {"add_bias_logits": False, "do_blenderbot_90_layernorm": False},
        "more_ours": lambda fields, found, head, stored: _ours(fields, found, head, stored, particular),
        "more_theirs": _theirs,
        "of_head": {CLASSES: BartReaderConfig, ANSWERS: BartReaderConfig},
        "small": _SMALL,
        "heads": twice_read.LAST_MAP,
        "ignored": "is_decoder static_position_embeddings extra_pos_embeddings add_final_layer_norm",
    }


_ENDS = {"Model": BODY, "ForConditionalGeneration": WORDS}
_READERS = _ENDS | {"ForSequenceClassification": CLASSES, "ForQuestionAnswering": ANSWERS}
FAMILIES = (
    Family(
        "bart", "model", BartConfig, classes("Bart", _READERS), FIELDS, names, **_of(_OF_BART),
        adds="learned positions, a norm after the embedding, a bias of the logits",
    ),
    Family(
        "mbart", "model", BartConfig, classes("MBart", _READERS), FIELDS, names, **_of(_OF_MBART),
        adds="as BART; pre-norm order, a bias of the logits",
    ),
    Family(
        "pegasus", "model", BartConfig, classes("Pegasus", _ENDS), FIELDS, names, **_of(_OF_PEGASUS),
        adds="pre-norm order, a bias of the logits",
        computed=_positions,
    ),
    Family(
        "marian", "model", BartConfig, classes("Marian", {"Model": BODY, "MTModel": WORDS}), FIELDS, marian_names,
        **_of(_OF_MARIAN) | {"more_theirs": _marian_theirs},
        adds="a bias of the logits",
    ),
)  # fmt: skip
