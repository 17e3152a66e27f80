"""A quick GELU. Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.

GELU is x Φ(x). The logistic function, stretched by 1.702, is never farther than 0.02 from Φ, and needs one exponential:

    y = x * σ(1.702 x),       dx = dy * (σ(1.702 x) + 1.702 x * σ(1.702 x) * (1 - σ(1.702 x)))

CLIP (Radford et al. 2021) was trained with it.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.ops.activations import logistic


@op("x, y: (...)")
@in_float32
def quick_gelu(x: Array) -> tuple[Array, Pullback]:
    """x σ(1.702 x), element-wise. backward(dy) returns dx."""
    sigmoid = logistic(1.702 * x)
    y = x * sigmoid

    def backward(dy: Array) -> Array:
        dx = dy * (sigmoid + 1.702 * y * (1.0 - sigmoid))
        return dx

    return y, backward
