"""A linear map of low rank, kept as its two factors. Hu et al. 2021, "LoRA: Low-Rank Adaptation ...", section 4.1.

    y = (x W1) W2

W = W1 W2 has rank at most r. With r much smaller than in and out, this takes r (in + out) numbers instead of in · out.
Backward goes through the second map and then the first; see core/ops/linear.py.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback
from ...core.arrays.declared import op
from ...core.ops import linear


@op("x: (..., in); down: (in, r); up: (r, out); y: (..., out)")
def low_rank_linear(x: Array, down: Array, up: Array) -> tuple[Array, Pullback]:
    """y = (x W1) W2: a matrix W = W1 W2 of rank at most r, kept as its two factors.

    down is W1 and up is W2. With r much smaller than in and out, this takes
    r (in + out) numbers instead of in · out. backward(dy) goes through the second map and then the first, and returns
    (dx, ddown, dup).
    """
    hidden, down_backward = linear(x, down)
    y, up_backward = linear(hidden, up)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dhidden, dup = up_backward(dy)
        dx, ddown = down_backward(dhidden)
        return dx, ddown, dup

    return y, backward
