"""The exercise on the delta rule with a decay for each channel."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, length, d_k, d_v = draw.sizes(4, 2, 6)
    keys = draw.normal(batch, length, d_k)
    keys = keys / np.sqrt((keys**2).sum(axis=-1, keepdims=True))
    decay = -draw.rng.exponential(1.5 if draw.extreme else 0.5, (batch, length, d_k))
    beta, memory = 0.2 + 0.7 * draw.rng.random((batch, length)), draw.normal(batch, d_k, d_v)
    return keys, draw.normal(batch, length, d_v), decay, beta, memory, draw.gradient(batch, d_k, d_v)


@exercise(_backward)
def channel_chunk_backward(
    k: Array, v: Array, decay: Array, beta: Array, memory: Array, dafter: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The delta rule with a decay for each channel, backward.

    A memory M, a matrix (d_k, d_v), reads a chunk of T keys and values. Row i of M belongs to entry i of a key, its
    channel, and fades at its own rate. At each position t, in this order:

        faded_ij = e^{decay_ti} M_ij
        error_j  = v_tj - sum_i k_ti faded_ij
        M_ij     = faded_ij + β_t k_ti error_j

    `memory` is M before the first position. Given the gradient of M after the last one, return those of k, v, decay,
    beta and memory.

    k, dk, decay, ddecay: (B, T, d_k); v, dv: (B, T, d_v); beta, dbeta: (B, T); memory, dmemory, dafter: (B, d_k, d_v).

    Hint: Keep each M, then go from the last position to the first with the gradient of M. `faded` goes two ways, into
    the new M and into the error, and so does a key. What is the slope of e^{decay}, and which entries does it multiply?
    """
    before = []
    for t in range(k.shape[1]):
        before.append(memory)
        faded = np.exp(decay[:, t])[..., None] * memory
        error = v[:, t] - (k[:, t, :, None] * faded).sum(axis=1)
        memory = faded + beta[:, t, None, None] * k[:, t, :, None] * error[:, None]
    dk, dv, ddecay, dbeta = np.zeros_like(k), np.zeros_like(v), np.zeros_like(decay), np.zeros_like(beta)
    dmemory = dafter
    for t in reversed(range(k.shape[1])):
        key, rate, share = k[:, t, :, None], beta[:, t, None], np.exp(decay[:, t])[..., None]
        faded = share * before[t]
        error = v[:, t] - (key * faded).sum(axis=1)
        dwritten = (key * dmemory).sum(axis=1)
        derror = rate * dwritten
        dfaded = dmemory - key * derror[:, None]
        dk[:, t] = (dmemory * (rate * error)[:, None]).sum(axis=-1) - (faded * derror[:, None]).sum(axis=-1)
        dv[:, t] = derror
        dbeta[:, t] = (dwritten * error).sum(axis=-1)
        ddecay[:, t] = (dfaded * faded).sum(axis=-1)
        dmemory = share * dfaded
    return dk, dv, ddecay, dbeta, dmemory
