"""Finite differences, and the vector-Jacobian products of matrix products and broadcasting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _function_and_point(draw: Draw) -> Arguments:
    x = draw.normal(*((2, 1, 3) if draw.extreme else draw.sizes(2, 2, 4)))
    a, b = draw.normal(*x.shape), draw.normal(*x.shape)

    def f(x: Array) -> float:
        return float((a * x**3).sum() + np.sin((b * x).sum()))

    return f, x, draw.uniform(1.0, 2.0) if draw.extreme else draw.uniform(0.05, 0.2)


@exercise(_function_and_point)
def finite_difference(f: Callable[[Array], float], x: Array, h: float) -> Array:
    """Finite differences.

    f takes an array of the shape of x and returns one number. Return all its derivatives at x by central
    differences: for each entry of x in turn, add h and compute f, subtract h and compute f, and divide the
    difference by 2h.

    x, dx: of any shape; h: a number, here large enough that a one-sided difference is visibly less exact.

    Hint: np.ndindex(x.shape) goes through all indices. Make an array of zeros, put h at one index, and add it to x:
    then x itself does not change.
    """
    dx = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = h
        dx[index] = (f(x + step) - f(x - step)) / (2.0 * h)
    return dx


@exercise(lambda draw: draw.arrays("n m, m p; n p"))
def matmul_backward(a: Array, b: Array, dc: Array) -> tuple[Array, Array]:
    """The matrix product, backward.

    c = a @ b. Given dc, the derivatives of a loss with respect to c, return those with respect to a and b.

    a, da: (n, m); b, db: (m, p); dc: (n, p).

    Hint: c_ij = Σ_l a_il b_lj. Which entries of c contain a_il? Then look at the shapes: only one product of dc and b
    has the shape of a.
    """
    da = dc @ b.T
    db = a.T @ dc
    return da, db


@exercise(lambda draw: draw.arrays("b t d, t 1; b t d"))
def broadcast_backward(x: Array, gain: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Broadcasting, backward.

    y = x * gain + bias, where NumPy broadcasts: each position has one gain for its whole vector, and all positions
    share one vector of biases. Given dy, return the gradients of x, gain and bias (whose values you do not need).

    x, dx, dy: (B, T, D); gain, dgain: (T, 1); dbias: (D,).

    Hint: Broadcasting copies a number to many places; each copy gets a gradient, and they add up. So sum over every
    axis along which the array was copied: the axes that it lacks, and those where its length is 1.
    """
    dx = dy * gain
    dgain = (dy * x).sum(axis=(0, 2))[:, None]
    dbias = dy.sum(axis=(0, 1))
    return dx, dgain, dbias
