"""The exercise on the delta rule in chunks."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, length, d_k, d_v = draw.sizes(4, 2, 6)
    keys = draw.normal(batch, length, d_k)
    keys = keys / np.sqrt((keys**2).sum(axis=-1, keepdims=True))
    beta = 0.2 + 0.7 * draw.rng.random((batch, length))
    return keys, draw.normal(batch, length, d_v), beta, draw.gradient(batch, d_k, d_v)


@exercise(_backward)
def delta_chunk_backward(k: Array, v: Array, beta: Array, dmemory: Array) -> tuple[Array, Array, Array]:
    """The delta rule in one chunk, backward.

    A memory that starts empty reads C keys and values: at each position, error_t = v_t - Mᵀ k_t, then M grows by
    β_t k_t error_tᵀ. All at once, with 1 for the matrix of the identity:

        overlaps_ts = k_t·k_s
        coupling_ts = overlaps_ts β_s
        (1 + coupling) error = v
        written_t = β_t error_t
        memory = kᵀ written

    Where t ≤ s, overlaps_ts is 0. Given the gradient of the memory after the last position, return those of k, v and
    beta.

    k, dk: (B, C, d_k); v, dv: (B, C, d_v); beta, dbeta: (B, C); dmemory: (B, d_k, d_v).

    Hint: If M error = v, then a small change gives dM error + M derror = dv as changes. Write derror as a change of M
    and v, and read off the gradients: which system does backward solve, and where in M is anything that can change?
    """
    overlaps = np.tril(k @ k.swapaxes(-1, -2), -1)
    coupling = overlaps * beta[:, None, :]
    system = np.eye(k.shape[1]) + coupling
    error = np.linalg.solve(system, v)
    written = beta[..., None] * error
    dwritten = k @ dmemory
    derror = beta[..., None] * dwritten
    dv = np.linalg.solve(system.swapaxes(-1, -2), derror)
    dcoupling = -np.tril(dv @ error.swapaxes(-1, -2), -1)
    doverlaps = dcoupling * beta[:, None, :]
    dbeta = (dwritten * error).sum(axis=-1) + (dcoupling * overlaps).sum(axis=-2)
    dk = written @ dmemory.swapaxes(-1, -2) + (doverlaps + doverlaps.swapaxes(-1, -2)) @ k
    return dk, dv, dbeta
