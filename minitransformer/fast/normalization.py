"""LayerNorm in blocks of rows that stay in the cache. Every sum along a row or a column is a product with a vector.

In backward, with n for normalized, write t = dy * n. Then dγ = sum_rows t, and since dn = γ * dy, the two means of the
derivation in ops/normalization.py are products of the rows of dy and of t with one vector:

    mean_i(dn_i) = dy · γ/D,        mean_i(dn_i n_i) = t · γ/D
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback
from .blocks import blocks, column_sums, compiled, takes


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Pullback] | None:
    """See ops/normalization.py."""
    if not takes(x, gamma, beta) or gamma.ndim != 1 or x.shape[-1:] != gamma.shape or beta.shape != gamma.shape:
        return None
    if type(eps) not in (int, float) or not 0.0 < eps < np.inf:
        return None
    width, shape = gamma.shape[0], x.shape
    rows = x.reshape(-1, width)
    normalized, y = np.empty_like(rows), np.empty_like(rows)
    inverse_std = np.empty((rows.shape[0], 1), x.dtype)
    if loops := compiled(rows, gamma, beta):
        loops.layer_norm(rows, gamma, beta, x.dtype.type(eps), normalized, y, inverse_std[:, 0])
        return y.reshape(shape), _compiled_backward(loops, normalized, gamma, inverse_std[:, 0], shape)

    share = np.full(width, 1.0 / width, x.dtype)
    for block in blocks(*rows.shape):
        n, out = normalized[block], y[block]
        np.subtract(rows[block], (rows[block] @ share)[:, None], out=n)
        np.multiply(n, n, out=out)
        inverse_std[block, 0] = 1.0 / np.sqrt(out @ share + eps)
        n *= inverse_std[block]
        np.multiply(n, gamma, out=out)
        out += beta

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        drows = dy.reshape(-1, width)
        scaled_gamma = gamma * share
        dgamma, dbeta = np.zeros_like(gamma), np.zeros_like(beta)
        dx = np.empty_like(normalized)
        for block in blocks(*normalized.shape):
            dout, n, out = drows[block], normalized[block], dx[block]
            t = dout * n
            dgamma += column_sums(t)
            dbeta += column_sums(dout)
            shift, stretch = (dout @ scaled_gamma)[:, None], (t @ scaled_gamma)[:, None]
            np.multiply(n, stretch, out=t)
            np.multiply(dout, gamma, out=out)
            out -= t
            out -= shift
            out *= inverse_std[block]
        return dx.reshape(shape), dgamma, dbeta

    return y.reshape(shape), backward


def _compiled_backward(
    loops: Any, normalized: Array, gamma: Array, inverse_std: Array, shape: tuple[int, ...]
) -> Pullback:
    def backward(dy: Array) -> tuple[Array, Array, Array]:
        drows = np.ascontiguousarray(dy).reshape(normalized.shape)
        dx = np.empty_like(normalized)
        dgamma, dbeta = np.zeros(gamma.shape), np.zeros(gamma.shape)
        loops.layer_norm_backward(drows, normalized, gamma, inverse_std, dx, dgamma, dbeta)
        return dx.reshape(shape), dgamma.astype(gamma.dtype), dbeta.astype(gamma.dtype)

    return backward
