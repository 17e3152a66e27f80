"""Activations and the feed-forward network."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _activation(draw: Draw) -> Arguments:
    shape = draw.sizes(3 if draw.extreme else 2, 3, 7)
    x, dy = (10.0 if draw.extreme else 1.5) * draw.normal(*shape), draw.gradient(*shape)
    if draw.extreme:
        x.flat[:3], x.flat[-1] = (0.0, 1e-3, -1e-3), -1e-3
        dy.flat[:3] = dy.flat[-1] = 100.0
    return x, dy


@exercise(_activation)
def relu_backward(x: Array, dy: Array) -> Array:
    """ReLU, backward.

    y = max(x, 0), entry by entry. Given dy, return dx. Where x is exactly 0, take the slope to be 0.

    x, dy, dx: of any shape.

    Hint: Where does the slope of max(x, 0) change, and what is it on both sides?
    """
    dx = dy * (x > 0.0)
    return dx


@exercise(_activation)
def gelu_backward(x: Array, dy: Array) -> Array:
    """GELU, backward.

    y = x Φ(x), entry by entry, where Φ(x) = (1 + erf(x/√2)) / 2 is the cumulative distribution function of the
    standard normal distribution. Given dy, return dx. Python's math.erf is the error function of one number,
    np.vectorize(math.erf) that of an array; Φ's derivative is the density φ(x) = exp(-x²/2) / √(2π).

    x, dy, dx: of any shape.

    Hint: The product rule.
    """
    import math

    erf = np.vectorize(math.erf)
    cumulative = 0.5 * (1.0 + erf(x / np.sqrt(2.0)))
    density = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    dx = dy * (cumulative + x * density)
    return dx


@exercise(lambda draw: draw.arrays("n d, d f, f, f d; n d", 3, 8))
def feed_forward_backward(x: Array, w_1: Array, b_1: Array, w_2: Array, dy: Array) -> tuple[Array, ...]:
    """The feed-forward network, backward.

    y = relu(x w_1 + b_1) w_2 + b_2 for each of N positions. Given dy, return the gradients of x and of the four
    parameters (the value of b_2 you do not need).

    x, dx, dy: (N, D); w_1, dw_1: (D, d_ff); b_1, db_1: (d_ff,); w_2, dw_2: (d_ff, D); db_2: (D,).

    Hint: Name the intermediates: hidden = x w_1 + b_1, active = relu(hidden). Then go back: y, active, hidden, x.
    """
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
