"""Differential attention. Ye et al. 2024, "Differential Transformer", section 2.1.

Two attentions look for the same values with queries and keys of their own, and the second is taken away from the first.
Weight that both give, to what is irrelevant, cancels, as noise does in the difference of two signals. The halves
of the last axis of q are q_1 and q_2, those of k are k_1 and k_2, each of width d:

    first   = softmax(scale · q_1 k_1ᵀ)
    second  = softmax(scale · q_2 k_2ᵀ)
    weights = first - λ second
    output  = weights v

Backward. With dweights = doutput vᵀ,

    dfirst = dweights,    dsecond = -λ dweights,    dλ = -sum(dweights ⊙ second)

and from there to queries and keys as in core/ops/attention.py, for each half. λ is learned through four vectors:

    λ = exp(a · b) - exp(c · d) + initial

    da = dλ exp(a · b) b,    db = dλ exp(a · b) a,    dc = -dλ exp(c · d) d,    dd = -dλ exp(c · d) c
"""

from __future__ import annotations

import math

from ....core.arrays.backend import Array, Pullback, array_module, device_of
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.arrays.masks import causal_mask
from ....core.ops.softmax import softmax


@op("a, b, c, d: (n); factor: ()")
@in_float32
def difference_factor(a: Array, b: Array, c: Array, d: Array, initial: float = 0.8) -> tuple[Array, Pullback]:
    """λ = exp(a · b) - exp(c · d) + initial, a number. backward(dfactor) returns (da, db, dc, dd)."""
    xp = array_module(a)
    more, less = xp.exp((a * b).sum()), xp.exp((c * d).sum())
    factor = more - less + initial

    def backward(dfactor: Array) -> tuple[Array, Array, Array, Array]:
        dmore, dless = dfactor, -dfactor
        da, db = dmore * more * b, dmore * more * a
        dc, dd = dless * less * d, dless * less * c
        return da, db, dc, dd

    return factor, backward


@op(
    "q: (..., T_q, 2·d); k: (..., T_k, 2·d); v: (..., T_k, d_v); factor: (); output: (..., T_q, d_v); "
    "mask: booleans that broadcast to (..., T_q, T_k)"
)
@in_float32
def differential_attention(
    q: Array,
    k: Array,
    v: Array,
    factor: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Array, Pullback]:
    """The difference of two attentions to the same values. factor: λ, how much of the second is taken away.

    mask, causal: as in attention. scale: 1/√d unless given. backward(doutput) returns (dq, dk, dv, dfactor).
    """
    xp = array_module(q)
    t_q, t_k, d = q.shape[-2], k.shape[-2], q.shape[-1] // 2
    share = 1.0 / math.sqrt(d) if scale is None else scale
    allowed = xp.ones((t_q, t_k), dtype=bool)
    if mask is not None:
        allowed = allowed & mask
    if causal:
        allowed = allowed & causal_mask(t_q, t_k, device_of(q).name)

    scores_1 = (q[..., :d] @ k[..., :d].swapaxes(-1, -2)) * share
    scores_2 = (q[..., d:] @ k[..., d:].swapaxes(-1, -2)) * share
    visible_1 = xp.where(allowed, scores_1, -xp.inf)
    visible_2 = xp.where(allowed, scores_2, -xp.inf)
    first, first_backward = softmax(visible_1)
    second, second_backward = softmax(visible_2)
    weights = first - factor * second
    output = weights @ v

    def backward(doutput: Array) -> tuple[Array, Array, Array, Array]:
        dweights = doutput @ v.swapaxes(-1, -2)
        dv = weights.swapaxes(-1, -2) @ doutput
        dfirst = dweights
        dsecond = -factor * dweights
        dfactor = -(dweights * second).sum()
        dscores_1 = first_backward(dfirst)
        dscores_2 = second_backward(dsecond)
        dq = xp.concatenate([dscores_1 @ k[..., :d], dscores_2 @ k[..., d:]], axis=-1) * share
        dk_1, dk_2 = dscores_1.swapaxes(-1, -2) @ q[..., :d], dscores_2.swapaxes(-1, -2) @ q[..., d:]
        dk = xp.concatenate([dk_1, dk_2], axis=-1) * share
        return dq, dk, dv, dfactor

    return output, backward
