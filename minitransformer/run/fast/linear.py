"""Linear maps: the bias is added in place, and its gradient is also a matrix product."""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback
from .decoding import product
from .row_blocks import column_sums, takes


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback] | None:
    """See core/ops/linear.py."""
    given = (x, weight) if bias is None else (x, weight, bias)
    if not takes(*given) or weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[0]:
        return None
    d_in, d_out = weight.shape
    if bias is not None and bias.shape != (d_out,):
        return None
    rows = x.reshape(-1, d_in)
    y = product(rows, weight)
    if bias is not None:
        y += bias

    def backward(dy: Array) -> tuple[Array, ...]:
        dproduct = dy.reshape(-1, d_out)
        dx = (dproduct @ weight.T).reshape(x.shape)
        dweight = rows.T @ dproduct
        if bias is None:
            return dx, dweight
        return dx, dweight, column_sums(dproduct)

    return y.reshape(*x.shape[:-1], d_out), backward
