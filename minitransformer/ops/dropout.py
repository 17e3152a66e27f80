"""Dropout. Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", section 10.

    y = x * m / (1 - rate),       m_i = 0 with probability rate, else 1

Dividing by 1 - rate while training keeps the expected value, so that nothing need be rescaled when the model is used.
The same m carries the gradient back: dx = dy * m / (1 - rate). Each call draws its own m and its pullback holds it, so
dropout at several places, or a layer used twice, cannot mix its masks up.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback, uniform
from ..arrays.boundary import check_floats, check_generator, check_rate, op


@op
def dropout(x: Array, rate: float, rng: np.random.Generator | None) -> tuple[Array, Pullback]:
    """Zero each element with probability `rate` and scale up the rest. x, y: any shape; backward(dy) returns dx.

    rng=None means no dropout: y is x. The same generator state gives the same mask.
    """
    check_floats("dropout", x=x)
    check_rate("dropout", rate)
    check_generator("dropout", rng)
    if rng is None or rate == 0.0:
        return x, lambda dy: dy

    keep = uniform(rng, x.shape, like=x) >= rate
    factor = keep.astype(x.dtype) * (1.0 / (1.0 - rate))
    y = x * factor

    def backward(dy: Array) -> Array:
        dx = dy * factor
        return dx

    return y, backward
