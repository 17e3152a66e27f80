"""GELU in blocks that stay in the cache. Forward computes the slope f'(x), so backward is one product.

The exact GELU needs Φ, and the error function is several times slower than exp, which the density φ needs anyway. So in
float32 one exponential gives both. With z = |x| and t = 1 / (1 + 0.3 z),

    Φ(-z) = exp(-z²/2) · P(t)

where P(t) = ½ erfcx(z/√2) is a smooth function of t in (0, 1], which a polynomial without a constant term approximates
well. (Formula 7.1.26 in Abramowitz and Stegun 1964 has this form.) The coefficients are a least-squares fit, reweighted
towards equal relative errors. These are at most 5e-8 for z up to 10: less than the rounding of float32. Beyond 10,
exp(-z²/2) is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..arrays.backend import Array, Pullback, erf
from .blocks import blocks, compiled, takes

TAIL = (  # the coefficients of t, t², ...
    0.119605038823,
    0.121111214173,
    0.097756035667,
    0.135496462395,
    -0.066524438377,
    0.220085171899,
    -0.165077487088,
    0.037548027451,
)

Curve = Callable[[Array, Array, Array], None]  # from a block of x to f(x) and f'(x), written in place


def gelu(x: Array, approximate: str = "none") -> tuple[Array, Pullback] | None:
    """See ops/activations.py."""
    if not takes(x) or approximate not in ("none", "tanh"):
        return None
    loops = compiled(x)
    if approximate == "tanh":
        return _elementwise(x, loops.gelu_tanh if loops else _gelu_tanh)
    if x.dtype == np.float32:
        return _elementwise(x, loops.gelu if loops else _gelu_float32)
    return _elementwise(x, _gelu)


def _elementwise(x: Array, curve: Curve) -> tuple[Array, Pullback]:
    flat, shape = x.reshape(-1), x.shape
    y, slope = np.empty_like(flat), np.empty(shape, x.dtype)
    flat_slope = slope.reshape(-1)
    for block in blocks(flat.size, 1):
        curve(flat[block], y[block], flat_slope[block])

    def backward(dy: Array) -> Array:  # it keeps only the slope, so x can be freed
        dx = dy * slope
        return dx

    return y.reshape(shape), backward


def _gelu_tanh(x: Array, y: Array, slope: Array) -> None:
    near = np.clip(x, -10.0, 10.0)
    square = near * near
    np.multiply(square, math.sqrt(2.0 / math.pi) * 0.044715, out=y)
    y += math.sqrt(2.0 / math.pi)
    y *= near
    tanh = np.tanh(y, out=y)
    square *= 1.5 * math.sqrt(2.0 / math.pi) * 0.044715
    square += 0.5 * math.sqrt(2.0 / math.pi)  # half of u'
    np.multiply(tanh, tanh, out=slope)
    np.subtract(1.0, slope, out=slope)
    slope *= square
    slope *= x
    tanh *= 0.5
    tanh += 0.5  # now this is the cumulative Φ
    slope += tanh
    y *= x


def _gelu(x: Array, y: Array, slope: Array) -> None:
    np.multiply(x, math.sqrt(0.5), out=y)
    cumulative = 0.5 * (1.0 + erf(y))
    np.multiply(x, -0.5, out=slope)
    slope *= x
    np.exp(slope, out=slope)
    slope *= 1.0 / math.sqrt(2.0 * math.pi)
    slope *= x
    slope += cumulative
    np.multiply(x, cumulative, out=y)


def _gelu_float32(x: Array, y: Array, slope: Array) -> None:
    t = np.abs(x)
    t *= 0.3
    t += 1.0
    np.divide(1.0, t, out=t)
    np.multiply(t, TAIL[-1], out=y)
    for coefficient in TAIL[-2::-1]:
        y += coefficient
        y *= t
    np.multiply(x, -0.5, out=slope)
    slope *= x
    np.exp(slope, out=slope)
    y *= slope  # Φ(-|x|)
    np.multiply(y, -2.0, out=t)
    t += 1.0
    t *= x > 0.0
    y += t  # Φ(x), which is 1 - Φ(-x) for x > 0. A choice element by element would cost more than all the rest
    slope *= 1.0 / math.sqrt(2.0 * math.pi)
    slope *= x
    slope += y
    y *= x
