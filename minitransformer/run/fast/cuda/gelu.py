"""GELU on the GPU; see gelu.cu."""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from .launching import ceil_div, contiguous, kernels_of, takes

THREADS = 256  # threads per block


def gelu(x: Array, approximate: str = "none") -> tuple[Array, Pullback] | None:
    """See core/ops/activations.py."""
    if not takes(x) or approximate not in ("none", "tanh"):
        return None
    xp, n = array_module(x), x.size
    forward, backward_x = kernels_of("gelu.cu", x, "true" if approximate == "tanh" else "false")
    grid = (ceil_div(n, THREADS),)
    numbers = contiguous(x)
    y = xp.empty(x.shape, dtype=x.dtype)
    forward(grid, (THREADS,), numbers, y, n)

    def backward(dy: Array) -> Array:
        dx = xp.empty(numbers.shape, dtype=numbers.dtype)
        backward_x(grid, (THREADS,), numbers, contiguous(dy), dx, n)
        return dx

    return y, backward
