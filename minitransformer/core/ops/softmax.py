"""Softmax.

    y_i = exp(x_i / T) / sum_j exp(x_j / T)

Its Jacobian is ∂y_i/∂x_j = y_i (δ_ij - y_j) / T, where δ_ij is 1 for i = j and 0 otherwise. Write dy for the gradient
of the loss with respect to y. Then the gradient with respect to x is

    dx_j = sum_i dy_i y_i (δ_ij - y_j) / T = y_j (dy_j - sum_i dy_i y_i) / T

So the n × n Jacobian is never formed: one weighted mean of dy is enough. If every dy_i is the same, dx is zero, because
the y_i always sum to one and cannot all grow together. (That is why a check with an upstream gradient of ones proves
so little: a backward pass that returned zeros would pass it.)
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, library
from ..arrays.declared import op
from ..arrays.float16 import in_float32


@op("x, y: (...); temperature > 0")
@in_float32
def softmax(x: Array, axis: int = -1, temperature: float = 1.0) -> tuple[Array, Pullback]:
    """Turn scores into weights that sum to one along `axis`. backward(dy) returns dx.

    A score of -inf gets the weight 0. If every score is -inf, all weights are 0.
    A high temperature T makes the weights more equal, a low one picks the largest: softmax([0, 1]) is [0.27, 0.73] at
    T = 1, [0.48, 0.52] at T = 10 and [0.00005, 0.99995] at T = 0.1.
    """
    xp = library(type(x))
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"softmax: axis {axis} does not exist in an array of shape {x.shape}")

    largest = x.max(axis=axis, keepdims=True)
    shift = xp.where(largest == -xp.inf, 0.0, largest)  # -inf - (-inf) would be NaN
    exponentials = xp.exp((x - shift) / temperature)  # a shift cancels in y, and exp of 0 or less cannot overflow
    total = exponentials.sum(axis=axis, keepdims=True)
    y = exponentials / xp.where(total == 0.0, 1.0, total)

    def backward(dy: Array) -> Array:
        dx = y * (dy - (dy * y).sum(axis=axis, keepdims=True)) / temperature
        return dx

    return y, backward
