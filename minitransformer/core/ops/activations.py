"""Activations: element-wise non-linear functions.

    relu(x) = max(x, 0)               relu'(x) = 1[x > 0]
    gelu(x) = x * Φ(x)                gelu'(x) = Φ(x) + x * φ(x)
    silu(x) = x * σ(x)                silu'(x) = σ(x) + x * σ(x) * (1 - σ(x))
    tanh(x) = (eˣ - e⁻ˣ)/(eˣ + e⁻ˣ)   tanh'(x) = 1 - tanh²(x)

where Φ is the normal distribution's cumulative function, φ = Φ' its density and σ the logistic function. Element-wise
means a diagonal Jacobian, so every backward is one product: dx = f'(x) * dy. ReLU's slope 1[x > 0] is 1 for x > 0 and
otherwise 0. At its kink, x = 0, we choose the slope 0; no neighbour can tell.

For negative x both Φ and σ are tiny, and 1 + erf or 1 + tanh would round them away: erfc and exp keep their digits.
"""

from __future__ import annotations

import math

from ..arrays.backend import Array, Pullback, erfc, library
from ..arrays.declared import op
from ..arrays.float16 import in_float32


@op("x, y: (...)")
def relu(x: Array) -> tuple[Array, Pullback]:
    """max(x, 0), element-wise. backward(dy) returns dx. Glorot et al. 2011, section 3."""
    xp = library(type(x))
    y = xp.maximum(x, 0.0)
    passes = x > 0.0  # booleans: all that backward has to keep

    def backward(dy: Array) -> Array:
        dx = dy * passes
        return dx

    return y, backward


def logistic(x: Array) -> Array:
    """σ(x) = 1 / (1 + exp(-x)) = exp(x) / (1 + exp(x)); for each x one of the two forms cannot overflow."""
    xp = library(type(x))
    exponential = xp.exp(-abs(x))
    return xp.where(x < 0.0, exponential, 1.0) / (1.0 + exponential)


@op('x, y: (...); approximate: "none" or "tanh"')
@in_float32
def gelu(x: Array, approximate: str = "none") -> tuple[Array, Pullback]:
    """x Φ(x), element-wise. Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", sections 2 and 3.

    approximate="none": Φ(x) = (1 + erf(x/√2)) / 2 = erfc(-x/√2) / 2, and φ(x) = exp(-x²/2) / √(2π).
    approximate="tanh": Φ(x) ≈ (1 + tanh u) / 2 = σ(2u) with u = √(2/π) (x + 0.044715 x³), as GPT-2 has it. Then
    Φ' = 2 σ(2u) (1 - σ(2u)) u' with u' = √(2/π) (1 + 3 · 0.044715 x²).
    backward(dy) returns dx.
    """
    xp = library(type(x))
    if approximate == "none":
        cumulative = 0.5 * erfc(x * -math.sqrt(0.5))
        density = xp.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    else:
        near = xp.clip(x, -30.0, 30.0)  # beyond, Φ is 0 or 1 to the last bit; u and u' of huge x would overflow
        square = near * near  # x**3 would call the slow general power
        cumulative = logistic(2.0 * math.sqrt(2.0 / math.pi) * near * (1.0 + 0.044715 * square))
        slope = math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * square)
        density = 2.0 * cumulative * (1.0 - cumulative) * slope
    y = x * cumulative

    def backward(dy: Array) -> Array:
        dx = dy * (cumulative + x * density)
        return dx

    return y, backward


@op("x, y: (...)")
@in_float32
def silu(x: Array) -> tuple[Array, Pullback]:
    """x σ(x), element-wise, also called swish. backward(dy) returns dx. Ramachandran et al. 2017."""
    sigmoid = logistic(x)
    y = x * sigmoid

    def backward(dy: Array) -> Array:
        dx = dy * (sigmoid + y * (1.0 - sigmoid))
        return dx

    return y, backward


@op("x, y: (...)")
@in_float32
def tanh(x: Array) -> tuple[Array, Pullback]:
    """The hyperbolic tangent, element-wise. backward(dy) returns dx."""
    xp = library(type(x))
    y = xp.tanh(x)

    def backward(dy: Array) -> Array:
        dx = dy * (1.0 - y * y)
        return dx

    return y, backward
