"""Text encoders: they read a whole text at once and describe it. Devlin et al. 2019, "BERT".

    hidden: encoder(embed(ids))                                          a vector for each token
    pooled = f(hidden_0 W + b)                                            a vector for the text, from its first token
    masked-language model:  logits = norm(f(hidden W + b)) tableᵀ + c      which token is behind each mask
    classifier:             logits = pooled V + d                         which class the text has

In RoBERTa (Liu et al. 2019) positions count only the real tokens. DistilBERT (Sanh et al. 2019) has no token types.
ALBERT (Lan et al. 2020) uses one layer many times, and projects a narrow token table to the width of the layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...core import layers
from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.declared import declared
from ...core.arrays.float16 import sum_over
from ...core.layers.feed_forward import kept_by
from ...core.layers.module import generator
from ...core.layers.part_cost import Costs
from ...core.models.checks import parts_of
from ...core.models.classifier import Classifier, ClassifierParts
from ...core.models.encoder_only import EncoderOnly, EncoderOnlyParts, MeanPool
from ...core.models.language_model import positions_of
from .heads import REPLACED, Prediction
from .position_tables import OffsetPositions


@dataclass(frozen=True)
class EncoderSizes:
    """The sizes that every text encoder has. The defaults are those of BERT-Base."""

    vocabulary: int
    max_length: int = 512
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    norm_eps: float = 1e-12
    tie_output: bool = True  # the table of tokens also makes the logits of a masked-language model
    types: ClassVar[int] = 0  # token types, one for each of two texts; 0: the model has no types
    pooler: ClassVar[str | None] = None  # f in the vector for the whole text; None: that is the mean over real tokens


@dataclass(frozen=True)
class TextEncoderConfig(EncoderSizes):
    """Sizes of a text encoder like BERT."""

    types: int = 2  # type: ignore[misc]  # this and the pooler are sizes here
    width: int | None = None  # of the embedding tables, which are then projected to d_model
    shared: bool = False  # one layer, used n_layers times
    position_offset: int = 0  # rows of the table of positions before position 0
    count_real: bool = False  # positions count only the real tokens
    pooler: str | None = "tanh"  # type: ignore[misc]

    def parts(self, rng: Rng) -> EncoderOnlyParts:
        """The parts of BERT and its family."""
        d, width = self.d_model, self.d_model if self.width is None else self.width
        embedding = CountingEmbedding if self.count_real else layers.InputEmbedding
        embed = embedding(
            layers.Embedding(self.vocabulary, width, std=0.02, rng=rng),
            OffsetPositions(self.max_length, width, self.position_offset, rng),
            dropout=self.dropout,
            types=layers.Embedding(self.types, width, std=0.02, rng=rng) if self.types else None,
            norm=layers.LayerNorm(width, self.norm_eps),
            projection=None if self.width is None else layers.Linear(width, d, rng=rng),
        )

        def layer() -> layers.EncoderLayer:
            attention = layers.MultiHeadAttention(d, self.n_heads, dropout=self.attention_dropout, rng=rng)
            feed_forward = layers.FeedForward(d, self.d_ff, self.activation, rng=rng)
            return layers.EncoderLayer.of(*(residual(sublayer) for sublayer in (attention, feed_forward)))

        def residual(sublayer: layers.Module) -> layers.Residual:
            return layers.Residual(sublayer, layers.LayerNorm(d, self.norm_eps), "post", self.dropout)

        n = self.n_layers
        stack = [layer()] * n if self.shared else [layer() for _ in range(n)]
        return EncoderOnlyParts(embed, layers.Encoder.of(stack), self.pool(rng))

    def prediction(self, width: int, rng: Rng) -> tuple[layers.Linear, layers.LayerNorm]:
        """The map and the norm before the logits of a masked-language model. width: of the table of tokens."""
        return layers.Linear(self.d_model, width, rng=rng), layers.LayerNorm(width, self.norm_eps)

    def before_head(self, head: str, rng: Rng) -> Prediction | None:
        """What stands between the body and a head of heads.py: in ELECTRA's discriminator a map and its activation."""
        return (
            Prediction(layers.Linear(self.d_model, self.d_model, rng=rng), self.activation)
            if head == REPLACED
            else None
        )

    def pool(self, rng: Rng, dropout: float = 0.0) -> layers.Module:
        """What makes one vector of a whole text."""
        return MeanPool() if self.pooler is None else FirstToken(self.d_model, self.pooler, dropout, rng)


@dataclass(frozen=True)
class TextClassifierConfig(TextEncoderConfig):
    """Sizes of a text encoder with a classification head, the classifier of BERT and its family.

    pooler: "tanh" in BERT, ALBERT and RoBERTa, "relu" in DistilBERT, "gelu" in ELECTRA.
    """

    n_classes: int = field(kw_only=True)

    def build(self, rng: Rng | None = None) -> Classifier:
        """The model of these sizes, untrained."""
        return Classifier(self, rng)

    def parts(self, rng: Rng) -> ClassifierParts:
        """The parts: the encoder and a linear head."""
        return ClassifierParts(**vars(super().parts(rng)), head=layers.Linear(self.d_model, self.n_classes, rng=rng))

    def pool(self, rng: Rng, dropout: float = 0.0) -> layers.Module:
        """With dropout before the head."""
        return super().pool(rng, self.dropout)


class CountingEmbedding(layers.InputEmbedding):
    """RoBERTa's embedding: positions count only the real tokens.

    Its positions begin one row after that of the padding's id. So a call without a mask knows the padding by itself.
    """

    def places(self, ids: Array, mask: Array | None) -> tuple[Array | None, Array | None]:
        """Which tokens are real, and the position of each among these."""
        if mask is None:
            positions: Any = self.positions
            mask = ids != positions.offset - 1
            mask = None if mask.all() else mask
        return mask, None if mask is None else positions_of(mask)


class FirstToken(layers.Module):
    """A vector for the whole text, from that of its first token: dropout(f(hidden_0 W + b)).

    activation: f. hidden: (B, T, D); pooled: (B, D).
    """

    @declared('activation: "tanh" or "relu" or "gelu"; 0 <= dropout < 1')
    def __init__(self, d_model: int, activation: str = "tanh", dropout: float = 0.0, rng: Rng | None = None) -> None:
        self.dense = layers.Linear(d_model, d_model, rng=rng)
        self.activation, self.dropout = activation, dropout

    def __call__(self, hidden: Array, mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (pooled, backward); backward(dpooled) returns dhidden."""
        shape, dtype = hidden.shape, hidden.dtype
        first = hidden[:, 0]
        mapped, dense_backward = self.dense(first)
        active, activation_backward = getattr(self.ops, self.activation)(mapped)
        pooled, dropout_backward = self.ops.dropout(active, self.dropout, rng)

        def backward(dpooled: Array) -> Array:
            dactive = dropout_backward(dpooled)
            dmapped = activation_backward(dactive)
            dfirst = dense_backward(dmapped)
            dhidden = array_module(dfirst).zeros(shape, dtype=dtype)
            dhidden[:, 0] = dfirst
            return dhidden

        return pooled, backward

    def cost(self, batch: int, length: int) -> layers.Cost:
        """Kept: all vectors, since the first token's are a view of them, and what f needs; with dropout, its factor."""
        d = self.dense.weight.value.shape[1]
        dropped = 0 if not self.dropout else 2 if self.activation == "tanh" else 1  # tanh keeps its own output then
        active = kept_by("gelu") - 1 if self.activation == "gelu" else 0  # its output is counted by the head
        return self.dense.cost(batch, 1) + layers.Cost(kept=batch * d * (length + dropped + active))


class TextEncoder(EncoderOnly):
    """From ids to a vector for each token. `model.pool(hidden, mask)` makes one of them all."""

    def __init__(self, config: Any, rng: Rng | None = None) -> None:
        """config: a TextEncoderConfig, or another whose `parts(rng)` are those of an encoder."""
        super().__init__(config, parts_of("TextEncoder", config, TextEncoderConfig, EncoderOnlyParts, rng))

    __call__ = EncoderOnly.hidden

    def with_pooled(self, ids: Array, mask: Array | None = None) -> tuple[Array, Pullback]:
        """Return (rows, backward): the vector for the whole text, then those of its tokens, (B, 1 + T, D)."""
        hidden, hidden_backward = self(ids, mask)
        pooled, pool_backward = self.pool(hidden, mask)
        rows = array_module(hidden).concatenate([pooled[:, None], hidden], axis=1)

        def backward(drows: Array) -> None:
            dpooled = drows[:, 0]
            dhidden = drows[:, 1:] + pool_backward(dpooled)
            hidden_backward(dhidden)

        return rows, backward


class MaskedLanguageModel(EncoderOnly):
    """From ids to logits for each token, (B, T, vocabulary), to guess masked ones. Devlin et al. 2019, section 3.1."""

    does = "fills a mask"
    _activation: Any = layers.FeedForward._activation

    def __init__(self, config: Any, rng: Rng | None = None) -> None:
        """config: a TextEncoderConfig, or another with `parts` and `prediction`."""
        rng = generator(rng)
        super().__init__(config, parts_of("MaskedLanguageModel", config, TextEncoderConfig, EncoderOnlyParts, rng))
        vocabulary, width = self.embed.tokens.table.value.shape
        self.activation = config.activation
        self.dense, self.norm = config.prediction(width, rng)
        self.output = None if config.tie_output else layers.Embedding(vocabulary, width, std=0.02, rng=rng)
        self.logit_bias = layers.Parameter(np.zeros(vocabulary, np.float32))

    def __call__(
        self, ids: Array, mask: Array | None = None, types: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None."""
        hidden, hidden_backward = self.hidden(ids, mask, types, rng)
        activate = self._activation()
        mapped, dense_backward = self.dense(hidden)
        active, activation_backward = activate(mapped)
        normalized, norm_backward = self.norm(active)
        products, unembed_backward = (self.output or self.embed.tokens).unembed(normalized)
        logits = products + self.logit_bias.value

        def backward(dlogits: Array) -> None:
            self.logit_bias.grad += sum_over(dlogits, axis=(0, 1))
            dproducts = dlogits
            dnormalized = unembed_backward(dproducts)
            dactive = norm_backward(dnormalized)
            dmapped = activation_backward(dactive)
            dhidden = dense_backward(dmapped)
            hidden_backward(dhidden)

        return logits, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        vocabulary, width = self.embed.tokens.table.value.shape
        shape, rows = (batch, length, width), batch * length
        table = self.output or self.embed.tokens
        kept = layers.Cost(kept=rows * (self.config.d_model + (kept_by(self.activation) - 1) * width))
        for name, size, cost in super().costs(batch, length):
            yield name, size, layers.Cost() if name == "pool" else cost  # nothing is pooled here
        yield "dense", shape, self.dense.cost(batch, length) + kept
        yield "norm", shape, self.norm.cost(batch, length)
        yield "output", (batch, length, vocabulary), table.unembed_cost(batch, length)
        yield "loss", (), layers.Cost(kept=2 * rows * vocabulary)

    def loss(
        self,
        ids: Array,
        wanted: Array,
        mask: Array | None = None,
        types: Array | None = None,
        ignore_index: int = -100,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the masked tokens. wanted: (B, T), ignore_index elsewhere. backward(dloss=1.0): None."""
        logits, model_backward = self(ids, mask, types, rng)
        loss, loss_backward = self.ops.cross_entropy(logits, wanted, ignore_index)

        def backward(dloss: Array | float = 1.0) -> None:
            dlogits = loss_backward(dloss)
            model_backward(dlogits)

        return loss, backward
