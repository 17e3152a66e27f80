"""Softmax: forward, its Jacobian, backward."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _forward(draw: Draw) -> Arguments:
    n_rows, n = draw.sizes(2)
    x = 2.0 * draw.scores(n_rows, n)
    x[0] += 1000.0
    x[-1] -= 1000.0
    if draw.extreme:
        x[:, 0] = -np.inf
        x[0, 1:-1] -= 2000.0  # the largest score is far above the usual one
    return (x,)


@exercise(_forward)
def softmax_forward(x: Array) -> Array:
    """Softmax.

    Turn each row of scores into weights that are positive and sum to one:

        y_ij = exp(x_ij) / Σ_l exp(x_il)

    x: (N, n); y: (N, n). Some rows have scores around 1000, others around -1000; your answer must be finite there
    too. A score of -inf gets the weight 0.

    Hint: exp(1000) is more than a float can hold. But softmax does not change if the same number is added to all scores
    of a row: which one makes every exponent at most 0?
    """
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    y = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return y


def _jacobian(draw: Draw) -> Arguments:
    y = draw.weights(*draw.sizes(1, 3, 6))
    return (np.append(y * (1.0 - 2.0**-13), 2.0**-13) if draw.extreme else y,)  # small entries are not to be dropped


@exercise(_jacobian)
def softmax_jacobian(y: Array) -> Array:
    """The Jacobian of softmax.

    Given the weights y = softmax(x) of one row, return the matrix of all derivatives,

        jacobian_ij = ∂y_i / ∂x_j

    y: (n,); jacobian: (n, n).

    Hint: Take the logarithm: log y_i = x_i - log Σ_l exp(x_l). Its derivative with respect to x_j is δ_ij - y_j, and
    ∂y_i = y_i ∂(log y_i).
    """
    jacobian = np.diag(y) - np.outer(y, y)
    return jacobian


def _backward(draw: Draw) -> Arguments:
    n_rows, n = draw.sizes(2)
    return draw.weights(n_rows, n), draw.gradient(n_rows, n)


@exercise(_backward)
def softmax_backward(y: Array, dy: Array) -> Array:
    """Softmax, backward.

    y = softmax(x), row by row. dy holds the derivatives of a loss with respect to y; return those with respect to
    x. You are given the weights y themselves, so you need not compute softmax again.

    y, dy, dx: (N, n). Do it without forming the n × n Jacobian.

    Hint: The Jacobian is ∂y_i/∂x_j = y_i (δ_ij - y_j). Put it into dx_j = Σ_i dy_i ∂y_i/∂x_j and multiply out: one of
    the two terms is the same sum for every j.
    """
    dx = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    return dx


def _temperature(draw: Draw) -> Arguments:
    temperature = draw.uniform(0.2, 0.7)
    return *_backward(draw), temperature if draw.number % 2 else 1.0 / temperature


@exercise(_temperature)
def softmax_temperature_backward(y: Array, dy: Array, temperature: float) -> Array:
    """Softmax with a temperature, backward.

    y = softmax(x / temperature), row by row. Given y and dy, return dx.

    y, dy, dx: (N, n); temperature: a number above 0.

    Hint: Go back in two steps: first through softmax to its input z = x / temperature, then from z to x.
    """
    dz = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    dx = dz / temperature
    return dx
