"""The recurrent encoder-decoder, with and without attention: the model that the Transformer replaced.

    memory: a stack of layers that read the source both ways
    s_0    = tanh(memory_1 W)                        for each layer of the decoder
    h:      a stack of layers that read the target, starting from s_0
    y:      h, or tanh((context, h) W_c)            with attention to the memory; see layers/alignment.py
    logits = y tableᵀ

Sutskever et al. 2014 pass one vector of fixed size to the decoder, for a source of any length. Here it is the memory's
first vector; its second half has read the source from the end (Bahdanau et al. 2015, appendix A.2.2). With attention
the decoder sees every vector of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.boundary import check_array
from ...core.layers import Cache, Cost, Embedding, InputEmbedding, Linear
from ...core.layers.cache import check_cache, no_backward
from ...core.layers.module import generator
from ...core.layers.part_cost import Costs
from ...core.models.checks import check_batch, check_config, check_shared, padding_keys
from ...core.models.encoder_decoder import EncoderDecoder
from .alignment import SCORES, Alignment
from .recurrent import Bidirectional, Recurrent
from .state_cache import StateCache


@dataclass(frozen=True)
class RecurrentTranslatorConfig:
    """Sizes of a recurrent encoder-decoder. d_model is even: each direction of the encoder has half of it."""

    source_vocabulary: int
    target_vocabulary: int
    d_model: int = 512
    n_encoder_layers: int = 2
    n_decoder_layers: int = 2
    cell: str = "lstm"  # or "gru", "rnn"
    attention: str = "multiplicative"  # or "additive", "none"
    dropout: float = 0.1
    share_embeddings: bool = True

    def __post_init__(self) -> None:
        if self.attention not in (*SCORES, "none"):
            raise ValueError(
                f"RecurrentTranslatorConfig: attention must be one of the texts "
                f"{', '.join(map(repr, SCORES))} and 'none', got {self.attention!r}"
            )

    def build(self, rng: Rng | None = None) -> RecurrentTranslator:
        """The model of these sizes, untrained."""
        return RecurrentTranslator(self, rng)


class RecurrentTranslator(EncoderDecoder):
    """From source and target ids to logits for the next target token. It is called like a Transformer."""

    def __init__(self, config: RecurrentTranslatorConfig, rng: Rng | None = None) -> None:
        check_config("RecurrentTranslator", config, RecurrentTranslatorConfig)
        check_shared("RecurrentTranslator", config)
        rng = generator(rng)
        d = config.d_model
        self.config = config
        self.target_tokens = Embedding(config.target_vocabulary, d, rng=rng)
        source_tokens = (
            self.target_tokens if config.share_embeddings else Embedding(config.source_vocabulary, d, rng=rng)
        )
        scale = d**0.5
        self.embed_source = InputEmbedding(source_tokens, None, scale, config.dropout)
        self.embed_target = InputEmbedding(self.target_tokens, None, scale, config.dropout)
        self.encoder = [Bidirectional(d, d, config.cell, rng) for _ in range(config.n_encoder_layers)]
        self.decoder = [Recurrent(d, d, config.cell, rng=rng) for _ in range(config.n_decoder_layers)]
        self.starts = [Linear(d, layer.state_width, rng=rng) for layer in self.decoder]
        self.alignment = None if config.attention == "none" else Alignment(d, config.attention, rng)

    def new_cache(self) -> Cache:
        """An empty cache for `decode`."""
        return Cache(self.config.n_decoder_layers, StateCache)

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training, source and target alike; see `minitransformer.cost`."""
        vocabulary, d = self.target_tokens.table.value.shape
        shape = (batch, length, d)
        dropped = Cost(kept=batch * length * d if self.config.dropout else 0)
        yield "target_tokens", shape, Cost()
        yield "embed_source", shape, self.embed_source.cost(batch, length)
        yield "embed_target", shape, self.embed_target.cost(batch, length)
        for layer in self.encoder:
            yield "encoder.*", shape, layer.cost(batch, length) + dropped
        for start in self.starts:  # reads the memory's first vector
            width = start.weight.value.shape[1]
            yield "starts.*", (batch, width), start.cost(batch, 1)
        yield "memory", shape, Cost(kept=batch * length * d)
        for step in self.decoder:
            yield "decoder.*", shape, step.cost(batch, length) + dropped
        if self.alignment is not None:
            yield "alignment", shape, self.alignment.cost(batch, length)
        yield "output", (batch, length, vocabulary), self.target_tokens.unembed_cost(batch, length)
        yield "loss", (), Cost(kept=2 * batch * length * vocabulary)

    def encode(self, source: Array, source_mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (memory, backward). memory: (B, T_src, D); backward(dmemory) returns None."""
        check_batch("RecurrentTranslator", "source", source)
        padding_keys("RecurrentTranslator", "source_mask", source_mask, source.shape)
        x, embed_backward = self.embed_source(source, rng=rng)
        pullbacks = []
        for layer in self.encoder:
            y, layer_backward = layer(x, mask=source_mask)
            x, dropout_backward = self.ops.dropout(y, self.config.dropout, rng)
            pullbacks.append((layer_backward, dropout_backward))
        memory = x

        def backward(dmemory: Array) -> None:
            dx = dmemory
            for layer_backward, dropout_backward in reversed(pullbacks):
                dx = layer_backward(dropout_backward(dx))
            embed_backward(dx)

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
        """Return (logits, backward); backward(dlogits) returns dmemory. For the rest see Transformer.decode."""
        check_batch("RecurrentTranslator", "target", target)
        check_array("RecurrentTranslator", "memory", memory)
        check_cache("RecurrentTranslator", cache, self.config.n_decoder_layers)
        mask = padding_keys("RecurrentTranslator", "source_mask", source_mask, memory.shape[:-1])
        handed_over = memory[:, 0]
        x, embed_backward = self.embed_target(target, rng=rng)
        pullbacks = []
        for i, layer in enumerate(self.decoder):
            layer_cache: Any = None if cache is None else cache.self_attention[i]
            start, start_backward = self.starts[i](handed_over)
            state, tanh_backward = self.ops.tanh(start)
            y, layer_backward = layer(x, state, target_mask if cache is None else None, layer_cache)
            x, dropout_backward = self.ops.dropout(y, self.config.dropout, rng)
            pullbacks.append((start_backward, tanh_backward, layer_backward, dropout_backward))
        informed, alignment_backward = (x, None) if self.alignment is None else self.alignment(x, memory, mask)
        logits, unembed_backward = self.target_tokens.unembed(informed)

        def backward(dlogits: Array) -> Array:
            dinformed = unembed_backward(dlogits)
            dx, dasked = (dinformed, None) if alignment_backward is None else alignment_backward(dinformed)
            dhanded_over = array_module(dx).zeros_like(handed_over)
            for start_backward, tanh_backward, layer_backward, dropout_backward in reversed(pullbacks):
                dx, of_state = layer_backward(dropout_backward(dx))
                dhanded_over = dhanded_over + start_backward(tanh_backward(of_state))
            embed_backward(dx)
            of_first = array_module(dx).zeros_like(memory)
            of_first[:, 0] = dhanded_over
            dmemory = of_first if dasked is None else of_first + dasked
            return dmemory

        return logits, backward if cache is None else no_backward
