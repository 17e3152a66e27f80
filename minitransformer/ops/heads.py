"""Splitting a width into heads, and merging them again. Vaswani et al. 2017, section 3.2.2.

    split:  (..., T, H·d) -> (..., H, T, d)         x[t, h·d + c] -> heads[h, t, c]
    merge:  (..., H, T, d) -> (..., T, H·d)         the way back

Both only move numbers to other places, so each is the inverse of the other *and* its adjoint: a gradient is carried
back by the opposite move. The axes must be swapped, not just regrouped: `x.reshape(H, T, d)` has the right shape
but cuts the sequence into H pieces, and the tokens of one head never meet those of another.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_floats, check_integers, op


def _split(x: Array, n_heads: int) -> Array:
    *batch, t, width = x.shape
    return x.reshape(*batch, t, n_heads, width // n_heads).swapaxes(-3, -2)


def _merge(heads: Array) -> Array:
    *batch, n_heads, t, d = heads.shape
    return heads.swapaxes(-3, -2).reshape(*batch, t, n_heads * d)


@op
def split_heads(x: Array, n_heads: int) -> tuple[Array, Pullback]:
    """x: (..., T, H·d) to heads: (..., H, T, d), where H = n_heads. backward(dheads) returns dx."""
    check_floats("split_heads", x=x)
    if x.ndim < 2:
        raise ValueError(f"split_heads: x must have at least two axes (..., T, width), got shape {x.shape}")
    check_integers("split_heads", n_heads=n_heads)
    if n_heads < 1 or x.shape[-1] % n_heads:
        raise ValueError(f"split_heads: the width {x.shape[-1]} cannot be divided into {n_heads} equal heads")
    heads = _split(x, n_heads)

    def backward(dheads: Array) -> Array:
        dx = _merge(dheads)
        return dx

    return heads, backward


@op
def merge_heads(heads: Array) -> tuple[Array, Pullback]:
    """heads: (..., H, T, d) to x: (..., T, H·d). backward(dx) returns dheads."""
    check_floats("merge_heads", heads=heads)
    if heads.ndim < 3:
        raise ValueError(f"merge_heads: heads must have at least three axes (..., H, T, d), got shape {heads.shape}")
    n_heads = heads.shape[-3]
    x = _merge(heads)

    def backward(dx: Array) -> Array:
        dheads = _split(dx, n_heads)
        return dheads

    return x, backward
