"""A training step of an encoder with a classification head: pre-norm, GELU, padding, AdamW."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitransformer.models import Classifier, ClassifierConfig

from .. import ours
from .counting import layer_products, zipf

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Sizes:
    n_layers: int
    n_heads: int
    width: int
    length: int
    batch: int
    vocabulary: int = 10_000
    n_classes: int = 2
    dropout: float = 0.0


def batches(sizes: Sizes) -> list[dict[str, np.ndarray]]:
    """Texts with at least half of the length, each padded; at least one has the full length."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(10):
        lengths = rng.integers(sizes.length // 2, sizes.length + 1, sizes.batch)
        lengths[0] = sizes.length
        mask = np.arange(sizes.length) < lengths[:, None]
        ids = zipf(rng, sizes.vocabulary, mask.shape, first=1) * mask
        made.append({"ids": ids, "labels": rng.integers(sizes.n_classes, size=sizes.batch), "mask": mask})
    return made


def operations(s: Sizes) -> float:
    """Floating-point operations of the matrix products in one step, including padding."""
    layer = layer_products(s.batch * s.length, s.width, 4 * s.width, s.batch * s.length**2)
    return 3.0 * (s.n_layers * layer + 2.0 * s.batch * s.width * s.n_classes)


class Ours(ours.Training):
    def __init__(self, sizes: Sizes) -> None:
        config = ClassifierConfig(
            sizes.vocabulary,
            sizes.n_classes,
            d_model=sizes.width,
            n_heads=sizes.n_heads,
            d_ff=4 * sizes.width,
            n_layers=sizes.n_layers,
            dropout=sizes.dropout,
        )
        super().__init__(Classifier(config, np.random.default_rng(1)), batches(sizes), LEARNING_RATE)
