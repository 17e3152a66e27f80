"""Linear maps on the GPU: two products by cuBLAS, as written, and the bias's gradient by a kernel; see linear.cu.

CuPy's own sum down the columns of a long narrow matrix took a third of the GPU's time in a small Transformer's step.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from .launching import ceil_div, contiguous, kernels_of, takes

STRIPS = 64  # most strips of rows


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback] | None:
    """See core/ops/linear.py. Without a bias there is nothing to gain."""
    if bias is None or not takes(x, weight, bias) or weight.ndim != 2 or x.ndim < 1:
        return None
    d_in, d_out = weight.shape
    if x.shape[-1] != d_in or bias.shape != (d_out,):
        return None
    (column_sums,) = kernels_of("linear.cu", x)
    rows = x.reshape(-1, d_in)
    y = rows @ weight
    y += bias

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dproduct = contiguous(dy.reshape(-1, d_out))
        n_rows = len(dproduct)
        strip = max(32, ceil_div(n_rows, STRIPS))
        sums = array_module(dy).empty((ceil_div(n_rows, strip), d_out), dtype="float32")
        column_sums((ceil_div(d_out, 32), len(sums)), (32, 8), dproduct, sums, n_rows, d_out, strip)
        dx = (dproduct @ weight.T).reshape(x.shape)
        return dx, rows.T @ dproduct, sums.sum(axis=0).astype(dproduct.dtype, copy=False)

    return y.reshape(*x.shape[:-1], d_out), backward
