"""Rotary positions (RoPE). Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", sec. 3.2.

Two numbers (a, b) of a vector at position p are rotated by the angle θ = p / base^(2i/d) of pair i = 0, ..., d/2 - 1:

    a' = a cos θ - b sin θ
    b' = a sin θ + b cos θ

Why: rotate a query at position m and a key at position n. The transposed rotation by mφ, times the rotation by nφ, is
the rotation by (n - m)φ. So their product depends only on the distance n - m, and no position is added to any vector.

Backward. Each pair is multiplied by a matrix R, so dx = Rᵀ dy. The transpose of a rotation is the rotation by -θ:

    da =  da' cos θ + db' sin θ
    db = -da' sin θ + db' cos θ

The angles are constants: no gradient flows into the positions.

In multi-head attention it turns queries and keys:

    layers.MultiHeadAttention(d_model, n_heads, turn=rotary_turn(10000.0))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, array_module
from ...core.arrays.boundary import check_array
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.layers import Module


@op("x, y: (..., T, d); positions: integers that broadcast to (..., T); start >= 0; base > 0")
@in_float32
def rotary(
    x: Array, start: int = 0, base: float = 10000.0, interleaved: bool = False, positions: Array | None = None
) -> tuple[Array, Pullback]:
    """Rotate each pair of x by an angle that grows with its position. d is even. backward(dy): dx.

    start: the position of the first row; the others follow. positions: replaces start where
    sequences have different positions (padding on the left). They may be below 0: only distances count.
    interleaved: pair i is (x[2i], x[2i + 1]), as in the paper; otherwise (x[i], x[i + d/2]), as in Llama's checkpoints.
    """
    xp = array_module(x)
    if x.shape[-1] % 2:
        raise ValueError(f"rotary: x must be (..., T, d) with an even d, because its numbers form pairs; got {x.shape}")
    t, d = x.shape[-2:]
    if positions is None:
        positions = xp.arange(start, start + t)
    cos, sin = _turns(positions, d, base, x.dtype)

    xa, xb = _pairs(x, interleaved)
    y = _together(xa * cos - xb * sin, xa * sin + xb * cos, interleaved)

    def backward(dy: Array) -> Array:
        dya, dyb = _pairs(dy, interleaved)
        dx = _together(dya * cos + dyb * sin, dyb * cos - dya * sin, interleaved)
        return dx

    return y, backward


def _turns(positions: Array, d: int, base: float, dtype: Any) -> tuple[Array, Array]:
    """cos θ and sin θ, (..., T, d/2), of angles in float64: float32 has no digits left at position 10⁶."""
    xp = array_module(positions)
    frequencies = xp.asarray(base ** (-np.arange(0, d, 2) / d))
    angles = positions[..., None] * frequencies
    return xp.cos(angles).astype(dtype), xp.sin(angles).astype(dtype)


def _pairs(x: Array, interleaved: bool) -> tuple[Array, Array]:
    half = x.shape[-1] // 2
    return (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])


def _together(first: Array, second: Array, interleaved: bool) -> Array:
    xp = array_module(first)
    return xp.stack([first, second], axis=-1 if interleaved else -2).reshape(*first.shape[:-1], -1)


class RotaryPositions(Module):
    """Rotate each vector by angles that grow with its position. heads: (..., H, T, d) with d even; turned: like heads.

    base: the base of the angles. interleaved: as of `rotary`. Nothing is learned.
    """

    @declared("base > 0")
    def __init__(self, base: float = 10000.0, interleaved: bool = False) -> None:
        self.base, self.interleaved = float(base), interleaved

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (turned, backward). positions: integers (..., T), where they do not count from `start`."""
        if positions is not None:
            check_array("RotaryPositions", "positions", positions)
        of_heads = None if positions is None else positions[..., None, :]  # the same for every head
        return rotary(heads, start, self.base, self.interleaved, positions=of_heads)


def rotary_turn(base: float = 10000.0) -> tuple[RotaryPositions, RotaryPositions]:
    """What turns queries and keys alike: the `turn` of a MultiHeadAttention."""
    positions = RotaryPositions(base)
    return positions, positions
