"""What later models changed: positions by rotation, heads that share keys and values, a bias for each distance."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise
from .attention import attention_backward


def _rotated(draw: Draw) -> Arguments:
    if draw.ones:
        return draw.normal(1, 2), 10.0
    t, half = (draw.integer(30, 40), 4) if draw.extreme else draw.sizes(2, 3, 7)
    return draw.normal(t, 2 * half), draw.uniform(2.0, 10.0) if draw.extreme else draw.uniform(50.0, 1000.0)


@exercise(_rotated)
def rotary_forward(x: Array, base: float) -> Array:
    """Rotary positions.

    Rotate the pairs of numbers of each vector by an angle that grows with its position p = 0, ..., T - 1. Pair i
    of d/2 is a = x[p, i] and b = x[p, i + d/2], so the first half of the vector is paired with the second. With
    the angle p / base^(2i/d)

        y[p, i]       = a cos(angle) - b sin(angle)
        y[p, i + d/2] = a sin(angle) + b cos(angle)

    x, y: (T, d), d even; base: a number (10000 in the paper).

    Hint: All angles are one product of a column with the positions and a row with the frequencies, (T, d/2).
    np.concatenate puts two halves together again.
    """
    t, d = x.shape
    angles = np.arange(t)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[:, : d // 2], x[:, d // 2 :]
    y = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=1)
    return y


def _rotated_back(draw: Draw) -> Arguments:
    x, base = _rotated(draw)
    return draw.gradient(*x.shape), base


@exercise(_rotated_back)
def rotary_backward(dy: Array, base: float) -> Array:
    """Rotary positions, backward.

    Row p of y is row p of x with each pair (a, b) = (x[p, i], x[p, i + d/2]) rotated by the angle p / base^(2i/d):

        y[p, i]       = a cos(angle) - b sin(angle)
        y[p, i + d/2] = a sin(angle) + b cos(angle)

    Given dy, return the gradient of x.

    dy, dx: (T, d), d even; base: a number.

    Hint: Each pair is multiplied by a matrix of two rows and two columns. Its gradient is multiplied by the transpose
    of that matrix. Which rotation is the transpose of a rotation?
    """
    t, d = dy.shape
    angles = np.arange(t)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    da, db = dy[:, : d // 2], dy[:, d // 2 :]
    dx = np.concatenate([da * cos + db * sin, db * cos - da * sin], axis=1)
    return dx


def _shared(draw: Draw) -> Arguments:
    t_q, t_k, d_k, d_v = draw.sizes(4)
    n_shared, times = draw.sizes(2, 2, 4)
    n_heads = n_shared * times
    q, k = draw.normal(n_heads, t_q, d_k), draw.normal(n_shared, t_k, d_k)
    weights = draw.weights(n_heads, t_q, t_k)
    return q, k, draw.normal(n_shared, t_k, d_v), weights, draw.gradient(n_heads, t_q, d_v)


@exercise(_shared)
def shared_heads_backward(q: Array, k: Array, v: Array, weights: Array, doutput: Array) -> tuple[Array, Array, Array]:
    """Heads that share keys and values, backward.

    In grouped-query attention the H heads of queries share G heads of keys and values: with n = H / G, the heads
    g·n to g·n + n - 1 of the queries attend with head g of k and of v. Given doutput, return the gradients of q, k
    and v. The weights of the forward pass, softmax(q kᵀ / √d_k), are given.

    q, dq: (H, T_q, d_k); k, dk: (G, T_k, d_k); v, dv: (G, T_k, d_v); weights: (H, T_q, T_k);
    doutput: (H, T_q, d_v). You may call your attention_backward.

    Hint: Repeat k and v until each head of queries has its own; then it is attention_backward. What was used n times
    has n gradients.
    """
    times = len(q) // len(k)
    all_k, all_v = np.repeat(k, times, axis=0), np.repeat(v, times, axis=0)
    dq, dall_k, dall_v = attention_backward(q, all_k, all_v, weights, doutput)
    dk = dall_k.reshape(len(k), times, *k.shape[1:]).sum(axis=1)
    dv = dall_v.reshape(len(v), times, *v.shape[1:]).sum(axis=1)
    return dq, dk, dv


def _biased(draw: Draw) -> Arguments:
    t_q, t_k, n_heads = draw.sizes(3)
    nearest = 2 + draw.number % 2
    distances = np.arange(t_k)[None, :] - np.arange(t_q)[:, None]
    buckets = np.clip(distances, -nearest, nearest) + nearest
    return draw.gradient(n_heads, t_q, t_k), buckets, 2 * nearest + 1


@exercise(_biased)
def relative_bias_backward(dbias: Array, buckets: Array, n_buckets: int) -> Array:
    """A bias for each distance, backward.

    In T5 a learned number is added to each score; it depends on the head and on the distance from query to key.
    Distances share buckets: bias[h, i, j] = table[buckets[i, j], h]. Given dbias, return the gradient of the
    table.

    dbias: (H, T_q, T_k); buckets: (T_q, T_k) integers from 0 to n_buckets - 1; n_buckets: the number of rows;
    dtable: (n_buckets, H).

    Hint: It is an embedding whose ids are the buckets. Where is the axis of the heads in dbias, and where in a row of
    the table? A bucket gets the sum over all pairs that use it: np.add.at, or a loop.
    """
    drows = np.moveaxis(dbias, 0, -1)
    dtable = np.zeros((n_buckets, len(dbias)))
    np.add.at(dtable, buckets, drows)
    return dtable
