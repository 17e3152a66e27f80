"""Adam's step in blocks that stay in the cache, or in one compiled loop."""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array
from .blocks import blocks, compiled, takes


def adam(
    value: Array,
    g: Array,
    m: Array,
    v: Array,
    step: int,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    shrink: float = 1.0,
) -> bool:
    """See Adam in training/optimizers.py. Changes value, m and v in place; False if this is nothing for a kernel.

    shrink: what AdamW multiplies the values by, 1 - rate · weight_decay.
    """
    arrays = (value, g, m, v)
    if not takes(*arrays) or not all(x.shape == value.shape and x.flags.carray for x in arrays):
        return False
    flat = [x.reshape(-1) for x in arrays]
    beta1, beta2 = betas
    bracket1, bracket2 = 1.0 - beta1**step, 1.0 - beta2**step
    if loops := compiled(*flat):
        numbers = (shrink, beta1, beta2, 1.0 - beta1, 1.0 - beta2, rate / bracket1, 1.0 / bracket2, eps)
        loops.adam(*flat, *map(value.dtype.type, numbers))
        return True
    for block in blocks(value.size, 1):
        value, g, m, v = (x[block] for x in flat)
        value *= shrink
        m *= beta1
        m += (1.0 - beta1) * g
        v *= beta2
        v += (1.0 - beta2) * (g * g)
        value -= rate * (m / bracket1) / (np.sqrt(v / bracket2) + eps)
    return True
