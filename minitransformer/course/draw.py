"""The inputs of the trials: each argument differs from trial to trial, and the extremes are included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backend import Array

# Five usual trials have axes of unequal lengths, so that every mistake in the axes shows. In "ones" every axis has
# length 1 and every count is minimal: one head, the first step. In "extreme" the numbers are large, and everything that
# a formula must survive occurs: scores that overflow, rows that are all zero.
KINDS = ("usual",) * 5 + ("ones", "extreme")


class Draw:
    """Draws the arguments of one trial; `number` counts the trials from 0."""

    def __init__(self, seed: int, number: int) -> None:
        kind = KINDS[number]
        self.rng = np.random.default_rng([seed, number])
        self.number = number
        self.ones = kind == "ones"
        self.extreme = kind == "extreme"

    def sizes(self, count: int, low: int = 2, high: int = 7) -> list[int]:
        """`count` different sizes from low to high; all 1 in "ones"."""
        if self.ones:
            return [1] * count
        return [int(size) for size in self.rng.permutation(np.arange(low, high + 1))[:count]]

    def normal(self, *shape: int) -> Array:
        """Normally distributed numbers, of moderate size in every trial."""
        return self.rng.normal(size=shape)

    def gradient(self, *shape: int) -> Array:
        """Normally distributed numbers for an upstream gradient; 100 times as large in "extreme", so clipping shows."""
        return self.rng.normal(size=shape) * (100.0 if self.extreme else 1.0)

    def scores(self, *shape: int) -> Array:
        """Normally distributed numbers that are exact in float32 even when 1000 is added to them."""
        return np.round(64.0 * self.rng.normal(size=shape)) / 64.0

    def weights(self, *shape: int) -> Array:
        """Rows of the last axis that look like a softmax: positive, with sum 1; very uneven in "extreme"."""
        exponentials = np.exp((2.0 if self.extreme else 1.0) * self.rng.normal(size=shape))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        return float(self.rng.uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def indices(self, count: int, *shape: int) -> Array:
        """Integers from 0 to count - 1. Their dtype is NumPy's own for indices, since `np.bincount` takes no wider one;
        in a browser that is int32.
        """
        return self.rng.integers(0, count, size=shape).astype(np.intp)

    def queries_and_keys(self, batch: tuple[int, ...], t_q: int, t_k: int, d_k: int) -> tuple[Array, Array]:
        """q (*batch, t_q, d_k) and k (*batch, t_k, d_k).

        In "extreme" d_k is 4, and the even queries have scores near 800 for the keys 0, 3, 6, ... and near -800 for the
        others; the odd ones have the usual scores. Float32 holds all of them exactly: √4 is 2, and both factors are
        multiples of 1/8.
        """
        if not self.extreme:
            return 1.5 * self.normal(*batch, t_q, d_k), 1.5 * self.normal(*batch, t_k, d_k)
        q, k = (np.round(8.0 * self.normal(*batch, t, 4)) / 8.0 for t in (t_q, t_k))
        q[..., 0] = np.where(np.arange(t_q) % 2 == 0, 40.0, 0.0)
        k[..., 0] = np.where(np.arange(t_k) % 3 == 0, 40.0, -40.0)
        return q, k

    def mask(self, t_q: int, t_k: int) -> Array:
        """A mask (t_q, t_k): one row may attend to nothing, one to everything, and the others to some keys."""
        mask = self.rng.random((t_q, t_k)) < 0.6
        mask[:, 0] = True
        mask[:1], mask[1:2] = False, True
        mask[2:3, 1:2] = False
        return mask[self.rng.permutation(t_q)]


Inputs = Callable[[Draw], tuple[Any, ...]]
