"""T5: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".

Version 1.1 has a gated feed-forward network, and a table of its own for the logits, which are then not scaled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..transformer import TransformerConfig
from .family import BODY, WORDS, Family, Stored
from .fields import ACTIVATIONS, Fields, renamed, their_activation

SIZES = {
    "source_vocabulary": "vocab_size",
    "d_model": "d_model",
    "n_heads": "num_heads",
    "d_ff": "d_ff",
    "d_head": "d_kv",
    "n_encoder_layers": "num_layers",
}
_FEED_FORWARD = {name: (meaning, False) for name, meaning in ACTIVATIONS.items()} | {
    f"gated-{name}": ("gelu_tanh" if name == "gelu" else meaning, True) for name, meaning in ACTIVATIONS.items()
}


def ours(fields: Fields, head: str, stored: Stored) -> TransformerConfig:
    """The config of T5's config.json. Whether the table is tied is seen in the file: the field means the scale."""
    sizes = fields.sizes(SIZES)
    activation, gated = fields.choice("feed_forward_proj", _FEED_FORWARD, "relu")
    scaled = fields.flag("tie_word_embeddings", True)
    rate = fields.rates({"dropout": "dropout_rate"})["dropout"]
    tied = "lm_head.weight" not in stored or _same(stored, "lm_head.weight", "shared.weight")
    return TransformerConfig(
        **sizes,
        target_vocabulary=sizes["source_vocabulary"],
        n_decoder_layers=fields.size("num_decoder_layers", sizes["n_encoder_layers"]),
        dropout=rate,
        attention_dropout=rate,
        activation=activation,
        gated=gated,
        bias=False,
        norm="rms_norm",
        norm_order="pre",
        norm_eps=fields.positive("layer_norm_epsilon", 1e-6),
        positions="relative",
        relative_buckets=fields.size("relative_attention_num_buckets", 32),
        relative_distance=fields.size("relative_attention_max_distance", 128),
        scale_embedding=False,
        scale_scores=False,
        scale_logits=fields.flag("scale_decoder_outputs", scaled),
        tie_output=tied,
    )


def _same(stored: Stored, name: str, other: str) -> bool:
    return (
        other in stored
        and stored[name].shape == stored[other].shape
        and np.array_equal(stored[name].read(), stored[other].read())
    )


def theirs(config: TransformerConfig) -> dict[str, Any]:
    """T5's config.json."""
    kind = their_activation(config.activation)
    return {
        **renamed(config, SIZES),
        "num_decoder_layers": config.n_decoder_layers,
        "dropout_rate": config.dropout,
        "feed_forward_proj": f"gated-{'gelu' if kind == 'gelu_new' else kind}" if config.gated else kind,
        "layer_norm_epsilon": config.norm_eps,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "tie_word_embeddings": config.scale_logits,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


NAMES = """
shared                                         =  target_tokens
encoder.embed_tokens                           ~  target_tokens
decoder.embed_tokens                           ~  target_tokens
"""
# The lines of either side, SIDE. FF is the place of the feed-forward network in a layer.
LAYERS = """
SIDE.block.0.layer.0.SelfAttention.relative_attention_bias  =  SIDE.layers.0.self_attention.sublayer.relative
SIDE.block.*.layer.0.layer_norm             =  SIDE.layers.*.self_attention.norm
SIDE.block.*.layer.0.SelfAttention.q        T  SIDE.layers.*.self_attention.sublayer.query
SIDE.block.*.layer.0.SelfAttention.k        T  SIDE.layers.*.self_attention.sublayer.key
SIDE.block.*.layer.0.SelfAttention.v        T  SIDE.layers.*.self_attention.sublayer.value
SIDE.block.*.layer.0.SelfAttention.o        T  SIDE.layers.*.self_attention.sublayer.output
SIDE.block.*.layer.FF.layer_norm            =  SIDE.layers.*.feed_forward.norm
SIDE.block.*.layer.FF.DenseReluDense.wo     T  SIDE.layers.*.feed_forward.sublayer.output
SIDE.final_layer_norm                       =  SIDE.final_norm
"""
PLAIN = """
SIDE.block.*.layer.FF.DenseReluDense.wi     T  SIDE.layers.*.feed_forward.sublayer.inner
"""
GATED = """
SIDE.block.*.layer.FF.DenseReluDense.wi_0   T  SIDE.layers.*.feed_forward.sublayer.gate
SIDE.block.*.layer.FF.DenseReluDense.wi_1   T  SIDE.layers.*.feed_forward.sublayer.inner
"""
MEMORY = """
decoder.block.*.layer.1.layer_norm             =  decoder.layers.*.cross_attention.norm
decoder.block.*.layer.1.EncDecAttention.q      T  decoder.layers.*.cross_attention.sublayer.query
decoder.block.*.layer.1.EncDecAttention.k      T  decoder.layers.*.cross_attention.sublayer.key
decoder.block.*.layer.1.EncDecAttention.v      T  decoder.layers.*.cross_attention.sublayer.value
decoder.block.*.layer.1.EncDecAttention.o      T  decoder.layers.*.cross_attention.sublayer.output
decoder.block.0.layer.1.EncDecAttention.relative_attention_bias  -
"""
WORDS_NAMES = """
lm_head                                        =  output
lm_head                                        ~  target_tokens
"""


def names(config: TransformerConfig, head: str) -> tuple[str, str]:
    """The tables of the body and of the head."""
    side = LAYERS + (GATED if config.gated else PLAIN)
    encoder = side.replace("SIDE", "encoder").replace("FF", "1")
    decoder = side.replace("SIDE", "decoder").replace("FF", "2")
    return NAMES + encoder + decoder + MEMORY, {WORDS: WORDS_NAMES}.get(head, "")


FAMILY = Family(
    "t5",
    "",
    {"T5Model": BODY, "T5ForConditionalGeneration": WORDS},
    ours,
    theirs,
    names,
)
