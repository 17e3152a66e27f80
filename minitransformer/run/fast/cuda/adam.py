"""Adam's step, and AdamW's, on the GPU; see adam.cu."""

from ....core.arrays.backend import Array
from .launching import ceil_div, kernels_of, takes

THREADS = 256  # threads per block


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

    The arrays have one size, such as the flat buffers of a whole model. value, m and v are float32; g may be float16.
    shrink: the factor by which AdamW multiplies the values, 1 - rate · weight_decay.
    """
    if not takes(value, m, v) or not takes(g) or value.dtype.char != "f" or type(g) is not type(value):
        return False
    if not value.shape == g.shape == m.shape == v.shape or not all(x.flags.c_contiguous for x in (value, g, m, v)):
        return False
    (start,) = kernels_of("adam.cu", g)
    beta1, beta2 = betas
    numbers = (rate, beta1, beta2, 1.0 - beta1, 1.0 - beta2, 1.0 - beta1**step, 1.0 - beta2**step, eps, shrink)
    start((ceil_div(value.size, THREADS),), (THREADS,), value, g, m, v, value.size, *map(float, numbers))
    return True
