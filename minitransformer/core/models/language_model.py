"""The decoder-only language model. Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).

    logits = norm(causal stack(tokens + positions)) tableᵀ

Each position predicts the token after it and sees only what came before, so one pass gives T predictions.

The language models of today are the same stack with other parts; their recipes are in published/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_flags
from ..layers import (
    Cache,
    Cost,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    InputEmbedding,
    LayerNorm,
    LearnedPositions,
    Module,
    MultiHeadAttention,
    Residual,
)
from ..layers.cache import check_cache, no_backward
from ..layers.part_cost import Costs
from .checks import check_batch, padding_keys, parts_of


@dataclass(frozen=True)
class LanguageModelParts:
    """The parts of a decoder-only model. output: a part whose `unembed` turns vectors into logits."""

    embed: InputEmbedding
    stack: Encoder
    output: Any


@dataclass(frozen=True)
class LanguageModelConfig:
    """Sizes of GPT-2. The defaults are those of the smallest, of 124 million parameters."""

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
    norm_eps: float = 1e-5
    tie_output: bool = True  # the table of tokens also makes the logits
    recompute: bool = False

    def build(self, rng: Rng | None = None) -> LanguageModel:
        """The model of these sizes, untrained."""
        return LanguageModel(self, rng)

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of GPT-2."""
        d = self.d_model
        tokens = Embedding(self.vocabulary, d, std=0.02, rng=rng)
        positions = LearnedPositions(self.max_length, d, rng=rng)

        def residual(sublayer: Module) -> Residual:
            return Residual(sublayer, LayerNorm(d, self.norm_eps), self.norm_order, self.dropout)

        def layer() -> EncoderLayer:
            attention = MultiHeadAttention(d, self.n_heads, bias=self.bias, dropout=self.attention_dropout, rng=rng)
            feed_forward = FeedForward(d, self.d_ff, self.activation, self.bias, rng)
            return EncoderLayer.of(residual(attention), residual(feed_forward))

        layers = [layer() for _ in range(self.n_layers)]
        final_norm = LayerNorm(d, self.norm_eps) if self.norm_order == "pre" else None
        return LanguageModelParts(
            embed=InputEmbedding(tokens, positions, dropout=self.dropout),
            stack=Encoder.of(layers, final_norm, self.recompute),
            output=tokens if self.tie_output else Embedding(self.vocabulary, d, std=0.02, rng=rng),
        )


class LanguageModel(Module):
    """ids to logits for the token after each. ids: (B, T) with T up to max_length; logits: (B, T, vocabulary)."""

    named_by = "tokens"
    does = "continues a text"

    def __init__(self, config: Any, rng: Rng | None = None) -> None:
        """config: a LanguageModelConfig, or another whose `parts(rng)` are those of a decoder-only model."""
        parts = parts_of("LanguageModel", config, LanguageModelConfig, LanguageModelParts, rng)
        self.config = config
        self.tokens = parts.embed.tokens
        self.embed, self.stack, self.output = parts.embed, parts.stack, parts.output

    def new_cache(self) -> Cache:
        """An empty cache for calls with new tokens."""
        return self.stack.new_cache()

    def __call__(
        self,
        ids: Array,
        cache: Cache | None = None,
        rng: Rng | None = None,
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
        if last:
            check_flags("LanguageModel", last=last)
            if cache is None:
                raise ValueError("LanguageModel: last=True is for reading with a cache; else take logits[:, -1:]")
        hidden, hidden_backward = self.hidden(ids, cache, rng, mask, positions)
        if last:
            hidden = hidden[:, -1:]
        logits, unembed_backward = self.output.unembed(hidden)

        def backward(dlogits: Array) -> None:
            dhidden = unembed_backward(dlogits)
            hidden_backward(dhidden)

        return logits, backward if cache is None else no_backward

    def hidden(
        self,
        ids: Array,
        cache: Cache | None = None,
        rng: Rng | None = None,
        mask: Array | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """The vectors that the logits are made of. hidden: (B, T, D); the rest as of a call."""
        check_batch("LanguageModel", "ids", ids)
        if cache is not None:
            check_cache("LanguageModel", cache, len(self.stack.layers))
        start = 0 if cache is None else cache.length
        visible = None
        if mask is not None:
            visible = padding_keys("LanguageModel", "mask", mask, (ids.shape[0], start + ids.shape[1]))
        embedded, embed_backward = self.embed(ids, start=start, rng=rng, positions=positions)
        hidden, stack_backward = self.stack(
            embedded, mask=visible, causal=True, cache=cache, rng=rng, positions=positions
        )

        def backward(dhidden: Array) -> None:
            dembedded = stack_backward(dhidden)
            embed_backward(dembedded)

        return hidden, backward if cache is None else no_backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        vocabulary, d = self.tokens.table.value.shape
        yield "tokens", (batch, length, d), Cost()
        yield "embed", (batch, length, d), self.embed.cost(batch, length)
        yield from self.stack.costs("stack", batch, length)
        yield "output", (batch, length, vocabulary), self.output.unembed_cost(batch, length)
        yield "loss", (), Cost(kept=2 * batch * length * vocabulary)

    def loss(
        self,
        ids: Array,
        wanted: Array,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        rng: Rng | None = None,
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

    positions_of([[0, 0, 1, 1], [1, 1, 1, 0]]) is [[0, 0, 0, 1], [0, 1, 2, 2]]: padding also gets a position, but no
    token attends to it.
    """
    counts = mask.cumsum(axis=-1) - 1
    return counts * (counts > 0)
