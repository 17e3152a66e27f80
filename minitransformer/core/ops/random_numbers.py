"""Random numbers that are the same on every device."""

import math

import numpy as np

from ..arrays.backend import Array, Rng, library
from ..arrays.boundary import check_generator


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
