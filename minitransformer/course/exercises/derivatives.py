"""Finite differences, and the vector-Jacobian products of matrix products and broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _function_and_point(draw: Draw) -> tuple[Any, ...]:
    x = draw.normal(*((2, 1, 3) if draw.extreme else draw.sizes(2, 2, 4)))
    a, b = draw.normal(*x.shape), draw.normal(*x.shape)

    def f(x: Array) -> float:
        return float((a * x**3).sum() + np.sin((b * x).sum()))

    return f, x, draw.uniform(1.0, 2.0) if draw.extreme else draw.uniform(0.05, 0.2)


@exercise(
    title="Finite differences",
    statement="""
        f takes an array of the shape of x and returns one number. Return all its derivatives at x by central
        differences: for each entry of x in turn, f a step h to the one side minus f a step h to the other, divided by
        2h.

        x, dx: of any shape; h: a number, here so large that a one-sided difference is visibly less exact.
    """,
    outputs="dx",
    inputs=_function_and_point,
    hint="""
        np.ndindex(x.shape) goes through all indices. Make an array of zeros, put h at one index, and add it to x: then
        x itself stays as it was.
    """,
    mistakes=(
        Mistake(
            "forward-difference",
            "(f(x + step) - f(x - step)) / (2.0 * h)",
            "(f(x + step) - f(x)) / h",
            "This is the one-sided difference, with an error that shrinks as h; the central one's shrinks as h².",
        ),
        Mistake(
            "backward-difference",
            "(f(x + step) - f(x - step)) / (2.0 * h)",
            "(f(x) - f(x - step)) / h",
            "This is the one-sided difference, with an error that shrinks as h; the central one's shrinks as h².",
        ),
        Mistake(
            "divided-by-h",
            "(2.0 * h)",
            "h",
            "The two points lie 2h apart, so divide by 2h; everything came out twice too large.",
        ),
        Mistake(
            "not-divided-by-h",
            "(2.0 * h)",
            "2.0",
            "The difference is halved, but not divided by h. See it: with half the step it is half as large.",
        ),
        Mistake(
            "not-divided",
            " / (2.0 * h)",
            "",
            "This is the difference itself; a derivative is the difference divided by the distance 2h.",
        ),
        Mistake(
            "steps-pile-up",
            "for index in np.ndindex(x.shape):\n        step = np.zeros_like(x)\n",
            "step = np.zeros_like(x)\n    for index in np.ndindex(x.shape):\n",
            "The entries moved before are not put back, so from the second on several move at once.",
        ),
        Mistake(
            "all-entries-at-once",
            "step[index] = h",
            "step[...] = h",
            "All entries of x are moved together, which gives the sum of the derivatives; move one at a time.",
        ),
        Mistake(
            "wrong-sign",
            "f(x + step) - f(x - step)",
            "f(x - step) - f(x + step)",
            "The difference is taken the wrong way round, so the sign is wrong.",
        ),
    ),
)
def finite_difference(f: Callable[[Array], float], x: Array, h: float) -> Array:
    dx = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = h
        dx[index] = (f(x + step) - f(x - step)) / (2.0 * h)
    return dx


def _matrices(draw: Draw) -> tuple[Any, ...]:
    n, m, p = draw.sizes(3)
    return draw.normal(n, m), draw.normal(m, p), draw.gradient(n, p)


@exercise(
    title="The matrix product, backward",
    statement="""
        c = a @ b. Given dc, the derivatives of a loss with respect to c, return those with respect to a and b.

        a, da: (n, m); b, db: (m, p); dc: (n, p).
    """,
    outputs="da, db",
    inputs=_matrices,
    hint="""
        c_ij = Σ_l a_il b_lj. Which c does a_il enter? Then look at the shapes: only one product of dc and b has the
        shape of a.
    """,
    mistakes=(
        Mistake(
            "b-reshaped",
            "b.T",
            "b.reshape(b.shape[::-1])",
            "b is brought to the shape (p, m) by a reshape, which scrambles its entries; it must be transposed.",
        ),
        Mistake(
            "a-reshaped",
            "a.T",
            "a.reshape(a.shape[::-1])",
            "a is brought to the shape (m, n) by a reshape, which scrambles its entries; it must be transposed.",
        ),
        Mistake(
            "da-mean",
            "dc @ b.T",
            "dc @ b.T / len(a)",
            "da is divided by the number of rows; nothing in a matrix product is a mean.",
        ),
        Mistake(
            "db-mean",
            "a.T @ dc",
            "a.T @ dc / len(a)",
            "db is divided by the number of rows: each row uses b, and their gradients add up, they are not averaged.",
        ),
        Mistake(
            "upstream-forgotten-in-da",
            "dc @ b.T",
            "np.ones_like(dc) @ b.T",
            "da is the gradient of the plain sum of c: dc has been taken for ones.",
        ),
        Mistake(
            "upstream-forgotten-in-db",
            "a.T @ dc",
            "a.T @ np.ones_like(dc)",
            "db is the gradient of the plain sum of c: dc has been taken for ones.",
        ),
        Mistake(
            "swapped",
            "return da, db",
            "return db, da",
            "da and db are returned in the wrong order; their shapes tell.",
        ),
        Mistake(
            "da-transposed",
            "dc @ b.T",
            "(dc @ b.T).T",
            "This is da transposed; a gradient has the shape of its array.",
        ),
        Mistake(
            "db-transposed",
            "a.T @ dc",
            "dc.T @ a",
            "This is db transposed; a gradient has the shape of its array.",
        ),
    ),
)
def matmul_backward(a: Array, b: Array, dc: Array) -> tuple[Array, Array]:
    da = dc @ b.T
    db = a.T @ dc
    return da, db


def _broadcast(draw: Draw) -> tuple[Any, ...]:
    batch, t, d = draw.sizes(3)
    return draw.normal(batch, t, d), draw.normal(t, 1), draw.gradient(batch, t, d)


@exercise(
    title="Broadcasting, backward",
    statement="""
        y = x * gain + bias, where NumPy broadcasts: each position has one gain for its whole vector, and all positions
        share one vector of biases. Given dy, return the gradients of x, gain and bias (whose values you do not need).

        x, dx, dy: (B, T, D); gain, dgain: (T, 1); dbias: (D,).
    """,
    outputs="dx, dgain, dbias",
    inputs=_broadcast,
    hint="""
        Broadcasting copies a number to many places; each copy gets a gradient, and they add up. So sum over every axis
        along which the array was copied, those that it does not have and those that it has with length 1.
    """,
    mistakes=(
        Mistake(
            "gain-forgotten-in-dx",
            "dy * gain",
            "dy * 1.0",
            "dx lacks the factor gain: it multiplied x, so it multiplies dy on the way back.",
        ),
        Mistake(
            "x-forgotten-in-dgain",
            "(dy * x)",
            "dy",
            "dgain lacks the factor x: by the product rule each factor gets dy times the other.",
        ),
        Mistake(
            "dgain-mean",
            "(dy * x).sum(axis=(0, 2))",
            "(dy * x).mean(axis=(0, 2))",
            "dgain is a mean over the places where the gain was used; it must be the sum.",
        ),
        Mistake(
            "dgain-batch-kept",
            "(dy * x).sum(axis=(0, 2))[:, None]",
            "(dy * x).sum(axis=2, keepdims=True)",
            "Each sequence still has a dgain of its own; they share the gain, so sum over the batch as well.",
        ),
        Mistake(
            "dgain-axis-lost",
            "[:, None]",
            "",
            "The values are right, but the axis of length 1 is gone: dgain must be (T, 1), like gain.",
        ),
        Mistake(
            "dbias-mean",
            "dy.sum(axis=(0, 1))",
            "dy.mean(axis=(0, 1))",
            "dbias is a mean over the places where the bias was used; it must be the sum.",
        ),
        Mistake(
            "dbias-over-batch-only",
            "dy.sum(axis=(0, 1))",
            "dy.sum(axis=0)",
            "dbias is summed over the batch only; all positions share the bias, so sum over T as well.",
        ),
        Mistake(
            "dbias-not-summed",
            "dy.sum(axis=(0, 1))",
            "dy * 1.0",
            "dbias is dy itself; the bias was copied to B·T places, whose gradients must be summed.",
        ),
        Mistake(
            "dbias-times-gain",
            "dy.sum(axis=(0, 1))",
            "(dy * gain).sum(axis=(0, 1))",
            "dbias has a factor gain; the bias is added after the gain has multiplied.",
        ),
    ),
)
def broadcast_backward(x: Array, gain: Array, dy: Array) -> tuple[Array, Array, Array]:
    dx = dy * gain
    dgain = (dy * x).sum(axis=(0, 2))[:, None]
    dbias = dy.sum(axis=(0, 1))
    return dx, dgain, dbias
