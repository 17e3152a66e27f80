"""Activations and the feed-forward network."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erf

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _activation(draw: Draw) -> tuple[Any, ...]:
    shape = draw.sizes(3 if draw.extreme else 2, 3, 7)
    x = (10.0 if draw.extreme else 1.5) * draw.normal(*shape)
    if draw.extreme:
        x.flat[0] = 0.0
    return x, draw.gradient(*shape)


@exercise(
    title="ReLU, backward",
    statement="""
        y = max(x, 0), entry by entry. Given dy, return dx. Where x is exactly 0, take the slope to be 0.

        x, dy, dx: of any shape.
    """,
    outputs="dx",
    inputs=_activation,
    hint="Where does the slope of max(x, 0) change, and what is it on both sides?",
    mistakes=(
        Mistake(
            "gradient-clipped",
            "dy * (x > 0.0)",
            "np.maximum(dy, 0.0)",
            "ReLU is applied to dy; a gradient may well be negative. What decides is the sign of x.",
        ),
        Mistake(
            "times-y", "dy * (x > 0.0)", "dy * np.maximum(x, 0.0)", "dy is multiplied by y; the slope is 1, not x."
        ),
        Mistake(
            "wrong-side",
            "x > 0.0",
            "x < 0.0",
            "The gradient passes where x is negative; there ReLU is flat.",
        ),
        Mistake("passes-everywhere", "dy * (x > 0.0)", "dy * 1.0", "The gradient passes also where x is negative."),
        Mistake(
            "both-must-be-positive",
            "dy * (x > 0.0)",
            "dy * ((x > 0.0) & (dy > 0.0))",
            "Negative entries of dy are removed as well; only the sign of x decides.",
        ),
        Mistake(
            "slope-only",
            "dy * (x > 0.0)",
            "1.0 * (x > 0.0)",
            "This is the slope alone; by the chain rule it multiplies dy.",
        ),
        Mistake(
            "passes-at-zero",
            "x > 0.0",
            "x >= 0.0",
            "The gradient passes where x is exactly 0; take the slope there to be 0.",
        ),
    ),
)
def relu_backward(x: Array, dy: Array) -> Array:
    dx = dy * (x > 0.0)
    return dx


@exercise(
    title="GELU, backward",
    statement="""
        y = x Φ(x), entry by entry, where Φ(x) = (1 + erf(x/√2)) / 2 is the normal distribution's cumulative function.
        Given dy, return dx. The error function is scipy.special.erf; Φ's derivative is the density φ(x) = exp(-x²/2)
        / √(2π).

        x, dy, dx: of any shape.
    """,
    outputs="dx",
    inputs=_activation,
    hint="The product rule.",
    mistakes=(
        Mistake(
            "product-rule-first-term-only",
            "dy * (cumulative + x * density)",
            "dy * cumulative",
            "The second term of the product rule, x φ(x), is missing.",
        ),
        Mistake(
            "product-rule-second-term-only",
            "dy * (cumulative + x * density)",
            "dy * x * density",
            "The first term of the product rule, Φ(x), is missing.",
        ),
        Mistake(
            "density-without-x",
            "x * density",
            "density",
            "In the second term of the product rule the factor x is missing.",
        ),
        Mistake(
            "density-not-normalized",
            " / np.sqrt(2.0 * np.pi)",
            "",
            "The density lacks its factor 1/√(2π).",
        ),
        Mistake(
            "erf-without-root",
            "erf(x / np.sqrt(2.0))",
            "erf(x)",
            "The error function is taken at x; it must be x/√2.",
        ),
        Mistake(
            "relu-slope",
            "dy * (cumulative + x * density)",
            "dy * (x > 0.0)",
            "This is the backward of ReLU.",
        ),
        Mistake(
            "sigmoid-approximation",
            "dy * (cumulative + x * density)",
            "dy * (1.0 / (1.0 + np.exp(-1.702 * x)) + 1.702 * x * np.exp(-1.702 * x) / (1.0 + np.exp(-1.702 * x)) "
            "** 2)",
            "This is the backward of the approximation x σ(1.702 x); the exact GELU is asked for.",
        ),
        Mistake(
            "slope-only",
            "dy * (cumulative + x * density)",
            "cumulative + x * density",
            "This is the slope alone; by the chain rule it multiplies dy.",
        ),
    ),
)
def gelu_backward(x: Array, dy: Array) -> Array:
    cumulative = 0.5 * (1.0 + erf(x / np.sqrt(2.0)))
    density = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    dx = dy * (cumulative + x * density)
    return dx


def _feed_forward(draw: Draw) -> tuple[Any, ...]:
    n, d, d_ff = draw.sizes(3, 3, 8)
    w_1, b_1, w_2 = draw.normal(d, d_ff), draw.normal(d_ff), draw.normal(d_ff, d)
    return draw.normal(n, d), w_1, b_1, w_2, draw.gradient(n, d)


@exercise(
    title="The feed-forward network, backward",
    statement="""
        y = relu(x w_1 + b_1) w_2 + b_2 for each of N positions. Given dy, return the gradients of x and of the four
        parameters (the value of b_2 you do not need).

        x, dx, dy: (N, D); w_1, dw_1: (D, d_ff); b_1, db_1: (d_ff,); w_2, dw_2: (d_ff, D); db_2: (D,).
    """,
    outputs="dx, dw_1, db_1, dw_2, db_2",
    inputs=_feed_forward,
    hint="Name what lies between: hidden = x w_1 + b_1 and active = relu(hidden). Then go back: y, active, hidden, x.",
    mistakes=(
        Mistake(
            "relu-skipped",
            "dactive * (hidden > 0.0)",
            "dactive * 1.0",
            "The gradient goes from active to hidden as if there were no ReLU; it must stop where hidden is negative.",
        ),
        Mistake(
            "relu-of-gradient",
            "dactive * (hidden > 0.0)",
            "np.maximum(dactive, 0.0)",
            "ReLU is applied to the gradient; what decides is the sign of hidden.",
        ),
        Mistake(
            "times-active",
            "dactive * (hidden > 0.0)",
            "dactive * active",
            "dactive is multiplied by active; the slope of ReLU is 1 or 0.",
        ),
        Mistake(
            "b_1-forgotten",
            "x @ w_1 + b_1",
            "x @ w_1",
            "hidden is computed without b_1, so ReLU opens at other entries.",
        ),
        Mistake(
            "dw_2-of-hidden",
            "active.T @ dy",
            "hidden.T @ dy",
            "dw_2 uses hidden; what entered w_2 is active, after the ReLU.",
        ),
        Mistake(
            "dw_1-of-dactive",
            "x.T @ dhidden",
            "x.T @ dactive",
            "dw_1 uses dactive; the gradient must first go back through the ReLU.",
        ),
        Mistake(
            "db_1-of-dactive",
            "dhidden.sum(axis=0)",
            "dactive.sum(axis=0)",
            "db_1 uses dactive; the gradient must first go back through the ReLU.",
        ),
        Mistake(
            "db_1-mean",
            "dhidden.sum(axis=0)",
            "dhidden.mean(axis=0)",
            "db_1 is a mean over the positions; it must be the sum.",
        ),
        Mistake(
            "db_2-mean",
            "dy.sum(axis=0)",
            "dy.mean(axis=0)",
            "db_2 is a mean over the positions; it must be the sum.",
        ),
        Mistake(
            "w_1-reshaped",
            "w_1.T",
            "w_1.reshape(w_1.shape[::-1])",
            "w_1 is reshaped where it must be transposed.",
        ),
        Mistake(
            "w_2-reshaped",
            "w_2.T",
            "w_2.reshape(w_2.shape[::-1])",
            "w_2 is reshaped where it must be transposed.",
        ),
    ),
)
def feed_forward_backward(
    x: Array, w_1: Array, b_1: Array, w_2: Array, dy: Array
) -> tuple[Array, Array, Array, Array, Array]:
    hidden = x @ w_1 + b_1
    active = np.maximum(hidden, 0.0)

    dactive = dy @ w_2.T
    dw_2 = active.T @ dy
    db_2 = dy.sum(axis=0)
    dhidden = dactive * (hidden > 0.0)
    dx = dhidden @ w_1.T
    dw_1 = x.T @ dhidden
    db_1 = dhidden.sum(axis=0)
    return dx, dw_1, db_1, dw_2, db_2
