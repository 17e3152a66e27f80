"""The exercise on softcapped scores."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, t_q, t_k, d_k, d_v = draw.sizes(5, 3 if draw.extreme else 2, 7)
    q, k = draw.queries_and_keys((batch,), t_q, t_k, d_k)
    return q, k, draw.normal(batch, t_k, d_v), draw.uniform(1.2, 3.0), draw.gradient(batch, t_q, d_v)


@exercise(_backward)
def softcapped_attention_backward(
    q: Array, k: Array, v: Array, cap: float, doutput: Array
) -> tuple[Array, Array, Array]:
    """Softcapped attention, backward.

    Gemma 2 keeps every score of attention within (-cap, cap): scores = q kᵀ / √d_k,
    capped = cap · tanh(scores / cap), output = softmax(capped) v. Given doutput, return the gradients of q, k and
    v; compute the weights yourself.

    q, dq: (B, T_q, d_k); k, dk: (B, T_k, d_k); v, dv: (B, T_k, d_v); cap: a number; doutput: (B, T_q, d_v).
    Some scores are near 800 before the cap.

    Hint: Everything is as in attention, with one more line in the backward pass: it turns dcapped into dscores, for
    capped = cap · tanh(scores / cap). What is the slope of tanh, and what becomes of the factors cap and 1 / cap? No
    capped score exceeds the cap, so the softmax need not subtract a maximum.
    """
    scale = 1.0 / np.sqrt(q.shape[-1])
    share = np.tanh(q @ k.swapaxes(-1, -2) * scale / cap)
    exponentials = np.exp(cap * share)
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    dweights = doutput @ v.swapaxes(-1, -2)
    dv = weights.swapaxes(-1, -2) @ doutput
    dcapped = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dscores = dcapped * (1.0 - share * share)
    dq = dscores @ k * scale
    dk = dscores.swapaxes(-1, -2) @ q * scale
    return dq, dk, dv
