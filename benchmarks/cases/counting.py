"""Shared by the cases: operations counted by formula, and tokens with the frequencies of words."""

from __future__ import annotations

import numpy as np


def causal_pairs(length: int) -> int:
    """The number of (query, key) pairs in causal attention. Computing the other pairs does not count as work."""
    return length * (length + 1) // 2


def layer_products(tokens: int, width: int, d_ff: int, pairs: int) -> float:
    """Floating-point operations of the products in one layer forward: four projections, two products of the
    feed-forward network, and the score and the weighted sum for each pair of positions. A product of (n, a) and (a, b)
    has 2 n a b.
    """
    return 2.0 * tokens * (4 * width**2 + 2 * width * d_ff) + 4.0 * pairs * width


def zipf(rng: np.random.Generator, vocabulary: int, shape: tuple[int, ...], first: int = 0) -> np.ndarray:
    """Ids from `first` to vocabulary - 1; the k-th id is 1/k as frequent as the first."""
    share = 1.0 / np.arange(1, vocabulary - first + 1)
    return rng.choice(np.arange(first, vocabulary), size=shape, p=share / share.sum())
