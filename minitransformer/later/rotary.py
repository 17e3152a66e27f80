"""Positions by rotation, as a part that turns queries and keys. Su et al. 2021, "RoFormer"; the op is ops/rotary.py.

layers.MultiHeadAttention(d_model, n_heads, turn=rotary(10000.0))
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_array, check_positive
from ..layers import Module


class RotaryPositions(Module):
    """Rotate each vector by angles that grow with its position. heads: (..., H, T, d) with d even; turned: as heads.

    base: of the angles. Without learned numbers.
    """

    def __init__(self, base: float = 10000.0) -> None:
        check_positive("RotaryPositions", base=base)
        self.base = float(base)

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (turned, backward). positions: integers (..., T), where they do not count from `start`."""
        if positions is not None:
            check_array("RotaryPositions", "positions", positions)
        of_heads = None if positions is None else positions[..., None, :]  # the same for every head
        return self.ops.rotary(heads, start, self.base, positions=of_heads)


def rotary(base: float = 10000.0) -> tuple[RotaryPositions, RotaryPositions]:
    """What turns queries and keys alike: the `turn` of a MultiHeadAttention."""
    positions = RotaryPositions(base)
    return positions, positions
