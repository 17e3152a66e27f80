"""An encoder with a classification head: which of a few classes is this sequence?

    logits = pool(encoder(embed(ids))) W + b

The encoder sees the whole sequence in both directions (Devlin et al. 2019, "BERT"), and `pool` turns it into one
vector: here the mean over the real tokens. ideas/published/text_encoder.py has the recipe of BERT's classifier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..arrays.backend import Array, Pullback, Rng
from ..layers import Cost, Embedding, Encoder, EncoderLayer, InputEmbedding, LayerNorm, Linear, SinusoidalPositions
from ..layers.part_cost import Costs
from .checks import parts_of
from .encoder_only import EncoderOnly, EncoderOnlyParts, MeanPool


@dataclass(frozen=True)
class ClassifierParts(EncoderOnlyParts):
    """The parts of a classifier. head: from the pooled vector to logits."""

    head: Linear


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
    recompute: bool = False

    def build(self, rng: Rng | None = None) -> Classifier:
        """The model of these sizes, untrained."""
        return Classifier(self, rng)

    def parts(self, rng: Rng) -> ClassifierParts:
        """The recipe: the paper's encoder, the mean over its vectors, and a linear head."""
        d = self.d_model
        sizes = (d, self.n_heads, self.d_ff, self.dropout, self.attention_dropout, self.activation, self.norm_order)
        tokens = Embedding(self.vocabulary, d, rng=rng)
        layers = [EncoderLayer(*sizes, rng=rng) for _ in range(self.n_layers)]
        final_norm = LayerNorm(d) if self.norm_order == "pre" else None
        return ClassifierParts(
            embed=InputEmbedding(tokens, SinusoidalPositions(d), math.sqrt(d), self.dropout),
            encoder=Encoder.of(layers, final_norm, self.recompute),
            pool=MeanPool(),
            head=Linear(d, self.n_classes, rng=rng),
        )


class Classifier(EncoderOnly):
    """From ids to logits, (B, n_classes)."""

    does = "has labels"

    def __init__(self, config: Any, rng: Rng | None = None) -> None:
        """config: a ClassifierConfig, or another whose `parts(rng)` are those of a classifier."""
        parts = parts_of("Classifier", config, ClassifierConfig, ClassifierParts, rng)
        super().__init__(config, parts)
        self.head = parts.head

    def __call__(
        self, ids: Array, mask: Array | None = None, types: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None, because ids have no gradient."""
        hidden, hidden_backward = self.hidden(ids, mask, types, rng)
        real, _ = self.embed.places(ids, mask)
        pooled, pool_backward = self.pool(hidden, real, rng)
        logits, head_backward = self.head(pooled)

        def backward(dlogits: Array) -> None:
            dpooled = head_backward(dlogits)
            dhidden = pool_backward(dpooled)
            hidden_backward(dhidden)

        return logits, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        d, classes = self.head.weight.value.shape
        yield from super().costs(batch, length)
        yield "head", (batch, classes), self.head.cost(batch, 1) + Cost(kept=batch * d)
        yield "loss", (), Cost(kept=2 * batch * classes)

    def loss(
        self,
        ids: Array,
        labels: Array,
        mask: Array | None = None,
        types: Array | None = None,
        label_smoothing: float = 0.0,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the classes. labels: (B,) integers. backward(dloss=1.0) returns None."""
        logits, model_backward = self(ids, mask, types, rng)
        loss, loss_backward = self.ops.cross_entropy(logits, labels, label_smoothing=label_smoothing)

        def backward(dloss: Array | float = 1.0) -> None:
            dlogits = loss_backward(dloss)
            model_backward(dlogits)

        return loss, backward
