"""LayerNorm in loops that Numba compiles; see loops.py. Without Numba it runs as written."""

from __future__ import annotations

import numpy as np

from ...core.arrays.backend import Array, Pullback
from .row_blocks import compiled, takes


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Pullback] | None:
    """See core/ops/normalization.py."""
    if not takes(x, gamma, beta) or gamma.ndim != 1 or x.shape[-1:] != gamma.shape or beta.shape != gamma.shape:
        return None
    if type(eps) not in (int, float) or not 0.0 < eps < np.inf:
        return None
    rows, shape = x.reshape(-1, gamma.size), x.shape
    loops = compiled(rows, gamma, beta)
    if loops is None:
        return None
    normalized, y, inverse_std = np.empty_like(rows), np.empty_like(rows), np.empty(rows.shape[0], x.dtype)
    loops.layer_norm(rows, gamma, beta, x.dtype.type(eps), normalized, y, inverse_std)

    def backward(dy: Array) -> tuple[Array, Array, Array]:  # it keeps `normalized`: x itself can be freed
        drows = np.ascontiguousarray(dy).reshape(normalized.shape)
        dx = np.empty_like(normalized)
        dgamma, dbeta = np.zeros(gamma.shape), np.zeros(gamma.shape)
        loops.layer_norm_backward(drows, normalized, gamma, inverse_std, dx, dgamma, dbeta)
        return dx.reshape(shape), dgamma.astype(gamma.dtype), dbeta.astype(gamma.dtype)

    return y.reshape(shape), backward
