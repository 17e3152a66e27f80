"""Positions as some published tables have them: with unused rows in front, or with all sines before all cosines."""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.declared import declared
from ...core.layers import LearnedPositions, SinusoidalPositions


class OffsetPositions(LearnedPositions):
    """Learned positions after `offset` rows that stay unused. table: (offset + max_length, width)."""

    @declared("max_length > 0; offset >= 0")
    def __init__(self, max_length: int, width: int, offset: int, rng: Rng | None = None) -> None:
        super().__init__(offset + max_length, width, rng=rng)
        self.offset = offset

    def __call__(self, x: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        return super().__call__(x, start + self.offset, None if positions is None else positions + self.offset)


class HalvesPositions(SinusoidalPositions):
    """The paper's sines and cosines in another order: all sines, then all cosines."""

    def rows(self, at: slice | Array, stop: int, like: Array) -> Array:
        """The rows of the table at these positions, all of them before `stop`."""
        return in_halves(super().rows(at, stop, like))


def in_halves(rows: Array) -> Array:
    """The even columns, then the odd ones."""
    return array_module(rows).concatenate([rows[..., ::2], rows[..., 1::2]], axis=-1)
