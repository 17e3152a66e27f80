"""The gated delta rule. Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks", equation 10.

Linear attention keeps a sum S of products of keys and values, and never removes old entries. The delta rule (Schlag et
al. 2021, "Linear Transformers Are Secretly Fast Weight Programmers", section 4.2) first reads the value that S holds
for the new key, and writes only the difference. A gate makes S fade before that. At each position

    faded_ij = exp(decay_i) S_ij                decay ≤ 0: a rate for each entry of the key, or one for all
    error    = v - faded^T k                    the new value for this key, minus the stored one
    S'       = faded + β k error^T              β in (0, 1): how much of it to write
    output   = scale · S'^T q

With decay 0 it is the delta rule. Keys should have length 1: then β = 1 replaces the value of a key entirely.

Backward goes from the last position to the first and carries dS, the sum of what comes from the position's output and
from the next position:

    dS'    += scale · q doutput^T,              dq = scale · S' doutput
    derror  = β dS'^T k,                        dv = derror
    dk      = β dS' error - faded derror        a key is used to write and to read
    dβ      = k^T dS' error
    dfaded  = dS' - k derror^T
    dS_ij   = exp(decay_i) dfaded_ij,           ddecay_i = sum_j dfaded_ij faded_ij
"""

from __future__ import annotations

import math

from ...core.arrays.backend import Array, Pullback, array_module
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32
from ...core.ops.attention import _summed_to


@op(
    "q, k: (..., T, d_k); v, output: (..., T, d_v); decay: broadcasts to (..., T, d_k); beta: (..., T); "
    "state: (..., d_k, d_v)"
)
@in_float32
def gated_delta(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array | None = None, scale: float | None = None
) -> tuple[Array, Pullback]:
    """A memory that fades, and is corrected at each key.

    decay: with as many axes as q; the logarithm of the share that is kept. state: the memory before the first position;
    zeros unless given. scale: 1/√d_k unless given. backward(doutput) returns (dq, dk, dv, ddecay, dbeta), and with a
    state (dq, dk, dv, ddecay, dbeta, dstate). Yang et al. 2024.
    """
    xp = array_module(q)
    n, d_k = q.shape[-2:]
    if decay.ndim != q.ndim:
        raise ValueError(f"gated_delta: decay must broadcast to {q.shape}, with as many axes; got {decay.shape}")
    factor = 1.0 / math.sqrt(d_k) if scale is None else scale
    start = xp.zeros((*q.shape[:-2], d_k, v.shape[-1]), q.dtype)
    before = start if state is None else state

    decays = xp.broadcast_to(decay, q.shape)
    rates = xp.exp(decays)[..., None]  # (..., T, d_k, 1): a column for each position
    remains = xp.zeros((*v.shape[:-1], d_k, v.shape[-1]), q.dtype)
    memories, errors = xp.zeros_like(remains), xp.zeros_like(v)
    for t in range(n):
        faded = rates[..., t, :, :] * before
        key = k[..., t, :][..., None]  # a column
        error = v[..., t, :][..., None, :] - (faded * key).sum(axis=-2, keepdims=True)  # a row
        written = beta[..., t][..., None, None] * error
        memory = faded + key * written
        remains[..., t, :, :] = faded
        errors[..., t, :] = error[..., 0, :]
        memories[..., t, :, :] = memory
        before = memory
    output = factor * (memories * q[..., None]).sum(axis=-2)

    def backward(doutput: Array) -> tuple[Array, ...]:
        dq = factor * (memories * doutput[..., None, :]).sum(axis=-1)
        dk, dv, ddecays, dbeta = xp.zeros_like(k), xp.zeros_like(v), xp.zeros_like(q), xp.zeros_like(beta)
        from_later = xp.zeros_like(start)
        for t in reversed(range(n)):
            kept, faded = rates[..., t, :, :], remains[..., t, :, :]
            error = errors[..., t, :][..., None, :]
            written = beta[..., t][..., None, None] * error
            key = k[..., t, :][..., None]
            doutput_t = factor * doutput[..., t, :][..., None, :]
            dmemory = from_later + q[..., t, :][..., None] * doutput_t
            dwritten = (dmemory * key).sum(axis=-2, keepdims=True)
            derror = beta[..., t][..., None, None] * dwritten
            dfaded = dmemory - key * derror
            dk[..., t, :] = (dmemory * written - faded * derror).sum(axis=-1)
            dv[..., t, :] = derror[..., 0, :]
            dbeta[..., t] = (dwritten * error).sum(axis=(-2, -1))
            ddecays[..., t, :] = (dfaded * faded).sum(axis=-1)
            from_later = kept * dfaded
        ddecay = _summed_to(ddecays, decay.shape)
        if state is None:
            return dq, dk, dv, ddecay, dbeta
        dstate = from_later
        return dq, dk, dv, ddecay, dbeta, dstate

    return output, backward
