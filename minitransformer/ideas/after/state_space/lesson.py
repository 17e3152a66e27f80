"""The exercise on state space duality: the form of attention."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, length, d_k, d_v = draw.sizes(4, 2, 6)
    q, k, v = (draw.normal(batch, length, width) for width in (d_k, d_k, d_v))
    return q, k, v, -0.1 - 0.5 * draw.rng.random((batch, length)), draw.gradient(batch, length, d_v)


@exercise(_backward)
def state_space_backward(
    q: Array, k: Array, v: Array, decay: Array, doutput: Array
) -> tuple[Array, Array, Array, Array]:
    """A state space as attention, backward.

    The output is a product of matrices, with a clock that adds up the decays:

        clock_t = decay_1 + ... + decay_t
        lasting_ts = exp(clock_t - clock_s)
        scores = lasting * (q kᵀ)
        output = scores v

    No position sees a later one: lasting_ts is 0 where s > t. Given doutput, return the gradients of q, k, v and
    decay.

    q, k, dq, dk: (B, T, d_k); v, dv, doutput: (B, T, d_v); decay, ddecay: (B, T), decay is negative.

    Hint: What was multiplied by exp(gap) has, for the gap, its own value times its gradient. A gap is a difference of
    two clocks, and a decay is in its own clock and in all later ones.
    """
    length = q.shape[1]
    clock = np.cumsum(decay, axis=1)
    gaps = np.where(np.tri(length, dtype=bool), clock[:, :, None] - clock[:, None, :], -np.inf)
    lasting = np.exp(gaps)
    products = q @ k.swapaxes(1, 2)
    scores = lasting * products
    dscores = doutput @ v.swapaxes(1, 2)
    dv = scores.swapaxes(1, 2) @ doutput
    dproducts = lasting * dscores
    dq = dproducts @ k
    dk = dproducts.swapaxes(1, 2) @ q
    dgaps = dscores * scores
    dclock = dgaps.sum(axis=2) - dgaps.sum(axis=1)
    ddecay = np.cumsum(dclock[:, ::-1], axis=1)[:, ::-1]
    return dq, dk, dv, ddecay
