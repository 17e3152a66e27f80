"""Measurements of a mixer: multiplications, seconds, bytes, path length, and how much of a gradient is left.

An exponent is the slope of a straight line through (log size, log cost), by least squares.
"""

import math
import sys
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ...core.arrays.backend import to_device, to_numpy
from ...core.arrays.strict import multiplications
from .mixers import FLOWS, Mixer, Random

_clock = time.perf_counter if sys.platform == "emscripten" else time.process_time  # a browser's processor time is 0


def _x(n: int, d: int, rng: Random, dtype: str = "float32") -> np.ndarray:
    return rng.normal(size=(n, d)).astype(dtype)


def counted(mixer: Mixer, n: int, d: int) -> int:
    """The multiplications in the matrix products of a forward pass, counted while it runs on the strict device."""
    rng = np.random.default_rng(0)
    with multiplications() as count:
        mixer.run(to_device(_x(n, d, rng), "strict"), rng)
    return count[0]


def seconds(mixer: Mixer, sizes: Sequence[tuple[int, int]]) -> list[float]:
    """For each size (n, d) the least processor time of a forward and a backward pass, on one thread.

    All sizes take turns, so a shared processor that is slow for a while slows all of them alike.
    """
    best = [math.inf] * len(sizes)
    with threadpool_limits(1, user_api="blas"):
        for i, (n, d) in list(enumerate(sizes)) * 5:
            rng = np.random.default_rng(0)
            x, dy = _x(n, d, rng), _x(n, d, rng)
            began = _clock()
            mixer.run(x, rng)[1](dy)
            best[i] = min(best[i], _clock() - began)
    return best


def memory(mixer: Mixer, n: int, d: int) -> tuple[int, int]:
    """The bytes in use between forward and backward, and the most in use at any moment of both."""
    rng = np.random.default_rng(0)
    x, dy = _x(n, d, rng), _x(n, d, rng)
    mixer.run(x, rng)[1](dy)  # the first run of all also imports and fills Python's caches
    tracemalloc.start()
    try:
        result = mixer.run(x, rng)
        kept = tracemalloc.get_traced_memory()[0]
        result[1](dy)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return kept, peak


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The p of cost = c · sizeᵖ."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def path_length(mixer: Mixer, n: int) -> int:
    """The number of layers needed for the last output to depend on the first input, found by gradients."""
    rng = np.random.default_rng(0)
    pullbacks: list[Any] = []
    y = _x(n, 4, rng, "float64")
    upstream = np.zeros((n, 4))
    upstream[-1] = rng.normal(size=4)
    while len(pullbacks) < n:
        y, pullback = mixer.layer(len(pullbacks), y, rng)(y)
        pullbacks.append(pullback)
        dx = upstream
        for pullback in reversed(pullbacks):
            dx = pullback(dx)
        if dx[0].any():
            return len(pullbacks)
    raise ValueError(f"{mixer.name}: the last output does not depend on the first input after {n} layers")


def flow(name: str, n: int, d: int, draws: int = 5) -> list[float]:
    """|∂y_last / ∂x_{last - s}| for s = 0, ..., n - 1: the norm of a gradient of norm 1 after s positions back.

    The geometric mean over several draws of the layer and of x.
    """
    logs = np.zeros(n)
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        y, backward = FLOWS[name](_x(n, d, rng, "float64"), rng)
        dy = np.zeros(y.shape)
        dy[-1] = rng.normal(size=d)
        dy /= np.linalg.norm(dy)
        norms = np.linalg.norm(to_numpy(backward(dy)), axis=1)[::-1]
        logs += np.log(np.maximum(norms, 1e-300)) / draws
    return np.exp(logs).tolist()
