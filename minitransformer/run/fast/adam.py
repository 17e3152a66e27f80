"""Adam's step as one loop that Numba compiles; see loops.py. Without Numba it runs as written."""

from ...core.arrays.backend import Array
from .row_blocks import compiled, takes


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
    """See Adam in core/training/optimizers.py. Changes value, m and v in place; returns False if the kernel declines.

    shrink: the factor by which AdamW multiplies the values, 1 - rate · weight_decay.
    """
    arrays = (value, g, m, v)
    if not takes(*arrays) or not all(x.shape == value.shape and x.flags.carray for x in arrays):
        return False
    flat = [x.reshape(-1) for x in arrays]
    loops = compiled(*flat)
    if loops is None:
        return False
    beta1, beta2 = betas
    bracket1, bracket2 = 1.0 - beta1**step, 1.0 - beta2**step
    numbers = (shrink, beta1, beta2, 1.0 - beta1, 1.0 - beta2, rate / bracket1, 1.0 / bracket2, eps)
    loops.adam(*flat, *map(value.dtype.type, numbers))
    return True
