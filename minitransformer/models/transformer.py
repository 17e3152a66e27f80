"""The encoder-decoder Transformer. Vaswani et al. 2017, "Attention Is All You Need", sections 3 and 5.4.

    memory = encoder(embed(source))
    logits = decoder(embed(target), memory) tableᵀ

The encoder reads the whole source; the decoder reads the target up to each position and says which token comes next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_array
from ..layers import (
    Cache,
    Decoder,
    Embedding,
    Encoder,
    InputEmbedding,
    KeyValueCache,
    LearnedPositions,
    Parameter,
    RelativeBias,
    SinusoidalPositions,
    StateCache,
)
from ..layers.cache import check_cache, no_backward
from ..layers.embedding import Positions
from ..layers.module import generator
from ..layers.normalization import NORMS
from .encoder_decoder import EncoderDecoder, check_sequences, check_shared, keys


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of an encoder-decoder. The defaults are the paper's base model (table 3); the vocabularies have none."""

    source_vocabulary: int
    target_vocabulary: int
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "relu"
    norm_order: str = "post"
    share_embeddings: bool = True  # one table for source and target, which needs one vocabulary (section 3.4)
    tie_output: bool = True  # the target's table also makes the logits
    checkpoint: bool = False
    norm: str = "layer_norm"
    norm_eps: float = 1e-5
    gated: bool = False
    bias: bool = True
    d_head: int | None = None  # width of a head; d_model / n_heads unless given
    final_norm: bool | None = None  # after each stack; with pre-norm unless given
    positions: str = "sinusoidal"  # "halves" (all sines, then all cosines), "learned", "relative" (T5's bias), "alibi"
    relative_buckets: int = 32  # of the relative positions
    relative_distance: int = 128  # from which on all share the last bucket
    n_positions: int = 1024  # in a learned table
    position_offset: int = 0  # rows of the learned table before position 0
    scale_embedding: bool = True  # by √d_model (section 3.4)
    embedding_norm: bool = False
    scale_scores: bool = True  # by 1/√d_k; T5 has it in its initial weights instead
    scale_logits: bool = False  # by 1/√d_model, as T5 does where its table makes the logits
    logit_bias: bool = False
    mixing: str = "attention"  # what mixes the positions of a layer; or "convolution" in its place
    kernel: int = 5  # of the convolutions

    def __post_init__(self) -> None:
        if self.positions not in ("sinusoidal", "halves", "learned", "relative", "alibi"):
            raise ValueError(
                f'TransformerConfig: positions must be "sinusoidal", "halves", "learned", "relative" or "alibi", '
                f"got {self.positions!r}"
            )

    @classmethod
    def base(cls, vocabulary: int = 37000, **changes: Any) -> TransformerConfig:
        """The paper's base model: 6 + 6 layers, d_model 512, 8 heads, d_ff 2048, dropout 0.1; 63 million parameters.

        Table 3 has 65 million, which is right for a vocabulary of 41000.
        """
        return cls(vocabulary, vocabulary, **changes)

    @classmethod
    def big(cls, vocabulary: int = 37000, **changes: Any) -> TransformerConfig:
        """The paper's big model: d_model 1024, 16 heads, d_ff 4096, dropout 0.3; 214 million parameters."""
        sizes = {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "dropout": 0.3}
        return cls(vocabulary, vocabulary, **(sizes | changes))


class Transformer(EncoderDecoder):
    """source ids and target ids to logits for the next target token.

    source: (B, T_src); target: (B, T); logits: (B, T, target_vocabulary). source_mask, target_mask: boolean, (B, T_src)
    and (B, T), True where a token is real and not padding.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator | None = None) -> None:
        check_shared("Transformer", config)
        rng = generator(rng)
        self.config = config
        sizes = (config.d_model, config.n_heads, config.d_ff)
        options: dict[str, Any] = {
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation": config.activation,
            "norm_order": config.norm_order,
            "checkpoint": config.checkpoint,
            "norm": config.norm,
            "eps": config.norm_eps,
            "gated": config.gated,
            "bias": config.bias,
            "final_norm": config.final_norm,
            "rng": rng,
        }
        scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        source_tokens = Embedding(config.source_vocabulary, config.d_model, rng=rng)
        self.target_tokens = (
            source_tokens if config.share_embeddings else Embedding(config.target_vocabulary, config.d_model, rng=rng)
        )
        source_norm, target_norm = (
            NORMS[config.norm](config.d_model, config.norm_eps) if config.embedding_norm else None for _ in range(2)
        )
        self.embed_source = InputEmbedding(
            source_tokens, self._positions(config, rng), scale, config.dropout, norm=source_norm
        )
        self.embed_target = InputEmbedding(
            self.target_tokens, self._positions(config, rng), scale, config.dropout, norm=target_norm
        )
        options |= {"mixing": config.mixing, "kernel": config.kernel}
        attention = {
            "d_k": config.d_head,
            "d_v": config.d_head,
            "scale": None if config.scale_scores else 1.0,
            "alibi": config.positions == "alibi",
        }
        looks_back, looks_around = (
            RelativeBias(config.n_heads, config.relative_buckets, config.relative_distance, both_ways, rng=rng)
            if config.positions == "relative"
            else None
            for both_ways in (False, True)
        )
        self.encoder = Encoder(
            config.n_encoder_layers, *sizes, **options, attention=attention | {"relative": looks_around}
        )
        self.decoder = Decoder(
            config.n_decoder_layers, *sizes, **options, attention=attention | {"relative": looks_back}
        )
        self.output = None if config.tie_output else Embedding(config.target_vocabulary, config.d_model, rng=rng)
        self.logit_bias = Parameter(np.zeros(config.target_vocabulary, np.float32)) if config.logit_bias else None

    def new_cache(self) -> Cache:
        """An empty cache for `decode`."""
        kind = KeyValueCache if self.config.mixing == "attention" else StateCache
        return Cache(self.config.n_decoder_layers, kind)

    @staticmethod
    def _positions(config: TransformerConfig, rng: np.random.Generator) -> Positions | None:
        if config.positions in ("relative", "alibi"):
            return None
        if config.positions == "learned":
            return LearnedPositions(config.n_positions, config.d_model, rng=rng, offset=config.position_offset)
        return SinusoidalPositions(config.d_model, interleaved=config.positions == "sinusoidal")

    def encode(
        self, source: Array, source_mask: Array | None = None, rng: np.random.Generator | None = None
    ) -> tuple[Array, Pullback]:
        """Return (memory, backward). memory: (B, T_src, D); backward(dmemory) returns None."""
        check_sequences("Transformer", "source", source)
        embedded, embed_backward = self.embed_source(source, rng=rng)
        memory, encoder_backward = self.encoder(
            embedded, mask=keys("Transformer", "source_mask", source_mask, source.shape), rng=rng
        )

        def backward(dmemory: Array) -> None:
            dembedded = encoder_backward(dmemory)
            embed_backward(dembedded)

        return memory, backward

    def decode(
        self,
        target: Array,
        memory: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dmemory.

        With a cache, target holds only the tokens that come after those read before, and there is no backward.
        """
        hidden, hidden_backward = self.hidden(target, memory, source_mask, target_mask, cache, rng)
        logits, unembed_backward = self._unembed(hidden)

        def backward(dlogits: Array) -> Array:
            dhidden = unembed_backward(dlogits)
            dmemory = hidden_backward(dhidden)
            return dmemory

        return logits, backward if cache is None else no_backward

    def hidden(
        self,
        target: Array,
        memory: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """The vectors of the target that the logits are made of. hidden: (B, T, D); the rest: see `decode`."""
        check_sequences("Transformer", "target", target)
        check_array("Transformer", "memory", memory)
        check_cache("Transformer", cache, self.config.n_decoder_layers)
        start = 0 if cache is None else cache.length
        target_keys = keys("Transformer", "target_mask", target_mask, (target.shape[0], start + target.shape[1]))
        source_keys = keys("Transformer", "source_mask", source_mask, memory.shape[:-1])
        embedded, embed_backward = self.embed_target(target, start=start, rng=rng)
        hidden, decoder_backward = self.decoder(
            embedded, memory, mask=target_keys, memory_mask=source_keys, cache=cache, rng=rng
        )

        def backward(dhidden: Array) -> Array:
            dembedded, dmemory = decoder_backward(dhidden)
            embed_backward(dembedded)
            return dmemory

        return hidden, backward if cache is None else no_backward

    def _unembed(self, hidden: Array) -> tuple[Array, Pullback]:
        """logits = (hidden · scale) tableᵀ + bias, with the scale and the bias that the config asks for."""
        scale = 1.0 / math.sqrt(self.config.d_model) if self.config.scale_logits else 1.0
        scaled = hidden * scale if self.config.scale_logits else hidden
        products, products_backward = (self.output or self.target_tokens).unembed(scaled)
        logits = products if self.logit_bias is None else products + self.logit_bias.value

        def backward(dlogits: Array) -> Array:
            if self.logit_bias is not None:
                self.logit_bias.grad += dlogits.sum(axis=(0, 1))
            dproducts = dlogits
            dscaled = products_backward(dproducts)
            dhidden = dscaled * scale if self.config.scale_logits else dscaled
            return dhidden

        return logits, backward
