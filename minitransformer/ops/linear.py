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
from ..arrays.boundary import check_floats, check_last
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


@op
def low_rank_linear(x: Array, down: Array, up: Array) -> tuple[Array, Pullback]:
    """y = (x W1) W2: a matrix W = W1 W2 of rank at most r, kept as its two factors.

    x: (..., in); down = W1: (in, r); up = W2: (r, out); y: (..., out). With r much smaller than in and out, this takes
    r (in + out) numbers instead of in · out. backward(dy) goes through the second map and then the first, and returns
    (dx, ddown, dup).
    """
    check_floats("low_rank_linear", x=x, down=down, up=up)
    if down.ndim != 2 or up.ndim != 2 or down.shape[1] != up.shape[0]:
        raise ValueError(f"low_rank_linear: down must be (in, r) and up (r, out), got {down.shape} and {up.shape}")
    check_last("low_rank_linear", "x", x, down.shape[0], "the rows of down")
    hidden, down_backward = linear(x, down)
    y, up_backward = linear(hidden, up)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dhidden, dup = up_backward(dy)
        dx, ddown = down_backward(dhidden)
        return dx, ddown, dup

    return y, backward
