"""LayerNorm forward and backward, RMSNorm backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _forward(draw: Draw) -> tuple[Any, ...]:
    batch, t, d = draw.sizes(3)
    x = (0.2 if draw.ones else 1.0) * (1.0 + 2.0 * draw.normal(batch, t, d))
    if draw.extreme:
        x[0, 0] = 0.0  # a row without variance
    return x, draw.normal(d), draw.normal(d), draw.uniform(0.05, 0.3)


@exercise(
    title="LayerNorm",
    statement="""
        Give each row of the last axis mean 0 and variance 1, then scale by γ and shift by β:

            normalized = (x - mean) / √(variance + ε),     y = γ * normalized + β

        The variance is the mean of the squared distances from the mean, divided by D.
        x, y: (B, T, D); gamma, beta: (D,); eps: a number, here so large that its place shows.
    """,
    outputs="y",
    inputs=_forward,
    hint="keepdims=True keeps the last axis with length 1, so that the mean of each row can be subtracted from it.",
    mistakes=(
        Mistake(
            "eps-outside-root",
            "np.sqrt(variance + eps)",
            "(np.sqrt(variance) + eps)",
            "ε stands outside the root; it is added to the variance.",
        ),
        Mistake(
            "no-eps",
            "np.sqrt(variance + eps)",
            "np.sqrt(variance)",
            "ε is missing: a row of equal numbers would be divided by 0.",
        ),
        Mistake(
            "divided-by-d-minus-one",
            "(centered * centered).mean(axis=-1, keepdims=True)",
            "(centered * centered).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)",
            "The variance is divided by D - 1 (ddof=1), an estimate for a sample; LayerNorm divides by D.",
        ),
        Mistake(
            "variance-without-root",
            "np.sqrt(variance + eps)",
            "(variance + eps)",
            "You divided by the variance; divide by its root, the standard deviation.",
        ),
        Mistake(
            "mean-not-subtracted",
            "x - x.mean(axis=-1, keepdims=True)",
            "x",
            "The mean is not subtracted (that would be RMSNorm).",
        ),
        Mistake(
            "over-the-batch",
            "x.mean(axis=-1, keepdims=True)\n    variance = (centered * centered).mean(axis=-1, keepdims=True)",
            "x.mean(axis=0, keepdims=True)\n    variance = (centered * centered).mean(axis=0, keepdims=True)",
            "Mean and variance are taken over the batch (that would be BatchNorm); take them over each row.",
        ),
        Mistake(
            "over-everything",
            "x.mean(axis=-1, keepdims=True)\n    variance = (centered * centered).mean(axis=-1, keepdims=True)",
            "x.mean()\n    variance = (centered * centered).mean()",
            "Mean and variance are taken over the whole array; each row has its own.",
        ),
        Mistake("gamma-forgotten", "gamma * normalized", "normalized", "The factor γ is missing."),
        Mistake("beta-forgotten", " + beta", "", "The shift β is missing."),
        Mistake(
            "gamma-and-beta-exchanged",
            "gamma * normalized + beta",
            "beta * normalized + gamma",
            "γ and β have changed places: γ multiplies, β is added.",
        ),
        Mistake(
            "gamma-on-beta-too",
            "gamma * normalized + beta",
            "gamma * (normalized + beta)",
            "γ multiplies β as well; scale first, then shift.",
        ),
    ),
)
def layer_norm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    normalized = centered / np.sqrt(variance + eps)
    y = gamma * normalized + beta
    return y


def _backward(draw: Draw) -> tuple[Any, ...]:
    x, gamma, _, eps = _forward(draw)
    return x, gamma, eps, draw.gradient(*x.shape)


_DX = "inverse_std * (dnormalized - shift - stretch)"


@exercise(
    title="LayerNorm, backward",
    statement="""
        y = γ * normalized + β with normalized = (x - mean) / √(variance + ε), over the last axis. Given dy, return the
        gradients of x, γ and β.

        x, dx, dy: (B, T, D); gamma, dgamma, dbeta: (D,); eps: a number.
    """,
    outputs="dx, dgamma, dbeta",
    inputs=_backward,
    hint="""
        x_j reaches the loss on three ways: directly, through the mean of its row, and through its variance. So dx has
        three terms; with n for normalized and dn = γ * dy, two of them are means over the row, mean(dn) and n mean(dn
        * n).
    """,
    mistakes=(
        Mistake(
            "no-shift",
            "dnormalized - shift - stretch",
            "dnormalized - stretch",
            "The term -mean(dn) is missing: it comes from the mean, which every x_j of the row moves. See it: each "
            "row of dx must sum to 0.",
        ),
        Mistake(
            "no-stretch",
            "dnormalized - shift - stretch",
            "dnormalized - shift",
            "The term -n mean(dn * n) is missing: the variance is computed from x as well.",
        ),
        Mistake(
            "mean-and-variance-constant",
            "dnormalized - shift - stretch",
            "dnormalized",
            "Mean and variance are treated as constants: the terms -mean(dn) and -n mean(dn * n) are missing.",
        ),
        Mistake(
            "gamma-forgotten",
            "dy * gamma",
            "dy * 1.0",
            "γ is missing in dx: it multiplied the output, so it multiplies dy on the way back.",
        ),
        Mistake(
            "gamma-outside-means",
            "    dnormalized = dy * gamma\n"
            "    shift = dnormalized.mean(axis=-1, keepdims=True)\n"
            "    stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)\n"
            f"    dx = {_DX}",
            "    dnormalized = dy\n"
            "    shift = dnormalized.mean(axis=-1, keepdims=True)\n"
            "    stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)\n"
            f"    dx = gamma * {_DX}",
            "γ is pulled out of the means, which is right only when all its entries are equal: use dn = γ * dy inside.",
        ),
        Mistake(
            "std-forgotten",
            _DX,
            "dnormalized - shift - stretch",
            "The factor 1/√(variance + ε) in front is missing.",
        ),
        Mistake(
            "std-twice",
            "dx = inverse_std * (",
            "dx = inverse_std**2 * (",
            "1/√(variance + ε) is applied twice.",
        ),
        Mistake(
            "sums-for-means",
            "shift = dnormalized.mean(axis=-1, keepdims=True)\n"
            "    stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)",
            "shift = dnormalized.sum(axis=-1, keepdims=True)\n"
            "    stretch = normalized * (dnormalized * normalized).sum(axis=-1, keepdims=True)",
            "The two terms are sums over the row; they must be means (each has a factor 1/D).",
        ),
        Mistake(
            "stretch-without-normalized",
            "stretch = normalized * (",
            "stretch = (",
            "In the term -n mean(dn * n) the factor n in front is missing.",
        ),
        Mistake(
            "stretch-of-centered",
            "(dnormalized * normalized).mean",
            "(dnormalized * centered).mean",
            "Inside the mean of the last term stands x - mean; it must be the normalised row.",
        ),
        Mistake(
            "eps-forgotten",
            "np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + eps)",
            "np.sqrt((centered * centered).mean(axis=-1, keepdims=True))",
            "ε is missing under the root, so `normalized` is not what the forward pass had.",
        ),
        Mistake(
            "dgamma-of-centered",
            "dgamma = (dy * normalized)",
            "dgamma = (dy * centered)",
            "In dgamma stands x - mean; γ multiplied the normalised row.",
        ),
        Mistake(
            "dgamma-over-batch-only",
            "(dy * normalized).sum(axis=(0, 1))",
            "(dy * normalized).sum(axis=0)",
            "dgamma is summed over the batch only; all positions share γ, so sum over T as well.",
        ),
        Mistake(
            "dgamma-mean",
            "(dy * normalized).sum(axis=(0, 1))",
            "(dy * normalized).mean(axis=(0, 1))",
            "dgamma is a mean over the rows; every row used γ, so it must be the sum.",
        ),
        Mistake(
            "dbeta-over-batch-only",
            "dy.sum(axis=(0, 1))",
            "dy.sum(axis=0)",
            "dbeta is summed over the batch only; all positions share β, so sum over T as well.",
        ),
        Mistake(
            "dbeta-mean",
            "dy.sum(axis=(0, 1))",
            "dy.mean(axis=(0, 1))",
            "dbeta is a mean over the rows; β was added to every row, so it must be the sum.",
        ),
        Mistake(
            "dgamma-and-dbeta-exchanged",
            "return dx, dgamma, dbeta",
            "return dx, dbeta, dgamma",
            "dgamma and dbeta are in each other's place; their equal shapes hide it.",
        ),
    ),
)
def layer_norm_backward(x: Array, gamma: Array, eps: float, dy: Array) -> tuple[Array, Array, Array]:
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


@exercise(
    title="RMSNorm, backward",
    statement="""
        y = γ * normalized with normalized = x / √(mean(x²) + ε), over the last axis: LayerNorm without the mean.
        Given dy, return the gradients of x and γ.

        x, dx, dy: (B, T, D); gamma, dgamma: (D,); eps: a number.
    """,
    outputs="dx, dgamma",
    inputs=_backward,
    hint="One of the three terms of LayerNorm's backward came from subtracting the mean.",
    mistakes=(
        Mistake(
            "with-layer-norm-backward",
            "dnormalized - stretch",
            "dnormalized - dnormalized.mean(axis=-1, keepdims=True) - stretch",
            "A term -mean(dn) is there as in LayerNorm; RMSNorm subtracts no mean, so it has none.",
        ),
        Mistake(
            "no-stretch",
            "dnormalized - stretch",
            "dnormalized",
            "The root mean square is treated as a constant: the term -n mean(dn * n) is missing.",
        ),
        Mistake(
            "gamma-forgotten",
            "dnormalized = dy * gamma",
            "dnormalized = dy * 1.0",
            "γ is missing in dx: it multiplied the output, so it multiplies dy on the way back.",
        ),
        Mistake(
            "gamma-outside-mean",
            "(dnormalized * normalized).mean(axis=-1, keepdims=True)",
            "gamma * (dy * normalized).mean(axis=-1, keepdims=True)",
            "In the last term γ is pulled out of the mean, which is right only when all its entries are equal.",
        ),
        Mistake(
            "rms-forgotten",
            "inverse_rms * (dnormalized - stretch)",
            "dnormalized - stretch",
            "The factor 1/√(mean(x²) + ε) in front is missing.",
        ),
        Mistake(
            "sum-for-mean",
            "(dnormalized * normalized).mean(",
            "(dnormalized * normalized).sum(",
            "The last term has a sum over the row; it must be a mean (a factor 1/D).",
        ),
        Mistake(
            "dgamma-of-x",
            "dgamma = (dy * normalized)",
            "dgamma = (dy * x)",
            "In dgamma stands x; γ multiplied the normalised row.",
        ),
        Mistake(
            "dgamma-mean",
            ".sum(axis=(0, 1))",
            ".mean(axis=(0, 1))",
            "dgamma is a mean over the rows; every row used γ, so it must be the sum.",
        ),
        Mistake(
            "dgamma-over-batch-only",
            ".sum(axis=(0, 1))",
            ".sum(axis=0)",
            "dgamma is summed over the batch only; all positions share γ, so sum over T as well.",
        ),
    ),
)
def rms_norm_backward(x: Array, gamma: Array, eps: float, dy: Array) -> tuple[Array, Array]:
    inverse_rms = 1.0 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    normalized = x * inverse_rms

    dgamma = (dy * normalized).sum(axis=(0, 1))
    dnormalized = dy * gamma
    stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
    dx = inverse_rms * (dnormalized - stretch)
    return dx, dgamma
