"""Linear maps.

    y_nj = sum_i x_ni W_ij + b_j            in matrices:  y = x W + b

Each weight W_ij affects column j of every row n of y, so its gradient is a sum over the rows:

    dx = dy Wᵀ                              dx_ni = sum_j dy_nj W_ij
    dW = xᵀ dy                              dW_ij = sum_n x_ni dy_nj
    db = sum_n dy_n

The shapes help to remember the formula: x is (N, in) and dy is (N, out), and dW must be (in, out) like W.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback
from ..arrays.declared import op
from ..arrays.float16 import in_float32_on_host


@op("x: (..., in); weight: (in, out); bias: (out,); y: (..., out)")
@in_float32_on_host
def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback]:
    """y = x W + b.

    backward(dy) returns (dx, dweight, dbias), or (dx, dweight) without a bias.
    """
    d_in, d_out = weight.shape
    rows = x.reshape(-1, d_in)  # (N, in): one large matrix product is faster than many small ones
    product = rows @ weight
    y = (product if bias is None else product + bias).reshape(*x.shape[:-1], d_out)

    def backward(dy: Array) -> tuple[Array, ...]:
        dproduct = dy.reshape(-1, d_out)
        drows = dproduct @ weight.T
        dx = drows.reshape(x.shape)
        dweight = rows.T @ dproduct
        if bias is None:
            return dx, dweight
        dbias = dproduct.sum(axis=0)
        return dx, dweight, dbias

    return y, backward
