"""The encoder-decoder Transformer. Vaswani et al. 2017, "Attention Is All You Need", sections 3 and 5.4.

    memory = encoder(embed(source))
    logits = decoder(embed(target), memory) tableᵀ

The encoder reads the whole source; the decoder reads the target up to each position and says which token comes next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_array
from ..layers import (
    Cache,
    Cost,
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
    InputEmbedding,
    LayerNorm,
    SinusoidalPositions,
)
from ..layers.cache import check_cache, no_backward
from ..layers.part_cost import Costs
from .checks import check_batch, check_shared, padding_keys, parts_of
from .encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class TransformerParts:
    """The parts of an encoder-decoder. output: a part whose `unembed` turns vectors into logits."""

    embed_source: InputEmbedding
    embed_target: InputEmbedding
    encoder: Encoder
    decoder: Decoder
    output: Any


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of an encoder-decoder. The defaults are the paper's base model (table 3); the vocabularies have none.

    BIG: where the paper's big model differs.
    """

    BIG: ClassVar[dict[str, Any]] = {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "dropout": 0.3}

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
    recompute: bool = False

    def build(self, rng: Rng | None = None) -> Transformer:
        """The model of these sizes, untrained."""
        return Transformer(self, rng)

    def parts(self, rng: Rng) -> TransformerParts:
        """The parts of the paper's model."""
        d = self.d_model
        sizes = (d, self.n_heads, self.d_ff, self.dropout, self.attention_dropout, self.activation, self.norm_order)
        source_tokens = Embedding(self.source_vocabulary, d, rng=rng)
        target_tokens = source_tokens if self.share_embeddings else Embedding(self.target_vocabulary, d, rng=rng)
        encoder_layers = [EncoderLayer(*sizes, rng=rng) for _ in range(self.n_encoder_layers)]
        decoder_layers = [DecoderLayer(*sizes, rng=rng) for _ in range(self.n_decoder_layers)]

        def embed(tokens: Embedding) -> InputEmbedding:
            return InputEmbedding(tokens, SinusoidalPositions(d), math.sqrt(d), self.dropout)

        def final_norm() -> LayerNorm | None:
            return LayerNorm(d) if self.norm_order == "pre" else None

        return TransformerParts(
            embed_source=embed(source_tokens),
            embed_target=embed(target_tokens),
            encoder=Encoder.of(encoder_layers, final_norm(), self.recompute),
            decoder=Decoder.of(decoder_layers, final_norm(), self.recompute),
            output=target_tokens if self.tie_output else Embedding(self.target_vocabulary, d, rng=rng),
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
        return cls(vocabulary, vocabulary, **(cls.BIG | changes))


class Transformer(EncoderDecoder):
    """source ids and target ids to logits for the next target token.

    source: (B, T_src); target: (B, T); logits: (B, T, target_vocabulary). source_mask, target_mask: boolean, (B, T_src)
    and (B, T), True where a token is real and not padding.
    """

    def __init__(self, config: Any, rng: Rng | None = None) -> None:
        """config: a TransformerConfig, or another whose `parts(rng)` are those of an encoder-decoder."""
        parts = parts_of("Transformer", config, TransformerConfig, TransformerParts, rng)
        check_shared("Transformer", config)
        self.config = config
        self.target_tokens = parts.embed_target.tokens
        self.embed_source, self.embed_target = parts.embed_source, parts.embed_target
        self.encoder, self.decoder = parts.encoder, parts.decoder
        self.output = parts.output

    def new_cache(self) -> Cache:
        """An empty cache for `decode`."""
        return self.decoder.new_cache()

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training, source and target alike; see `minitransformer.cost`."""
        d, vocabulary = self.target_tokens.table.value.shape[1], self.config.target_vocabulary
        shape = (batch, length, d)
        yield "target_tokens", shape, Cost()
        yield "embed_source", shape, self.embed_source.cost(batch, length)
        yield "embed_target", shape, self.embed_target.cost(batch, length)
        yield from self.encoder.costs("encoder", batch, length)
        yield "memory", shape, Cost(kept=math.prod(shape))  # which every decoder layer reads
        yield from self.decoder.costs("decoder", batch, length)
        yield "output", (batch, length, vocabulary), self.output.unembed_cost(batch, length)
        yield "loss", (), Cost(kept=2 * batch * length * vocabulary)

    def encode(self, source: Array, source_mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (memory, backward). memory: (B, T_src, D); backward(dmemory) returns None."""
        check_batch("Transformer", "source", source)
        embedded, embed_backward = self.embed_source(source, rng=rng)
        memory, encoder_backward = self.encoder(
            embedded, mask=padding_keys("Transformer", "source_mask", source_mask, source.shape), rng=rng
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
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dmemory.

        With a cache, target holds only the tokens that come after those read before, and there is no backward.
        """
        hidden, hidden_backward = self.hidden(target, memory, source_mask, target_mask, cache, rng)
        logits, unembed_backward = self.output.unembed(hidden)

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
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """The vectors of the target that the logits are made of. hidden: (B, T, D); the rest: see `decode`."""
        check_batch("Transformer", "target", target)
        check_array("Transformer", "memory", memory)
        check_cache("Transformer", cache, len(self.decoder.layers))
        start = 0 if cache is None else cache.length
        target_keys = padding_keys(
            "Transformer", "target_mask", target_mask, (target.shape[0], start + target.shape[1])
        )
        source_keys = padding_keys("Transformer", "source_mask", source_mask, memory.shape[:-1])
        embedded, embed_backward = self.embed_target(target, start=start, rng=rng)
        hidden, decoder_backward = self.decoder(
            embedded, memory, mask=target_keys, memory_mask=source_keys, cache=cache, rng=rng
        )

        def backward(dhidden: Array) -> Array:
            dembedded, dmemory = decoder_backward(dhidden)
            embed_backward(dembedded)
            return dmemory

        return hidden, backward if cache is None else no_backward
