"""Softmax: forward, its Jacobian, backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _forward(draw: Draw) -> tuple[Any, ...]:
    n_rows, n = draw.sizes(2)
    x = 2.0 * draw.scores(n_rows, n)
    x[0] += 1000.0
    x[-1] -= 1000.0
    if draw.extreme:
        x[:, 0] = -np.inf
        x[0, -1] = -1000.0
    return (x,)


@exercise(
    title="Softmax",
    statement="""
        Turn each row of scores into weights that are positive and sum to one:

            y_ij = exp(x_ij) / Σ_l exp(x_il)

        x: (N, n); y: (N, n). Some rows hold scores around 1000, others around -1000; your answer must be finite there
        too. A score of -inf gets the weight 0.
    """,
    outputs="y",
    inputs=_forward,
    hint="""
        exp(1000) is more than a float can hold. But softmax does not change if the same number is added to all scores
        of a row: which one makes every exponent at most 0?
    """,
    mistakes=(
        Mistake(
            "no-shift",
            "x - x.max(axis=-1, keepdims=True)",
            "x",
            "exp(1000) overflows, and exp(-1000) is 0 for a whole row: subtract the largest score of each row first.",
        ),
        Mistake(
            "shift-by-global-maximum",
            "x.max(axis=-1, keepdims=True)",
            "x.max()",
            "The largest score of the whole array is subtracted, so in rows of small scores every exp is 0, and 0/0 is "
            "NaN: subtract the largest of each row.",
        ),
        Mistake(
            "sum-over-first-axis",
            "np.exp(x - x.max(axis=-1, keepdims=True))\n    y = exponentials / exponentials.sum(axis=-1, "
            "keepdims=True)",
            "np.exp(x - x.max(axis=0, keepdims=True))\n    y = exponentials / exponentials.sum(axis=0, keepdims=True)",
            "The sum runs over the rows (axis 0), so the columns sum to one; the weights of one row must.",
        ),
        Mistake(
            "sum-over-everything",
            "np.exp(x - x.max(axis=-1, keepdims=True))\n    y = exponentials / exponentials.sum(axis=-1, "
            "keepdims=True)",
            "np.exp(x - x.max())\n    y = exponentials / exponentials.sum()",
            "The sum runs over the whole array, so all weights together sum to one; each row must.",
        ),
        Mistake(
            "not-divided",
            "exponentials / exponentials.sum(axis=-1, keepdims=True)",
            "exponentials",
            "The exponentials are not divided by their sum, so the rows do not sum to one.",
        ),
    ),
)
def softmax_forward(x: Array) -> Array:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    y = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return y


def _jacobian(draw: Draw) -> tuple[Any, ...]:
    (n,) = draw.sizes(1, 3, 6)
    return (draw.weights(n),)


@exercise(
    title="The Jacobian of softmax",
    statement="""
        Given the weights y = softmax(x) of one row, return the matrix of all derivatives,

            jacobian_ij = ∂y_i / ∂x_j

        y: (n,); jacobian: (n, n).
    """,
    outputs="jacobian",
    inputs=_jacobian,
    hint="""
        Take the logarithm: log y_i = x_i - log Σ_l exp(x_l). Its derivative with respect to x_j is δ_ij - y_j, and
        ∂y_i = y_i ∂(log y_i).
    """,
    mistakes=(
        Mistake(
            "diagonal-only",
            "np.diag(y) - np.outer(y, y)",
            "np.diag(y * (1.0 - y))",
            "Only the diagonal y_i (1 - y_i) is there: a score x_j also lowers every other weight, by y_i y_j.",
        ),
        Mistake(
            "diagonal-without-square",
            "np.diag(y) - np.outer(y, y)",
            "np.diag(y) - np.outer(y, y) + np.diag(y * y)",
            "On the diagonal the term -y_i² is missing: x_i stands in the denominator as well. Every row must sum "
            "to 0.",
        ),
        Mistake(
            "outer-product-missing",
            "np.diag(y) - np.outer(y, y)",
            "np.diag(y)",
            "Only the numerator exp(x_i) is differentiated; the denominator, which all scores share, gives -y_i y_j.",
        ),
        Mistake(
            "diagonal-missing",
            "np.diag(y) - np.outer(y, y)",
            "-np.outer(y, y)",
            "Only the denominator is differentiated; the numerator exp(x_i) adds y_i on the diagonal.",
        ),
        Mistake(
            "wrong-sign",
            "np.diag(y) - np.outer(y, y)",
            "np.outer(y, y) - np.diag(y)",
            "The sign is the wrong way round: raising x_i must raise y_i, so the diagonal is positive.",
        ),
        Mistake(
            "plus-for-minus",
            "np.diag(y) - np.outer(y, y)",
            "np.diag(y) + np.outer(y, y)",
            "The product y_i y_j is added, but it must be subtracted: the denominator grows with every score.",
        ),
    ),
)
def softmax_jacobian(y: Array) -> Array:
    jacobian = np.diag(y) - np.outer(y, y)
    return jacobian


def _backward(draw: Draw) -> tuple[Any, ...]:
    n_rows, n = draw.sizes(2)
    return draw.weights(n_rows, n), draw.gradient(n_rows, n)


@exercise(
    title="Softmax, backward",
    statement="""
        y = softmax(x), row by row. dy holds the derivatives of a loss with respect to y; return those with respect to
        x. You are given the weights y themselves, so you need not compute softmax again.

        y, dy, dx: (N, n). Do it without forming the n × n Jacobian.
    """,
    outputs="dx",
    inputs=_backward,
    hint="""
        The Jacobian is ∂y_i/∂x_j = y_i (δ_ij - y_j). Put it into dx_j = Σ_i dy_i ∂y_i/∂x_j and multiply out: one of the
        two terms is the same sum for every j.
    """,
    mistakes=(
        Mistake(
            "no-sum",
            "dy - (dy * y).sum(axis=-1, keepdims=True)",
            "dy",
            "The term -Σ_i dy_i y_i is missing: it comes from the denominator, which all entries of a row share. "
            "See it: each row of dx must sum to 0.",
        ),
        Mistake(
            "diagonal-only",
            "y * (dy - (dy * y).sum(axis=-1, keepdims=True))",
            "dy * y * (1.0 - y)",
            "Only the diagonal y_i (1 - y_i) of the Jacobian is used, as for a sigmoid: each x_j also moves every "
            "other y_i, by -y_i y_j.",
        ),
        Mistake(
            "plain-sum",
            "(dy * y).sum(",
            "dy.sum(",
            "The plain sum of dy is subtracted; each dy_i must be weighted by its y_i.",
        ),
        Mistake(
            "plain-mean",
            "(dy * y).sum(",
            "dy.mean(",
            "The plain mean of dy is subtracted; it must be the mean weighted by y, Σ_i dy_i y_i.",
        ),
        Mistake(
            "weighted-mean-divided",
            "(dy * y).sum(",
            "(dy * y).mean(",
            "Σ_i dy_i y_i is divided by n once more: the weights y already sum to one.",
        ),
        Mistake(
            "sum-over-first-axis",
            "(dy * y).sum(axis=-1,",
            "(dy * y).sum(axis=0,",
            "The sum runs over the rows (axis 0); it must run along each row, where the weights sum to one.",
        ),
        Mistake(
            "sum-over-everything",
            "(dy * y).sum(axis=-1, keepdims=True)",
            "(dy * y).sum()",
            "The sum runs over the whole array, so the rows get mixed; each row has a sum of its own.",
        ),
        Mistake(
            "plus-for-minus",
            "dy - (dy * y)",
            "dy + (dy * y)",
            "The sum is added, but it must be subtracted.",
        ),
        Mistake(
            "y-not-multiplied",
            "y * (dy - (dy * y).sum(axis=-1, keepdims=True))",
            "dy - (dy * y).sum(axis=-1, keepdims=True)",
            "The factor y_j in front is missing: dx_j = y_j (dy_j - Σ_i dy_i y_i).",
        ),
        Mistake(
            "expects-cross-entropy",
            "y * (dy - (dy * y).sum(axis=-1, keepdims=True))",
            "y - dy",
            "y - dy is the gradient of cross-entropy, with dy taken for the wanted distribution; here dy is any "
            "gradient.",
        ),
        Mistake(
            "divided-by-rows",
            "keepdims=True))",
            "keepdims=True)) / len(y)",
            "You divided by the number of rows. A mean over a batch belongs to the loss; dy contains it already.",
        ),
        Mistake(
            "wrong-sign",
            "dx = ",
            "dx = -",
            "The sign is the wrong way round: where dy is larger than its weighted mean, dx must be positive.",
        ),
    ),
)
def softmax_backward(y: Array, dy: Array) -> Array:
    dx = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    return dx


def _temperature(draw: Draw) -> tuple[Any, ...]:
    temperature = draw.uniform(0.2, 0.7)
    return *_backward(draw), temperature if draw.integer(0, 1) else 1.0 / temperature


@exercise(
    title="Softmax with a temperature, backward",
    statement="""
        y = softmax(x / temperature), row by row. Given y and dy, return dx.

        y, dy, dx: (N, n); temperature: a number above 0.
    """,
    outputs="dx",
    inputs=_temperature,
    hint="Go back in two steps: first through softmax to its input z = x / temperature, then from z to x.",
    mistakes=(
        Mistake(
            "no-temperature",
            "dz / temperature",
            "dz",
            "The inner derivative ∂z/∂x = 1/T is missing. See it: the hotter, the flatter softmax, the smaller dx.",
        ),
        Mistake(
            "times-temperature",
            "dz / temperature",
            "dz * temperature",
            "You multiplied by T; z = x / T, so its derivative is 1/T.",
        ),
        Mistake(
            "temperature-squared",
            "dz / temperature",
            "dz / temperature**2",
            "The factor 1/T is applied twice.",
        ),
        Mistake(
            "temperature-in-the-sum",
            "(dy * y).sum(axis=-1, keepdims=True)",
            "(dy * y).sum(axis=-1, keepdims=True) / temperature",
            "The sum Σ_i dy_i y_i is divided by T once more than the rest: 1/T is a factor of the whole bracket, once.",
        ),
        Mistake(
            "plain-mean",
            "(dy * y).sum(",
            "dy.mean(",
            "The plain mean of dy is subtracted; it must be the mean weighted by y, Σ_i dy_i y_i.",
        ),
        Mistake(
            "plain-sum",
            "(dy * y).sum(",
            "dy.sum(",
            "The plain sum of dy is subtracted; each dy_i must be weighted by its y_i.",
        ),
        Mistake(
            "sum-over-everything",
            "(dy * y).sum(axis=-1, keepdims=True)",
            "(dy * y).sum()",
            "The sum runs over the whole array, so the rows get mixed; each row has a sum of its own.",
        ),
        Mistake(
            "plus-for-minus",
            "dy - (dy * y)",
            "dy + (dy * y)",
            "The sum is added, but it must be subtracted.",
        ),
        Mistake(
            "no-sum",
            "dy - (dy * y).sum(axis=-1, keepdims=True)",
            "dy",
            "The term -Σ_i dy_i y_i is missing, which comes from the denominator that all entries of a row share.",
        ),
        Mistake(
            "diagonal-only",
            "y * (dy - (dy * y).sum(axis=-1, keepdims=True))",
            "dy * y * (1.0 - y)",
            "Only the diagonal y_i (1 - y_i) of softmax's Jacobian is used.",
        ),
    ),
)
def softmax_temperature_backward(y: Array, dy: Array, temperature: float) -> Array:
    dz = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    dx = dz / temperature
    return dx
