"""Embedding of tokens and of positions: what turns ids into the vectors that enter a stack.

Vaswani et al. 2017, sections 3.4 and 3.5: token vectors are multiplied by √D, positions are added, dropout follows.
"""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np

from .. import ops
from ..arrays.backend import Array, Pullback, device_of
from ..arrays.boundary import (
    check_floats,
    check_integers,
    check_last,
    check_number,
    check_positive,
    check_rate,
    check_sizes,
)
from .module import Module, Parameter, generator


class Embedding(Module):
    """A table with one row for each token; tied, the same table also turns vectors back into logits.

    table: (vocabulary, width), drawn from N(0, std²), by default with std = width^-½. Calling it looks ids up;
    `unembed` compares vectors with every row. Use both, and the table's gradient collects from both.
    """

    def __init__(
        self, vocabulary: int, width: int, std: float | None = None, rng: np.random.Generator | None = None
    ) -> None:
        check_sizes("Embedding", vocabulary=vocabulary, width=width)
        std = width**-0.5 if std is None else std
        check_positive("Embedding", std=std)
        self.table = Parameter(generator(rng).normal(0.0, std, (vocabulary, width)).astype(np.float32))

    def __call__(self, ids: Array) -> tuple[Array, Pullback]:
        """y = table[ids]. ids: (...) integers; y: (..., width). backward(dy) returns None: ids have no gradient."""
        y, embedding_backward = self.ops.embedding(ids, self.table.value)

        def backward(dy: Array) -> None:
            self.table.grad += embedding_backward(dy)

        return y, backward

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """logits = x tableᵀ. x: (..., width); logits: (..., vocabulary). backward(dlogits) returns dx. Section 3.4."""
        logits, linear_backward = self.ops.linear(x, self.table.value.T)

        def backward(dlogits: Array) -> Array:
            dx, dtransposed = linear_backward(dlogits)
            self.table.grad += dtransposed.T
            return dx

        return logits, backward


class Positions(Protocol):
    """Adds a vector for each position: y = x + P[start : start + T]. x, y: (..., T, width). backward(dy) returns dx."""

    def __call__(self, x: Array, start: int = 0) -> tuple[Array, Pullback]:
        """Return (y, backward)."""


@functools.lru_cache(maxsize=16)
def _table(length: int, width: int, base: float, dtype: str, device: str) -> Array:
    return ops.sinusoidal_positions(length, width, base, dtype, device)


class SinusoidalPositions(Module):
    """Adds the fixed sine and cosine table of ops/positions.py, for any length. Nothing is learned: dx = dy."""

    def __init__(self, width: int, base: float = 10000.0) -> None:
        self.width, self.base = width, base
        ops.sinusoidal_positions(1, width, base)  # refuse an odd width here, not at the first call

    def __call__(self, x: Array, start: int = 0) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        check_floats("SinusoidalPositions", x=x)
        _check_sequence("SinusoidalPositions", x, self.width, start)
        stop = start + x.shape[-2]
        length = 1 << (stop - 1).bit_length()  # round up, so that a growing sequence seldom needs a new table
        y = x + _table(length, self.width, self.base, str(x.dtype), device_of(x).name)[start:stop]

        def backward(dy: Array) -> Array:
            dx = dy
            return dx

        return y, backward


class LearnedPositions(Module):
    """Adds a learned vector for each position. table: (max_length, width), drawn from N(0, std²).

    Raises ValueError for a position beyond max_length.
    """

    def __init__(self, max_length: int, width: int, std: float = 0.02, rng: np.random.Generator | None = None) -> None:
        check_sizes("LearnedPositions", max_length=max_length, width=width)
        check_positive("LearnedPositions", std=std)
        self.table = Parameter(generator(rng).normal(0.0, std, (max_length, width)).astype(np.float32))

    def __call__(self, x: Array, start: int = 0) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        check_floats("LearnedPositions", table=self.table.value, x=x)
        _check_sequence("LearnedPositions", x, self.table.value.shape[1], start)
        rows, rows_backward = self.ops.learned_positions(self.table.value, x.shape[-2], start)
        y = x + rows

        def backward(dy: Array) -> Array:
            dx = dy
            drows = dy.sum(axis=tuple(range(dy.ndim - 2)))  # every sequence of the batch used the same rows
            self.table.grad += rows_backward(drows)
            return dx

        return y, backward


def _check_sequence(where: str, x: Array, width: int, start: int) -> None:
    check_last(where, "x", x, width, "its width")
    if x.ndim < 2:
        raise ValueError(f"{where}: x must be (..., T, {width}), got shape {x.shape}")
    check_integers(where, start=start)
    if start < 0:
        raise ValueError(f"{where}: start must be at least 0, got {start}")


class InputEmbedding(Module):
    """ids to vectors: dropout(scale · table[ids] + positions). ids: (..., T); y: (..., T, width)."""

    def __init__(self, tokens: Embedding, positions: Positions, scale: float = 1.0, dropout: float = 0.0) -> None:
        check_number("InputEmbedding", "scale", scale)
        check_rate("InputEmbedding", dropout)
        self.tokens, self.positions = tokens, positions
        self.scale, self.dropout = float(scale), dropout

    def __call__(self, ids: Array, start: int = 0, rng: np.random.Generator | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns None. start: the position of the first id."""
        vectors, tokens_backward = self.tokens(ids)
        placed, positions_backward = self.positions(vectors * self.scale, start)
        y, dropout_backward = self.ops.dropout(placed, self.dropout, rng)

        def backward(dy: Array) -> None:
            dplaced = dropout_backward(dy)
            dvectors = positions_backward(dplaced) * self.scale
            tokens_backward(dvectors)

        return y, backward
