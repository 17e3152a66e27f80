"""Splitting a width into heads, and merging them again. Vaswani et al. 2017, section 3.2.2.

    split:  (..., T, H·d) -> (..., H, T, d)         x[t, h·d + c] -> heads[h, t, c]
    merge:  (..., H, T, d) -> (..., T, H·d)         the way back

Both only move numbers to other places, so each is the inverse of the other *and* its adjoint: a gradient is carried
back by the opposite move. The axes must be swapped, not just regrouped: `x.reshape(H, T, d)` has the right shape
but cuts the sequence into H pieces, and the tokens of one head never meet those of another.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback
from ..arrays.declared import op


def _split(x: Array, n_heads: int) -> Array:
    *batch, t, width = x.shape
    return x.reshape(*batch, t, n_heads, width // n_heads).swapaxes(-3, -2)


def _merge(heads: Array) -> Array:
    *batch, n_heads, t, d = heads.shape
    return heads.swapaxes(-3, -2).reshape(*batch, t, n_heads * d)


@op("x: (..., T, H·d); n_heads: H; heads: (..., H, T, d)")
def split_heads(x: Array, n_heads: int) -> tuple[Array, Pullback]:
    """Cut each row into n_heads heads of equal width. backward(dheads) returns dx."""
    heads = _split(x, n_heads)

    def backward(dheads: Array) -> Array:
        dx = _merge(dheads)
        return dx

    return heads, backward


@op("heads: (..., H, T, d); x: (..., T, H·d)")
def merge_heads(heads: Array) -> tuple[Array, Pullback]:
    """Put the heads of each position side by side. backward(dx) returns dheads."""
    n_heads = heads.shape[-3]
    x = _merge(heads)

    def backward(dx: Array) -> Array:
        dheads = _split(dx, n_heads)
        return dheads

    return x, backward
