"""An encoder with a classification head: which of a few classes is this sequence?

    logits = mean over the real tokens of encoder(embed(ids)),  times W plus b

The encoder sees the whole sequence in both directions (Devlin et al. 2019, "BERT"); the mean turns it into one vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays.backend import Array, Pullback
from ..layers import Cost, Embedding, Encoder, InputEmbedding, Linear, Module, SinusoidalPositions
from ..layers.cost import Costs
from ..layers.module import generator
from .encoder_decoder import check_config, check_sequences, keys


@dataclass(frozen=True)
class ClassifierConfig:
    """Sizes of an encoder with a classification head."""

    vocabulary: int
    n_classes: int
    d_model: int = 256
    n_heads: int = 4
    d_ff: int = 1024
    n_layers: int = 4
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "gelu"
    norm_order: str = "pre"
    checkpoint: bool = False

    def build(self, rng: np.random.Generator | None = None) -> Classifier:
        """The model of these sizes, untrained."""
        return Classifier(self, rng)


class Classifier(Module):
    """From ids to logits. ids: (B, T); mask: boolean (B, T), True where a token is real; logits: (B, n_classes)."""

    def __init__(self, config: ClassifierConfig, rng: np.random.Generator | None = None) -> None:
        check_config("Classifier", config, ClassifierConfig)
        rng = generator(rng)
        self.config = config
        tokens = Embedding(config.vocabulary, config.d_model, rng=rng)
        positions = SinusoidalPositions(config.d_model)
        self.embed = InputEmbedding(tokens, positions, math.sqrt(config.d_model), config.dropout)
        self.encoder = Encoder(
            config.n_layers,
            config.d_model,
            config.n_heads,
            config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation=config.activation,
            norm_order=config.norm_order,
            checkpoint=config.checkpoint,
            rng=rng,
        )
        self.head = Linear(config.d_model, config.n_classes, rng=rng)

    def __call__(
        self, ids: Array, mask: Array | None = None, rng: np.random.Generator | None = None
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None, because ids have no gradient."""
        check_sequences("Classifier", "ids", ids)
        real = keys("Classifier", "mask", mask, ids.shape)
        embedded, embed_backward = self.embed(ids, rng=rng)
        hidden, encoder_backward = self.encoder(embedded, mask=real, rng=rng)
        pooled, pool_backward = self.ops.mean_pool(hidden, mask)
        logits, head_backward = self.head(pooled)

        def backward(dlogits: Array) -> None:
            dpooled = head_backward(dlogits)
            dhidden = pool_backward(dpooled)
            dembedded = encoder_backward(dhidden)
            embed_backward(dembedded)

        return logits, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        d, classes = self.head.weight.value.shape
        yield "embed", (batch, length, d), self.embed.cost(batch, length)
        yield from self.encoder.costs("encoder", batch, length)
        yield "pooling", (batch, d), Cost(kept=batch * length)
        yield "head", (batch, classes), self.head.cost(batch, 1) + Cost(kept=batch * d)
        yield "loss", (), Cost(kept=2 * batch * classes)

    def loss(
        self,
        ids: Array,
        labels: Array,
        mask: Array | None = None,
        label_smoothing: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the classes. labels: (B,) integers. backward(dloss=1.0) returns None."""
        logits, model_backward = self(ids, mask, rng)
        loss, loss_backward = self.ops.cross_entropy(logits, labels, label_smoothing=label_smoothing)

        def backward(dloss: Array | float = 1.0) -> None:
            dlogits = loss_backward(dloss)
            model_backward(dlogits)

        return loss, backward
