"""Numbers for a worksheet: drawn from a seed, equal on every machine, small, and chosen so that sums stay simple."""

import itertools
import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import numpy as np

_Item = TypeVar("_Item")


class Draw:
    """Draws whole numbers. It uses only `random.Random.random`: Python guarantees that its stream never changes."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def choose(self, items: Sequence[_Item]) -> _Item:
        """One of the items."""
        return items[int(self._random.random() * len(items))]

    def several(self, items: Sequence[_Item], count: int) -> list[_Item]:
        """`count` different items."""
        left = list(items)
        return [left.pop(int(self._random.random() * len(left))) for _ in range(count)]

    def matrix(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Whole numbers from low to high, without 0 (which would hide mistakes), as floats."""
        numbers = [n for n in range(low, high + 1) if n]
        size = int(np.prod(shape))
        return np.array([self.choose(numbers) for _ in range(size)], dtype=float).reshape(shape)


@cache
def tidy_scores(width: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Rows of whole numbers s, the smallest 0, whose weights 2^s / sum 2^s are multiples of 1/parts and not all equal.

    tidy_scores(3, 10) has (0, 1, 1), with the weights 0.2, 0.4, 0.4.
    """
    found = []
    for row in itertools.product(range(5), repeat=width):
        powers = [2**s for s in row]
        tidy = all(parts * power % sum(powers) == 0 for power in powers)
        if tidy and min(row) == 0 < max(row):
            found.append(row)
    return tuple(found)


def score_rows(draw: Draw, rows: int, width: int, parts: int) -> np.ndarray:
    """Rows of whole scores with tidy weights, each shifted by some whole number. (rows, width)."""
    chosen = draw.several(tidy_scores(width, parts), rows)
    return np.array([[s + shift for s in row] for row, shift in ((row, draw.choose(range(-2, 5))) for row in chosen)])


@cache
def _vectors(low: int, high: int, width: int) -> np.ndarray:
    return np.array(list(itertools.product(range(low, high + 1), repeat=width)))


@cache
def _candidates() -> np.ndarray:
    """Queries for an instructive computation: at most one entry is 0."""
    vectors = _vectors(-2, 2, 4)
    return vectors[(vectors != 0).sum(axis=1) >= 3]


def queries_and_keys(draw: Draw, t_q: int, t_k: int) -> tuple[np.ndarray, np.ndarray]:
    """q (t_q, 4) and k (t_k, 4) of small whole numbers; the rows of q kᵀ / 2 are scores with tidy weights."""
    places = 5 ** np.arange(t_k)  # a row of scores from 0 to 4 as one number
    tidy = np.array([places @ row for row in tidy_scores(t_k, 10)])
    while True:
        k = draw.matrix(-2, 2, t_k, 4)
        products = (_candidates() @ k.T).astype(int)
        doubled = products - products.min(axis=1, keepdims=True)
        fits = (products % 2 == 0).all(axis=1) & (doubled <= 8).all(axis=1)
        patterns = np.where(fits, (doubled // 2) @ places, -1)
        found = [pattern for pattern in tidy.tolist() if (patterns == pattern).any()]
        if len(found) >= t_q:
            chosen = [draw.choose(_candidates()[patterns == pattern]) for pattern in draw.several(found, t_q)]
            return np.array(chosen, dtype=float), k


@cache
def rows_of_deviation_two(width: int) -> tuple[tuple[int, ...], ...]:
    """Rows of `width` whole numbers with mean 0 and standard deviation 2."""
    return tuple(
        tuple(int(n) for n in row)
        for row in _vectors(-4, 4, width)
        if row.sum() == 0 and (row * row).sum() == 4 * width
    )
