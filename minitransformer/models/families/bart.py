"""BART: Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training ..."; and its kin.

Pegasus (Zhang et al. 2020) has its norms before the sub-layers, Marian (Junczys-Dowmunt et al. 2018) behind them as
BART has. Both have sines and cosines for positions, first all sines, then all cosines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ..transformer import TransformerConfig
from .family import BODY, WORDS, Family, Stored
from .fields import ACTIVATIONS, Fields, renamed, their_activation

SIZES = {
    "source_vocabulary": "vocab_size",
    "d_model": "d_model",
    "n_heads": "encoder_attention_heads",
    "d_ff": "encoder_ffn_dim",
    "n_encoder_layers": "encoder_layers",
    "n_decoder_layers": "decoder_layers",
    "n_positions": "max_position_embeddings",
}
RATES = {"dropout": "dropout", "attention_dropout": "attention_dropout"}
# Of the families that BART began: the fields of our config that are the same in each of its models.
_OF_BART: dict[str, Any] = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
_OF_PEGASUS: dict[str, Any] = {"positions": "halves", "norm_order": "pre"}
_OF_MARIAN: dict[str, Any] = {"positions": "halves"}


def _ours(fields: Fields, stored: Stored, particular: dict[str, Any]) -> TransformerConfig:
    fields.same("encoder_attention_heads", "decoder_attention_heads")
    fields.same("encoder_ffn_dim", "decoder_ffn_dim")
    fields.only(normalize_before=particular.get("norm_order") == "pre", extra_pos_embeddings=2)
    fields.only(normalize_embedding=particular.get("embedding_norm", False))
    sizes, tied = fields.sizes(SIZES), fields.flag("tie_word_embeddings", True)
    if particular["positions"] == "halves":
        _check_positions(stored, sizes["d_model"])
    return TransformerConfig(
        **sizes,
        **fields.rates(RATES),
        **particular,
        target_vocabulary=fields.size("decoder_vocab_size", sizes["source_vocabulary"]),
        activation=fields.choice("activation_function", ACTIVATIONS, "gelu"),
        scale_embedding=fields.flag("scale_embedding", False),
        share_embeddings=tied and fields.flag("share_encoder_decoder_embeddings", True),
        tie_output=tied,
        logit_bias="final_logits_bias" in stored and bool(np.any(stored["final_logits_bias"].read())),
    )


def _check_positions(stored: Stored, width: int) -> None:
    """Where a file holds the table of positions, it must be the one we compute."""
    for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
        if name in stored:
            shape = stored[name].shape
            if len(shape) != 2 or shape[1] != width or width % 2:
                raise ValueError(f"{name} has shape {shape}, but d_model is {width}")
            if abs(stored[name].read() - ops.sinusoidal_positions(*shape, interleaved=False)).max() > 1e-2:
                raise ValueError(f"{name} does not hold sines and cosines, and learned positions are BART's alone")


def _theirs(config: TransformerConfig) -> dict[str, Any]:
    return {
        **renamed(config, SIZES, RATES),
        "decoder_attention_heads": config.n_heads,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": their_activation(config.activation),
        "scale_embedding": config.scale_embedding,
        "tie_word_embeddings": config.tie_output,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
        "forced_eos_token_id": None,
        "decoder_start_token_id": 0,
    }


def _marian_theirs(config: TransformerConfig) -> dict[str, Any]:
    return {
        **_theirs(config),
        "decoder_vocab_size": config.target_vocabulary,
        "share_encoder_decoder_embeddings": config.share_embeddings,
    }


SHARED = """
shared                                 =  target_tokens
encoder.embed_tokens                   ~  target_tokens
decoder.embed_tokens                   ~  target_tokens
"""
APART = """
shared                                 -
encoder.embed_tokens                   =  embed_source.tokens
decoder.embed_tokens                   =  target_tokens
"""
# The lines of either side, SIDE.
LAYERS = """
SIDE.embed_positions                =  embed_OF.positions
SIDE.layernorm_embedding            =  embed_OF.norm
SIDE.layers.*.self_attn.q_proj      T  SIDE.layers.*.self_attention.sublayer.query
SIDE.layers.*.self_attn.k_proj      T  SIDE.layers.*.self_attention.sublayer.key
SIDE.layers.*.self_attn.v_proj      T  SIDE.layers.*.self_attention.sublayer.value
SIDE.layers.*.self_attn.out_proj    T  SIDE.layers.*.self_attention.sublayer.output
SIDE.layers.*.self_attn_layer_norm  =  SIDE.layers.*.self_attention.norm
SIDE.layers.*.fc1                   T  SIDE.layers.*.feed_forward.sublayer.inner
SIDE.layers.*.fc2                   T  SIDE.layers.*.feed_forward.sublayer.output
SIDE.layers.*.final_layer_norm      =  SIDE.layers.*.feed_forward.norm
SIDE.layer_norm                     =  SIDE.final_norm
SIDE.embed_positions                -
"""
MEMORY = """
decoder.layers.*.encoder_attn.q_proj   T  decoder.layers.*.cross_attention.sublayer.query
decoder.layers.*.encoder_attn.k_proj   T  decoder.layers.*.cross_attention.sublayer.key
decoder.layers.*.encoder_attn.v_proj   T  decoder.layers.*.cross_attention.sublayer.value
decoder.layers.*.encoder_attn.out_proj T  decoder.layers.*.cross_attention.sublayer.output
decoder.layers.*.encoder_attn_layer_norm  =  decoder.layers.*.cross_attention.norm
"""
WORDS_NAMES = """
lm_head                                =  output
lm_head                                ~  target_tokens
final_logits_bias                      row  logit_bias
final_logits_bias                      -
"""


def names(config: TransformerConfig, head: str) -> tuple[str, str]:
    """The tables of the body and of the head."""
    tables = SHARED if config.share_embeddings else APART
    encoder, decoder = LAYERS.replace("OF", "source"), LAYERS.replace("OF", "target")
    body = tables + encoder.replace("SIDE", "encoder") + decoder.replace("SIDE", "decoder") + MEMORY
    return body, {WORDS: WORDS_NAMES}.get(head, "")


def _family(model_type: str, body: str, words: str, particular: dict[str, Any], theirs: Any = _theirs) -> Family:
    return Family(
        model_type,
        "model",
        {body: BODY, words: WORDS},
        lambda fields, head, stored: _ours(fields, stored, particular),
        theirs,
        names,
    )


BART = _family("bart", "BartModel", "BartForConditionalGeneration", _OF_BART)
PEGASUS = _family("pegasus", "PegasusModel", "PegasusForConditionalGeneration", _OF_PEGASUS)
MARIAN = _family("marian", "MarianModel", "MarianMTModel", _OF_MARIAN, _marian_theirs)
