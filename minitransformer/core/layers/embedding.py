"""Embedding of tokens and of positions: what turns ids into the vectors that enter a stack.

Vaswani et al. 2017, sections 3.4 and 3.5: token vectors are multiplied by √D, positions are added, dropout follows.
"""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np

from .. import ops
from ..arrays.backend import Array, Pullback, Rng, array_module, device_of
from ..arrays.boundary import check_array, check_floats, check_integers, check_last, check_shape
from ..arrays.declared import declared
from .linear import Linear
from .module import Module, Parameter, generator
from .normalization import LayerNorm, RMSNorm
from .part_cost import Cost


class Embedding(Module):
    """A table with one row for each token; tied, the same table also turns vectors back into logits.

    table: (vocabulary, width), drawn from N(0, std²), by default with std = width^-½. Calling it looks ids up;
    `unembed` compares vectors with every row. Use both, and the table's gradient collects from both.
    """

    @declared("vocabulary, width > 0; std > 0")
    def __init__(self, vocabulary: int, width: int, std: float | None = None, rng: Rng | None = None) -> None:
        std = width**-0.5 if std is None else std
        self.table = Parameter(generator(rng).normal(0.0, std, (vocabulary, width)).astype(np.float32, copy=False))

    def __call__(self, ids: Array) -> tuple[Array, Pullback]:
        """y = table[ids]. ids: (...) integers; y: (..., width). backward(dy) returns None: ids have no gradient."""
        y, embedding_backward = self.ops.embedding(ids, self.table.value)

        def backward(dy: Array) -> None:
            self.table.grad += embedding_backward(dy)

        return y, backward

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """logits = x tableᵀ. x: (..., width); logits: (..., vocabulary). backward(dlogits) returns dx. Section 3.4."""
        self.takes(x, self.table.value, self.table.value.shape[1], "its width")
        logits, linear_backward = self.ops.linear(x, self.table.value.T)
        shape = logits.shape

        def backward(dlogits: Array) -> Array:
            self.returns(dlogits, shape, self.table.value)
            dx, dtransposed = linear_backward(dlogits)
            self.table.grad += dtransposed.T
            return dx

        return logits, backward

    def unembed_cost(self, batch: int, length: int) -> Cost:
        """What `unembed` costs; it keeps its input."""
        vocabulary, width = self.table.value.shape
        return Cost(flops=2 * batch * length * width * vocabulary, kept=batch * length * width)


class Positions(Protocol):
    """Adds a vector for each position: y = x + P[start : start + T]. x, y: (..., T, width). backward(dy) returns dx.

    positions: integers (..., T), one for each token, where these do not count from `start`.
    """

    def __call__(self, x: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward)."""


@functools.lru_cache(maxsize=16)
def _table(length: int, width: int, base: float, dtype: str, device: str) -> Array:
    return ops.sinusoidal_positions(length, width, base, dtype, device)


class SinusoidalPositions(Module):
    """Adds the fixed sine and cosine table of core/ops/positions.py, for any length. Nothing is learned: dx = dy."""

    def __init__(self, width: int, base: float = 10000.0) -> None:
        self.width, self.base = width, base
        ops.sinusoidal_positions(1, width, base)

    def __call__(self, x: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        check_floats("SinusoidalPositions", x=x)
        check_last("SinusoidalPositions", "x", x, self.width, "its width")
        _check_sequence("SinusoidalPositions", x, self.width, start, positions)
        stop = start + x.shape[-2] if positions is None else int(positions.max()) + 1
        y = x + self.rows(slice(start, stop) if positions is None else positions, stop, like=x)

        def backward(dy: Array) -> Array:
            dx = dy
            return dx

        return y, backward

    def rows(self, at: slice | Array, stop: int, like: Array) -> Array:
        """The rows of the table at these positions, all of them before `stop`."""
        length = 1 << (stop - 1).bit_length()  # round up, so that a growing sequence seldom needs a new table
        return _table(length, self.width, self.base, str(like.dtype), device_of(like).name)[at]


class LearnedPositions(Module):
    """Adds a learned vector for each position. table: (max_length, width), drawn from N(0, std²).

    Raises ValueError for a position beyond max_length.
    """

    @declared("max_length, width > 0; std > 0")
    def __init__(self, max_length: int, width: int, std: float = 0.02, rng: Rng | None = None) -> None:
        self.table = Parameter(generator(rng).normal(0.0, std, (max_length, width)).astype(np.float32, copy=False))

    def __call__(self, x: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        self.takes(x, self.table.value, self.table.value.shape[1], "its width")
        if x.ndim < 2 or type(start) is not int or start < 0 or positions is not None:
            _check_sequence("LearnedPositions", x, self.table.value.shape[1], start, positions)
        if positions is not None:
            return self._looked_up(x, positions)
        rows, rows_backward = self.ops.learned_positions(self.table.value, x.shape[-2], start)
        y = x + rows

        def backward(dy: Array) -> Array:
            dx = dy
            wide = np.promote_types(dy.dtype, np.float32)  # a sum over the batch; float16 alone would stop growing
            drows = dy.sum(axis=tuple(range(dy.ndim - 2)), dtype=wide).astype(dy.dtype, copy=False)
            self.table.grad += rows_backward(drows)
            return dx

        return y, backward

    def _looked_up(self, x: Array, positions: Array) -> tuple[Array, Pullback]:
        """Each token has its own position, for example where sequences are padded on the left."""
        rows, rows_backward = self.ops.embedding(positions, self.table.value)
        y = x + rows

        def backward(dy: Array) -> Array:
            dx = dy
            drows = dy
            self.table.grad += rows_backward(drows)
            return dx

        return y, backward


def _check_sequence(where: str, x: Array, width: int, start: int, positions: Array | None) -> None:
    if x.ndim < 2:
        raise ValueError(f"{where}: x must be (..., T, {width}), got shape {x.shape}")
    if type(start) is not int or start < 0:
        check_integers(where, start=start)
        if start < 0:
            raise ValueError(f"{where}: start must be at least 0, got {start}")
    if positions is not None:
        check_array(where, "positions", positions)
        check_shape(where, "positions", positions, x.shape[:-1])


class InputEmbedding(Module):
    """ids to vectors: dropout(scale · table[ids] + positions). ids: (..., T); y: (..., T, width).

    What some models add on the way: the vector of a token's type (of the first or the second text, Devlin et al. 2019),
    a norm before the dropout, and a projection of a narrow table to the width of the layers (Lan et al. 2020).
    """

    @declared("0 <= dropout < 1")
    def __init__(
        self,
        tokens: Embedding,
        positions: Positions | None,
        scale: float = 1.0,
        dropout: float = 0.0,
        types: Embedding | None = None,
        norm: LayerNorm | RMSNorm | None = None,
        projection: Linear | None = None,
    ) -> None:
        self.tokens, self.positions, self.types = tokens, positions, types
        self.norm, self.projection = norm, projection
        self.scale, self.dropout = float(scale), dropout

    def __call__(
        self,
        ids: Array,
        start: int = 0,
        rng: Rng | None = None,
        positions: Array | None = None,
        types: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns None.

        start: the position of the first id. positions: integers (..., T), of each id. types: integers (..., T); all 0
        unless given. The attributes `positions` and `types` are the modules that look these up.
        """
        vectors, tokens_backward = self.tokens(ids)
        scaled = vectors * self.scale
        add = self.positions
        placed, positions_backward = (scaled, None) if add is None else add(scaled, start, positions)
        kinds = array_module(ids).zeros_like(ids) if types is None and self.types is not None else types
        rows, types_backward = (None, None) if self.types is None else self.types(kinds)
        typed = placed if types_backward is None else placed + rows
        normalized, norm_backward = (typed, None) if self.norm is None else self.norm(typed)
        kept, dropout_backward = self.ops.dropout(normalized, self.dropout, rng)
        y, projection_backward = (kept, None) if self.projection is None else self.projection(kept)

        def backward(dy: Array) -> None:
            dkept = dy if projection_backward is None else projection_backward(dy)
            dnormalized = dropout_backward(dkept)
            dtyped = dnormalized if norm_backward is None else norm_backward(dnormalized)
            if types_backward is not None:
                types_backward(dtyped)
            dplaced = dtyped
            dscaled = dplaced if positions_backward is None else positions_backward(dplaced)
            dvectors = dscaled * self.scale
            tokens_backward(dvectors)

        return y, backward

    def places(self, ids: Array, mask: Array | None) -> tuple[Array | None, Array | None]:
        """Which tokens of a whole text are real, and the position of each: here as given, and from 0 on."""
        return mask, None

    def cost(self, batch: int, length: int) -> Cost:
        """What is inside, the factor of the dropout, and the input of the projection."""
        width = self.tokens.table.value.shape[1]
        kept = (1 if self.dropout else 0) + (0 if self.projection is None else 1)
        return super().cost(batch, length) + Cost(kept=kept * batch * length * width)
