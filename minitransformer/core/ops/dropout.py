"""Dropout. Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", section 10.

    y = x * m / (1 - rate),       dx = dy * m / (1 - rate)

where m_i is 0 with probability `rate`, otherwise 1.

The division by 1 - rate in training keeps the expected value, so nothing needs rescaling when the model is used. The
backward pass uses the same m. Each call draws its own, and its pullback keeps it. So the masks of several dropouts, or
of a layer used twice, cannot be confused.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.declared import op
from .random_numbers import uniform


@op("x, y: (...); 0 <= rate < 1")
def dropout(x: Array, rate: float, rng: Rng | None) -> tuple[Array, Pullback]:
    """Zero each element with probability `rate` and scale up the rest. backward(dy) returns dx.

    rng=None means no dropout: y is x. The same generator state gives the same mask.
    """
    if rng is None or rate == 0.0:
        return x, lambda dy: dy

    keep = uniform(rng, x.shape, like=x) >= rate
    factor = keep.astype(x.dtype) * (1.0 / (1.0 - rate))
    y = x * factor

    def backward(dy: Array) -> Array:
        dx = dy * factor
        return dx

    return y, backward
