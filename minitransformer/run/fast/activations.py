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

from ...core.arrays.backend import Array, Pullback
from .row_blocks import blocks, compiled, takes
from .tail import TAIL

_SHARE, _CUBIC = math.sqrt(2.0 / math.pi), math.sqrt(2.0 / math.pi) * 0.044715
Curve = Callable[[Array, Array, Array], None]  # from a block of x to f(x) and f'(x), written in place


def gelu(x: Array, approximate: str = "none") -> tuple[Array, Pullback] | None:
    """See core/ops/activations.py."""
    if not takes(x) or approximate not in ("none", "tanh"):
        return None
    loops = compiled(x)
    if approximate == "tanh":
        return _elementwise(x, loops.gelu_tanh if loops else _gelu_tanh)
    if x.dtype != np.float32:
        return None
    return _elementwise(x, loops.gelu if loops else _gelu_float32)


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
    """½ (1 + tanh u) is the logistic function of 2u: one exponential and one division."""
    near = np.clip(x, -10.0, 10.0)  # beyond these the cumulative distribution is 0 or 1
    u = (_SHARE + _CUBIC * near * near) * near
    cumulative = (x > -10.0) / (1.0 + np.exp(-2.0 * u))
    np.multiply(x, cumulative, out=y)
    du = _SHARE + 3.0 * _CUBIC * near * near
    np.add(cumulative, 2.0 * near * du * cumulative * (1.0 - cumulative), out=slope)


def _gelu_float32(x: Array, y: Array, slope: Array) -> None:
    t = 1.0 / (1.0 + 0.3 * np.abs(x))
    np.multiply(t, TAIL[-1], out=y)
    for coefficient in TAIL[-2::-1]:
        y += coefficient
        y *= t
    density = np.exp(-0.5 * x * x, out=slope)
    y *= density  # Φ(-|x|)
    y += (x > 0.0) * (1.0 - 2.0 * y)  # Φ(x). A choice element by element would cost more than all the rest
    slope *= x * (1.0 / math.sqrt(2.0 * math.pi))
    slope += y
    y *= x
