"""The sigmoid as an op of its own: a number between 0 and 1, as gates are.

σ(x) = 1 / (1 + e⁻ˣ)          σ'(x) = σ(x) (1 - σ(x))
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.ops.activations import logistic


@op("x, y: (...)")
@in_float32
def sigmoid(x: Array) -> tuple[Array, Pullback]:
    """σ(x) = 1 / (1 + e⁻ˣ), element-wise. backward(dy) returns dx."""
    y = logistic(x)

    def backward(dy: Array) -> Array:
        dx = dy * y * (1.0 - y)
        return dx

    return y, backward
