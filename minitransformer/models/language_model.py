"""The decoder-only language model. Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).

    logits = norm(causal stack(tokens + positions)) tableᵀ

Each position predicts the token after it and sees only what came before, so one pass gives T predictions.

The language models of today (Touvron et al. 2023, "LLaMA", section 2.2) are the same stack with other parts: RMSNorm,
positions by rotation, gated feed-forward networks, no biases, heads of queries that share keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays.backend import Array, Pullback
from ..layers import Cache, Embedding, Encoder, InputEmbedding, LearnedPositions, Module
from ..layers.cache import check_cache, no_backward
from ..layers.module import generator
from .encoder_decoder import check_sequences, keys


@dataclass(frozen=True)
class LanguageModelConfig:
    """Sizes of a decoder-only model. The defaults are those of GPT-2's smallest, of 124 million parameters."""

    vocabulary: int
    max_length: int = 1024
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu_tanh"
    bias: bool = True
    norm_order: str = "pre"
    checkpoint: bool = False
    norm: str = "layer_norm"
    norm_eps: float = 1e-5
    gated: bool = False
    n_key_heads: int | None = None  # that the heads of queries share; n_heads unless given
    d_head: int | None = None  # width of a head; d_model / n_heads unless given
    qkv_bias: bool | None = None  # of queries, keys and values; as `bias` unless given
    rotary_base: float | None = None  # positions by rotation, in place of a learned table
    alibi: bool = False  # scores that fall with the distance, in place of a learned table
    window: int | None = None  # how many tokens back attention reaches, the token itself included
    tie_output: bool = True  # the table of tokens also makes the logits


class LanguageModel(Module):
    """ids to logits for the token after each. ids: (B, T) with T up to max_length; logits: (B, T, vocabulary)."""

    def __init__(self, config: LanguageModelConfig, rng: np.random.Generator | None = None) -> None:
        rng = generator(rng)
        self.config = config
        self.tokens = Embedding(config.vocabulary, config.d_model, std=0.02, rng=rng)
        positions = None
        if config.rotary_base is None and not config.alibi:
            positions = LearnedPositions(config.max_length, config.d_model, rng=rng)
        self.embed = InputEmbedding(self.tokens, positions, dropout=config.dropout)
        self.stack = Encoder(
            config.n_layers,
            config.d_model,
            config.n_heads,
            config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation=config.activation,
            bias=config.bias,
            norm_order=config.norm_order,
            checkpoint=config.checkpoint,
            norm=config.norm,
            eps=config.norm_eps,
            gated=config.gated,
            attention={
                "n_key_heads": config.n_key_heads,
                "d_k": config.d_head,
                "d_v": config.d_head,
                "bias": config.bias if config.qkv_bias is None else config.qkv_bias,
                "output_bias": config.bias,
                "rotary_base": config.rotary_base,
                "alibi": config.alibi,
                "window": config.window,
            },
            rng=rng,
        )
        self.output = None if config.tie_output else Embedding(config.vocabulary, config.d_model, std=0.02, rng=rng)

    def __call__(
        self,
        ids: Array,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
        last: bool = False,
        mask: Array | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None, since ids have no gradient.

        With a cache, ids holds only the tokens that come after those read before, and there is no backward. With
        last=True, for a cache only, the logits are those of the last position, (B, 1, vocabulary).
        mask: boolean, (B, tokens read before + T), True where a token is real and not padding. positions: integers
        (B, T), where they do not count from 0 on, as in sequences that are padded on the left; see `positions_of`.
        """
        if last and cache is None:
            raise ValueError("LanguageModel: last=True is for reading with a cache; without one take logits[:, -1:]")
        hidden, hidden_backward = self.hidden(ids, cache, rng, mask, positions)
        if last:
            hidden = hidden[:, -1:]
        logits, unembed_backward = (self.output or self.tokens).unembed(hidden)

        def backward(dlogits: Array) -> None:
            dhidden = unembed_backward(dlogits)
            hidden_backward(dhidden)

        return logits, backward if cache is None else no_backward

    def hidden(
        self,
        ids: Array,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
        mask: Array | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """The vectors that the logits are made of. hidden: (B, T, D); the rest as of a call."""
        check_sequences("LanguageModel", "ids", ids)
        check_cache("LanguageModel", cache, self.config.n_layers)
        start = 0 if cache is None else cache.length
        real = keys("LanguageModel", "mask", mask, (ids.shape[0], start + ids.shape[1]))
        embedded, embed_backward = self.embed(ids, start=start, rng=rng, at=positions)
        hidden, stack_backward = self.stack(embedded, mask=real, causal=True, cache=cache, rng=rng, positions=positions)

        def backward(dhidden: Array) -> None:
            dembedded = stack_backward(dhidden)
            embed_backward(dembedded)

        return hidden, backward if cache is None else no_backward

    def loss(
        self,
        ids: Array,
        wanted: Array,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        rng: np.random.Generator | None = None,
        mask: Array | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the next tokens. wanted: (B, T), ids moved on by one. backward(dloss=1.0) returns None."""
        logits, model_backward = self(ids, rng=rng, mask=mask, positions=positions)
        loss, loss_backward = self.ops.cross_entropy(logits, wanted, ignore_index, label_smoothing)

        def backward(dloss: Array | float = 1.0) -> None:
            dlogits = loss_backward(dloss)
            model_backward(dlogits)

        return loss, backward


def positions_of(mask: Array) -> Array:
    """The position of each token among the real ones of its sequence. mask: boolean (B, T); returns integers (B, T).

    positions_of([[0, 0, 1, 1], [1, 1, 1, 0]]) is [[0, 0, 0, 1], [0, 1, 2, 2]]: padding gets a position as well, which
    nobody looks at.
    """
    counts = mask.cumsum(axis=-1) - 1
    return counts * (counts > 0)
