"""Splitting a width into heads, and merging them again. Vaswani et al. 2017, section 3.2.2.

    split:  (..., T, H·d) -> (..., H, T, d)         x[t, h·d + c] -> heads[h, t, c]
    merge:  (..., H, T, d) -> (..., T, H·d)         the way back

Both only move numbers to other places, so each is the inverse of the other *and* its adjoint: a gradient is carried
back by the opposite move. The axes must be swapped, not just regrouped: `x.reshape(H, T, d)` has the right shape
but cuts the sequence into H pieces, and the tokens of one head never meet those of another.

Grouped-query attention (Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models ...", section
2.2) has fewer heads of keys and values than of queries: G shared heads, each for n = H / G heads of queries in turn,

    repeat:  (..., G, T, d) -> (..., G·n, T, d)     y[g·n + i] = x[g],  i = 0, ..., n - 1

A shared head is used n times, so n gradients meet in it: dx[g] = sum_i dy[g·n + i].
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_floats, check_sizes
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


@op
def repeat_heads(x: Array, times: int) -> tuple[Array, Pullback]:
    """Each head `times` times in turn. x: (..., G, T, d); y: (..., G·times, T, d). backward(dy) returns dx."""
    xp = check_floats("repeat_heads", x=x)
    check_sizes("repeat_heads", times=times)
    if x.ndim < 3:
        raise ValueError(f"repeat_heads: x must have at least three axes (..., G, T, d), got shape {x.shape}")
    *batch, n_heads, t, d = x.shape
    y = xp.repeat(x, times, axis=-3)

    def backward(dy: Array) -> Array:
        dx = dy.reshape(*batch, n_heads, times, t, d).sum(axis=-3)
        return dx

    return y, backward
