"""A training step of a decoder-only model: pre-norm, GELU (tanh), learned positions, tied embeddings, AdamW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitransformer.models import LanguageModel, LanguageModelConfig

from .. import ours
from .counting import causal_pairs, layer_products, zipf

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Sizes:
    n_layers: int
    n_heads: int
    width: int
    length: int
    batch: int
    vocabulary: int = 65  # the characters of Shakespeare's plays
    dropout: float = 0.0


def batches(sizes: Sizes) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    shape = (sizes.batch, sizes.length + 1)
    texts = [zipf(rng, sizes.vocabulary, shape) for _ in range(10)]
    return [{"ids": text[:, :-1].copy(), "wanted": text[:, 1:].copy()} for text in texts]


def operations(s: Any) -> float:
    """Floating-point operations of the matrix products in one step; backward has twice as many as forward."""
    tokens = s.batch * s.length
    layer = layer_products(tokens, s.width, 4 * s.width, s.batch * causal_pairs(s.length))
    return 3.0 * (s.n_layers * layer + 2.0 * tokens * s.width * s.vocabulary)


def model(s: Any) -> LanguageModel:
    """A model of these sizes; card.py has other Sizes, with fields of the same names."""
    config = LanguageModelConfig(
        s.vocabulary,
        max_length=s.length,
        d_model=s.width,
        n_heads=s.n_heads,
        d_ff=4 * s.width,
        n_layers=s.n_layers,
        dropout=s.dropout,
        attention_dropout=s.dropout,
    )
    return LanguageModel(config, np.random.default_rng(1))


class Ours(ours.Training):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__(model(sizes), batches(sizes), LEARNING_RATE)
