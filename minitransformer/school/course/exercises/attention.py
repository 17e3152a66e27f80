"""Scaled dot-product attention: forward, backward, and backward under a mask."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _forward(draw: Draw) -> Arguments:
    batch, t_q, t_k, d_k, d_v = draw.sizes(5, 3 if draw.extreme else 2, 7)
    q, k = draw.queries_and_keys((batch,), t_q, t_k, d_k)
    return q, k, draw.normal(batch, t_k, d_v)


@exercise(_forward)
def attention_forward(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Attention.

    Each query takes a weighted mean of the values: output = weights v, weights = softmax(q kᵀ / √d_k), the softmax
    over the keys. Return both.

    q: (B, T_q, d_k); k: (B, T_k, d_k); v: (B, T_k, d_v); output: (B, T_q, d_v); weights: (B, T_q, T_k).
    Some scores are near 800, where exp overflows; some queries have only scores far below 0.

    Hint: k.swapaxes(-1, -2) transposes the keys of every sequence; @ then multiplies sequence by sequence.
    """
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    output = weights @ v
    return output, weights


def _backward(draw: Draw) -> Arguments:
    q, k, v = _forward(draw)
    output, weights = attention_forward(q, k, v)
    return q, k, v, weights, draw.gradient(*output.shape)


@exercise(_backward)
def attention_backward(q: Array, k: Array, v: Array, weights: Array, doutput: Array) -> tuple[Array, Array, Array]:
    """Attention, backward.

    output = weights v, with weights = softmax(q kᵀ / √d_k). Given doutput, return the gradients of q, k and v. The
    weights of the forward pass are given.

    q, dq: (B, T_q, d_k); k, dk: (B, T_k, d_k); v, dv: (B, T_k, d_v); weights: (B, T_q, T_k);
    doutput: (B, T_q, d_v).

    Hint: Go back line by line: output = weights v gives dweights and dv; the softmax backward turns dweights into
    dscores, row by row; scores = q kᵀ / √d_k gives dq and dk. Watch the shapes: each line has one product that fits.
    """
    scale = 1.0 / np.sqrt(q.shape[-1])
    dweights = doutput @ v.swapaxes(-1, -2)
    dv = weights.swapaxes(-1, -2) @ doutput
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dq = dscores @ k * scale
    dk = dscores.swapaxes(-1, -2) @ q * scale
    return dq, dk, dv


def _masked(draw: Draw) -> Arguments:
    t_q, t_k, d_k, d_v = draw.sizes(4, 4 if draw.extreme else 3, 7)
    q, k = draw.queries_and_keys((), t_q, t_k, d_k)
    mask = draw.mask(t_q, t_k)
    if draw.extreme:  # query 0 may attend only to keys with scores near -1600, and some scores near 800 are hidden
        mask[:4] = True
        mask[0, ::2], mask[1, 0], mask[2] = False, False, False
    return q, k, draw.normal(t_k, d_v), mask, draw.gradient(t_q, d_v)


@exercise(_masked)
def masked_attention_backward(q: Array, k: Array, v: Array, mask: Array, doutput: Array) -> tuple[Array, Array, Array]:
    """Attention under a mask, backward.

    output = softmax(q kᵀ / √d_k) v, the softmax over the keys that the mask allows. Given doutput, return the
    gradients of q, k and v; this time compute the weights yourself. One query may attend to nothing: its weights
    are zeros, so its output is zero, and it must give no gradient and no NaN.

    q, dq: (T_q, d_k); k, dk: (T_k, d_k); v, dv: (T_k, d_v); mask: (T_q, T_k) booleans, True for "may attend";
    doutput: (T_q, d_v). Some scores are near 800, where exp overflows; some see only scores far below 0.

    Hint: With the weights of masked_softmax_forward the rest is attention_backward: a hidden pair has the weight 0, so
    its dscore is automatically 0.
    """
    scale = 1.0 / np.sqrt(q.shape[-1])
    scores = np.where(mask, q @ k.T * scale, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(largest == -np.inf, 0.0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total == 0.0, 1.0, total)

    dweights = doutput @ v.T
    dv = weights.T @ doutput
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dq = dscores @ k * scale
    dk = dscores.T @ q * scale
    return dq, dk, dv
