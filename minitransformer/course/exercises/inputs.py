"""Random inputs: sizes that differ from each other, so that no mistake in the axes goes unseen."""

from __future__ import annotations

import numpy as np


def sizes(rng: np.random.Generator, count: int, low: int = 2, high: int = 7) -> list[int]:
    """`count` different sizes from low to high."""
    return [int(size) for size in rng.permutation(np.arange(low, high + 1))[:count]]


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows of the last axis that are a softmax: positive, with the sum 1."""
    exponentials = np.exp(rng.normal(size=shape))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def mask_with_empty_row(rng: np.random.Generator, t_q: int, t_k: int) -> np.ndarray:
    """A mask (t_q, t_k) with a row that may attend to nothing, one that may to everything, and others between."""
    mask = rng.random((t_q, t_k)) < 0.6
    mask[:, 0] = True
    mask[0], mask[1] = False, True
    if t_q > 2:
        mask[2, 1] = False
    return mask[rng.permutation(t_q)]
