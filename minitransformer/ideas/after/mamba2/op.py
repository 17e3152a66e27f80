"""The step of a state space, which must be positive: log(1 + eˣ)."""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.ops.activations import logistic


@op("x, y: (...)")
@in_float32
def softplus(x: Array) -> tuple[Array, Pullback]:
    """log(1 + eˣ), a smooth max(x, 0), element-wise; its slope is σ(x). backward(dy) returns dx. Dugas et al. 2001."""
    xp = array_module(x)
    y = xp.maximum(x, 0.0) + xp.log1p(xp.exp(-abs(x)))  # the exponent is never positive, so nothing overflows

    def backward(dy: Array) -> Array:
        dx = dy * logistic(x)
        return dx

    return y, backward
