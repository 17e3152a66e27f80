"""Dropout. Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", section 10.

    y = x * m / (1 - rate),       dx = dy * m / (1 - rate)

where m_i is 0 with probability `rate`, otherwise 1.

The division by 1 - rate in training keeps the expected value, so nothing needs rescaling when the model is used. The
backward pass uses the same m. Each call draws its own, and its pullback keeps it. So the masks of several dropouts, or
of a layer used twice, cannot be confused.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays.backend import Array, Pullback, Rng, library
from ..arrays.boundary import check_generator
from ..arrays.declared import op


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


def uniform(rng: Rng, shape: tuple[int, ...], like: Array) -> Array:
    """Random float32 numbers in [0, 1) of the given shape, on the device of `like`, the same on every device.

    The generator always stays on the host, so that its state can be saved and copied like any other. It supplies one
    seed, and the device makes two numbers at a time by hashing seed + index (splitmix64: Steele et al. 2014, "Fast
    Splittable Pseudorandom Number Generators", figure 17).
    """
    if type(rng) is not np.random.Generator:  # a layer passes on what the user gave it
        check_generator("dropout", rng)
    n = math.prod(shape)
    z = library(type(like)).arange(1, n // 2 + 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += rng.integers(2**64, dtype=np.uint64)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return ((z.view(np.uint32)[:n] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)).reshape(shape)
