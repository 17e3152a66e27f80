"""The exercise on differential attention."""

from __future__ import annotations

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    batch, t_q, t_k, d, d_v = draw.sizes(5)
    q, k = draw.normal(batch, t_q, 2 * d), draw.normal(batch, t_k, 2 * d)
    return q, k, draw.normal(batch, t_k, d_v), draw.uniform(0.2, 0.9), draw.gradient(batch, t_q, d_v)


@exercise(_backward)
def differential_attention_backward(
    q: Array, k: Array, v: Array, factor: float, doutput: Array
) -> tuple[Array, Array, Array, float]:
    """Differential attention, backward.

    Queries and keys are two halves side by side, each of width d: first = softmax(q_1 k_1ᵀ / √d),
    second = softmax(q_2 k_2ᵀ / √d), weights = first - factor · second, output = weights v. Given doutput, return the
    gradients of q, k, v and factor; compute the weights yourself.

    q, dq: (B, T_q, 2d); k, dk: (B, T_k, 2d); v, dv: (B, T_k, d_v); factor, dfactor: numbers; doutput: (B, T_q, d_v).

    Hint: Both softmaxes get a gradient from dweights; one of them with the factor, and with a sign. The factor is a
    single number that every weight uses.
    """
    d = q.shape[-1] // 2
    share = 1.0 / np.sqrt(d)

    def softmax(x: Array) -> Array:
        exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def softmax_backward(y: Array, dy: Array) -> Array:
        return y * (dy - (dy * y).sum(axis=-1, keepdims=True))

    first = softmax(q[..., :d] @ k[..., :d].swapaxes(-1, -2) * share)
    second = softmax(q[..., d:] @ k[..., d:].swapaxes(-1, -2) * share)
    weights = first - factor * second
    dweights = doutput @ v.swapaxes(-1, -2)
    dv = weights.swapaxes(-1, -2) @ doutput
    dsecond = -factor * dweights
    dfactor = -(dweights * second).sum()
    dscores_1, dscores_2 = softmax_backward(first, dweights), softmax_backward(second, dsecond)
    dq = share * np.concatenate([dscores_1 @ k[..., :d], dscores_2 @ k[..., d:]], axis=-1)
    of_1, of_2 = dscores_1.swapaxes(-1, -2), dscores_2.swapaxes(-1, -2)
    dk = share * np.concatenate([of_1 @ q[..., :d], of_2 @ q[..., d:]], axis=-1)
    return dq, dk, dv, dfactor
