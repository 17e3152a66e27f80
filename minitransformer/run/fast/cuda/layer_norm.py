"""LayerNorm on the GPU; see layer_norm.cu."""

from __future__ import annotations

import math

from ....core.arrays.backend import Array, Pullback, array_module
from .launching import ceil_div, contiguous, kernels_of, takes

ROWS = 4  # rows per block, one for each of its warps
STRIPS = 64  # most strips of rows for the sums down the columns


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Pullback] | None:
    """See core/ops/normalization.py."""
    if not takes(x, gamma, beta) or gamma.ndim != 1 or x.shape[-1:] != gamma.shape or beta.shape != gamma.shape:
        return None
    if type(eps) not in (int, float) or not 0.0 < eps < math.inf:
        return None
    xp = array_module(x)
    forward, backward_x, backward_parameters = kernels_of("layer_norm.cu", x)
    width = gamma.shape[0]
    n_rows = x.size // width
    rows, gains = contiguous(x), contiguous(gamma)
    y = xp.empty(x.shape, dtype=x.dtype)
    means, inverse_stds = (xp.empty(n_rows, dtype="float32") for _ in range(2))
    grid, block = (ceil_div(n_rows, ROWS), 1), (32, ROWS)
    forward(grid, block, rows, gains, contiguous(beta), y, means, inverse_stds, n_rows, width, float(eps))

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        drows = contiguous(dy)
        dx = xp.empty(rows.shape, dtype=rows.dtype)
        backward_x(grid, block, rows, gains, means, inverse_stds, drows, dx, n_rows, width)
        strip = max(32, ceil_div(n_rows, STRIPS))
        n_strips = ceil_div(n_rows, strip)
        sums = xp.empty((2, n_strips, width), dtype="float32")
        columns = (ceil_div(width, 32), n_strips)
        backward_parameters(columns, (32, 8), rows, means, inverse_stds, drows, sums, n_rows, width, strip)
        dgamma, dbeta = sums.sum(axis=1).astype(rows.dtype)
        return dx, dgamma, dbeta

    return y, backward
