"""Dropout on the GPU; see dropout.cu."""

from __future__ import annotations

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from .launching import ceil_div, contiguous, kernels_of, takes

THREADS = 256  # threads per block


def dropout(x: Array, rate: float, rng: Rng | None) -> tuple[Array, Pullback] | None:
    """See core/ops/dropout.py. Without anything to drop, the textbook op returns x itself."""
    if not takes(x) or type(rng) is not np.random.Generator or type(rate) not in (int, float) or not 0 < rate < 1:
        return None
    (start,) = kernels_of("dropout.cu", x)
    seed = rng.integers(2**64, dtype=np.uint64)  # as in core/ops/random_numbers.py

    def kept(given: Array) -> Array:
        numbers = contiguous(given)
        left = array_module(given).empty(given.shape, dtype=given.dtype)
        start((ceil_div(given.size, THREADS),), (THREADS,), numbers, left, float(rate), seed, given.size)
        return left

    return kept(x), kept
