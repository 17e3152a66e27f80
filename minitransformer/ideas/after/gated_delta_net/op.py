"""How fast a memory fades: one number for each head and token. Gu and Dao 2023, "Mamba", section 3.5.

    decay = -e^{log_rate} · softplus(x + shift),          softplus(z) = log(1 + eᶻ)

Each head has a rate of its own, and each token says how long its step is: a long step forgets much. Both factors are
positive, so the decay is negative, and the share e^{decay} of the memory that is kept lies between 0 and 1.

Backward. softplus' = σ, the sigmoid, and the factor e^{log_rate} is its own slope:

    dx = -e^{log_rate} σ(x + shift) ddecay,      dshift = dx, summed over all tokens
    dlog_rate = ddecay · decay, summed over all tokens
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.ops.activations import logistic


@op("x, decay: (..., H); log_rate, shift: (H,)")
@in_float32
def step_decay(x: Array, log_rate: Array, shift: Array) -> tuple[Array, Pullback]:
    """The logarithm of the share that each head keeps at each token; never positive.

    backward(ddecay) returns (dx, dlog_rate, dshift). Gu and Dao 2023, "Mamba", section 3.5.
    """
    xp = array_module(x)
    rate = xp.exp(log_rate)
    shifted = x + shift
    step = xp.maximum(shifted, 0.0) + xp.log(1.0 + xp.exp(-abs(shifted)))  # the exponent is never positive
    decay = -rate * step

    def backward(ddecay: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(ddecay.ndim - 1))
        dshifted = -rate * logistic(shifted) * ddecay
        dx = dshifted
        dshift = dshifted.sum(axis=rows)
        dlog_rate = (ddecay * decay).sum(axis=rows)
        return dx, dlog_rate, dshift

    return decay, backward
