"""Softcapped scores. Bello et al. 2017, "Neural Combinatorial Optimization", appendix A; Gemma Team 2024, "Gemma 2", 2.

    capped = cap · tanh(scores / cap)

A small score hardly changes. No score leaves (-cap, cap), so however long a query is, it cannot attend to one key only.
Gemma 2 caps the scores of attention at 50 and the logits at 30.

    scores  = scale · q kᵀ
    capped  = cap · tanh(scores / cap)
    output  = softmax(capped) v       its dropout is that of core/ops/attention.py

Backward. With tanh' = 1 - tanh², and because the factors cap and 1 / cap cancel,

    dscores_ij = dcapped_ij (1 - (capped_ij / cap)²)

which is about dcapped for a small score, and nearly 0 for one at the cap: a saturated score stops learning. Everything
else is as in core/ops/attention.py. The mask is applied after capping, because tanh would turn -inf into -cap.
"""

from __future__ import annotations

import math

from ....core.arrays.backend import Array, Pullback, Rng, array_module, device_of
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.arrays.masks import causal_mask
from ....core.ops.dropout import dropout as drop
from ....core.ops.softmax import softmax


@op("x, y: (...); cap > 0")
@in_float32
def softcap(x: Array, cap: float) -> tuple[Array, Pullback]:
    """y = cap · tanh(x / cap), element-wise. backward(dy) returns dx."""
    xp = array_module(x)
    share = xp.tanh(x / cap)
    y = cap * share

    def backward(dy: Array) -> Array:
        dx = dy * (1.0 - share * share)
        return dx

    return y, backward


@op(
    "q: (..., T_q, d_k); k: (..., T_k, d_k); v: (..., T_k, d_v); output: (..., T_q, d_v); cap > 0; "
    "mask: booleans that broadcast to (..., T_q, T_k); 0 <= dropout < 1"
)
@in_float32
def softcapped_attention(
    q: Array,
    k: Array,
    v: Array,
    cap: float,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> tuple[Array, Pullback]:
    """Attention whose scores stay within (-cap, cap).

    mask, causal, scale, dropout: as in attention. backward(doutput) returns (dq, dk, dv).
    """
    xp = array_module(q)
    t_q, t_k = q.shape[-2], k.shape[-2]
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    allowed = xp.ones((t_q, t_k), dtype=bool)
    if mask is not None:
        allowed = allowed & mask
    if causal:
        allowed = allowed & causal_mask(t_q, t_k, device_of(q).name)

    scores = (q @ k.swapaxes(-1, -2)) * factor
    capped, cap_backward = softcap(scores, cap)
    visible = xp.where(allowed, capped, -xp.inf)
    weights, softmax_backward = softmax(visible)
    kept, dropout_backward = drop(weights, dropout, rng)
    output = kept @ v

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dkept = doutput @ v.swapaxes(-1, -2)
        dv = kept.swapaxes(-1, -2) @ doutput
        dweights = dropout_backward(dkept)
        dcapped = softmax_backward(dweights)  # zero wherever the mask hid the score
        dscores = cap_backward(dcapped)
        dq = (dscores @ k) * factor
        dk = (dscores.swapaxes(-1, -2) @ q) * factor
        return dq, dk, dv

    return output, backward
