"""LayerNorm forward and backward, RMSNorm backward."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _forward(draw: Draw) -> Arguments:
    batch, t, d = draw.sizes(3)
    x = (0.2 if draw.ones else 1.0) * (1.0 + 2.0 * draw.normal(batch, t, d))
    if draw.extreme:
        x[0, 0] = 0.0  # a row without variance
    return x, draw.normal(d), draw.normal(d), draw.uniform(0.05, 0.3)


@exercise(_forward)
def layer_norm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """LayerNorm.

    Give each row of the last axis mean 0 and variance 1, then scale by γ and shift by β:

        normalized = (x - mean) / √(variance + ε),     y = γ * normalized + β

    The variance is the mean of the squared distances from the mean, divided by D.
    x, y: (B, T, D); gamma, beta: (D,); eps: a number, here large enough that its place in the formula matters.

    Hint: keepdims=True keeps the last axis with length 1, so that the mean of each row can be subtracted from it.
    """
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    normalized = centered / np.sqrt(variance + eps)
    y = gamma * normalized + beta
    return y


def _backward(draw: Draw) -> Arguments:
    x, gamma, _, eps = _forward(draw)
    return x, gamma, eps, draw.gradient(*x.shape)


@exercise(_backward)
def layer_norm_backward(x: Array, gamma: Array, eps: float, dy: Array) -> tuple[Array, Array, Array]:
    """LayerNorm, backward.

    y = γ * normalized + β with normalized = (x - mean) / √(variance + ε), over the last axis. Given dy, return the
    gradients of x, γ and β.

    x, dx, dy: (B, T, D); gamma, dgamma, dbeta: (D,); eps: a number.

    Hint: x_j affects the loss in three ways: directly, through the mean of its row, and through its variance. So dx has
    three terms; with n for normalized and dn = γ * dy, two of them are means over the row, mean(dn) and n mean(dn * n).
    """
    centered = x - x.mean(axis=-1, keepdims=True)
    inverse_std = 1.0 / np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + eps)
    normalized = centered * inverse_std

    dgamma = (dy * normalized).sum(axis=(0, 1))
    dbeta = dy.sum(axis=(0, 1))
    dnormalized = dy * gamma
    shift = dnormalized.mean(axis=-1, keepdims=True)
    stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
    dx = inverse_std * (dnormalized - shift - stretch)
    return dx, dgamma, dbeta


@exercise(_backward)
def rms_norm_backward(x: Array, gamma: Array, eps: float, dy: Array) -> tuple[Array, Array]:
    """RMSNorm, backward.

    y = γ * normalized with normalized = x / √(mean(x²) + ε), over the last axis: LayerNorm without the mean.
    Given dy, return the gradients of x and γ.

    x, dx, dy: (B, T, D); gamma, dgamma: (D,); eps: a number.

    Hint: One of the three terms in LayerNorm's backward pass came from subtracting the mean.
    """
    inverse_rms = 1.0 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    normalized = x * inverse_rms

    dgamma = (dy * normalized).sum(axis=(0, 1))
    dnormalized = dy * gamma
    stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
    dx = inverse_rms * (dnormalized - stretch)
    return dx, dgamma
