"""Cheaper attention: linear biases, tiles, linear attention, latent keys and values, a sink, norms, a rolling cache."""

from __future__ import annotations

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _sizes_of_a_bias(draw: Draw) -> Arguments:
    t_q, t_k = sorted(draw.sizes(2, 9, 12) if draw.extreme else draw.sizes(2, 3, 8))
    return draw.sizes(1, 3, 8)[0], t_q, t_k


@exercise(_sizes_of_a_bias)
def alibi_bias(n_heads: int, t_q: int, t_k: int) -> Array:
    """Linear biases (ALiBi).

    ALiBi adds -m_h |i - j| to the score of the query at position i and the key at position j, with a slope for
    each head: m_h = 2^(-8 h / H), h = 1, ..., H. The t_q queries are the last of the t_k positions, as with a
    cache. Return the bias of all heads.

    n_heads: H; t_q, t_k: sizes, t_q at most t_k; bias: (H, t_q, t_k).

    Hint: The distances are one matrix: a column with the positions of the queries minus a row with those of the keys.
    slopes[:, None, None] gives each head its own.
    """
    slopes = 2.0 ** (-8.0 * np.arange(1, n_heads + 1) / n_heads)
    behind = np.arange(t_q)[:, None] + (t_k - t_q) - np.arange(t_k)[None, :]
    bias = -slopes[:, None, None] * np.abs(behind)
    return bias


def _second_tile(draw: Draw) -> Arguments:
    """A tile of keys, and the sums that an earlier tile left."""
    t_q, first, second, d_k, d_v = draw.sizes(5, 4 if draw.extreme else 2, 8)
    q, k = draw.queries_and_keys((), t_q, first + second, d_k)
    v = draw.normal(first + second, d_v)
    k[first:] *= 8.0 if draw.number == 1 else 1.0  # the new tile has the larger scores, so little is left of the old
    scores = q @ k[:first].T / np.sqrt(q.shape[1])
    largest = scores.max(axis=1)
    exponentials = np.exp(scores - largest[:, None])
    return q, k[first:], v[first:], largest, exponentials.sum(axis=1), exponentials @ v[:first]


@exercise(_second_tile)
def online_softmax_step(q: Array, k: Array, v: Array, largest: Array, total: Array, found: Array) -> tuple[Array, ...]:
    """Online softmax: one more tile of keys.

    Flash attention reads the keys tile by tile. Of the tiles so far it keeps, for each query, the largest score m,
    the total, l = sum_j exp(s_j - m), and the output, found = sum_j exp(s_j - m) v_j, where s_j = q·k_j / √d_k.
    Given the next tile of keys and values, return all three with this tile included.

    q: (T_q, d_k); k: (T_k, d_k) and v: (T_k, d_v), the tile; largest, new_largest, total, new_total: (T_q,);
    found, new_found: (T_q, d_v). Some scores are near 800, where exp overflows.

    Hint: The new maximum is the larger of the old maximum and the tile's. exp(s - m') = exp(s - m) exp(m - m'): one
    factor for each query corrects what was summed with m.
    """
    scores = q @ k.T / np.sqrt(q.shape[1])
    new_largest = np.maximum(largest, scores.max(axis=1))
    correction = np.exp(largest - new_largest)
    exponentials = np.exp(scores - new_largest[:, None])
    new_total = total * correction + exponentials.sum(axis=1)
    new_found = found * correction[:, None] + exponentials @ v
    return new_largest, new_total, new_found


def _sequence(draw: Draw) -> Arguments:
    t, d_k, d_v = draw.sizes(3, 3, 7)
    size = 3.0 if draw.extreme else 1.0
    q, k = size * draw.normal(t, d_k), size * draw.normal(t, d_k)
    if draw.extreme:  # the sum of the first weights is far below 1
        q[0], k[0] = (-1.5 - draw.rng.random(d_k) for _ in range(2))
    return q, k, draw.normal(t, d_v)


@exercise(_sequence)
def linear_attention_forward(q: Array, k: Array, v: Array) -> Array:
    """Linear attention.

    The weight of key j for query i is φ(q_i)·φ(k_j), with φ(x) = x + 1 for x > 0 and exp(x) otherwise, element by
    element. Position i sees the positions up to its own:

        output_i = sum_{j≤i} (φ(q_i)·φ(k_j)) v_j / sum_{j≤i} φ(q_i)·φ(k_j)

    Compute it in one pass over the sequence that keeps a matrix and a vector, whose sizes do not depend on T.

    q, k: (T, d_k); v: (T, d_v); output: (T, d_v).

    Hint: φ(q_i) can be taken out of both sums. What is left are the sums of φ(k_j) v_jᵀ and of φ(k_j) over j ≤ i; each
    position adds a term to them. np.outer makes the matrix.
    """
    queries, keys = (np.where(x > 0.0, x + 1.0, np.exp(np.minimum(x, 0.0))) for x in (q, k))
    state, total = np.zeros((q.shape[1], v.shape[1])), np.zeros(q.shape[1])
    output = np.zeros(v.shape)
    for i in range(len(q)):
        state = state + np.outer(keys[i], v[i])
        total = total + keys[i]
        output[i] = queries[i] @ state / (queries[i] @ total)
    return output


def _with_a_sink(draw: Draw) -> Arguments:
    n_heads, t_q, t_k, d_k, d_v = draw.sizes(5)
    q, k, v = draw.normal(n_heads, t_q, d_k), draw.normal(n_heads, t_k, d_k), draw.normal(n_heads, t_k, d_v)
    weights = draw.weights(n_heads, t_q, t_k + 1)[:, :, :-1]
    return q, k, v, weights, draw.gradient(n_heads, t_q, d_v)


@exercise(_with_a_sink)
def sink_attention_backward(q: Array, k: Array, v: Array, weights: Array, doutput: Array) -> tuple[Array, ...]:
    """Attention with a sink, backward.

    In each head a learned score, the sink, takes part in the softmax but has no value:

        weights_ij = exp(s_ij) / (exp(sink) + sum_l exp(s_il)),   s = q kᵀ / √d_k,   output = weights v

    So the weights of a query sum to less than one. Given these weights and doutput, return the gradients of q, k, v
    and of the sinks of all heads.

    q, dq: (H, T_q, d_k); k, dk: (H, T_k, d_k); v, dv: (H, T_k, d_v); weights: (H, T_q, T_k);
    doutput: (H, T_q, d_v); dsink: (H,).

    Hint: It is a softmax over T_k + 1 scores. The weight of the sink is 1 minus the sum of the others. It has no value,
    so the gradient of that weight is 0. Every query of a head used the same sink.
    """
    scale = 1.0 / np.sqrt(q.shape[-1])
    rest = 1.0 - weights.sum(axis=-1)
    dweights = doutput @ v.swapaxes(-1, -2)
    dv = weights.swapaxes(-1, -2) @ doutput
    inner = (dweights * weights).sum(axis=-1)
    dscores = weights * (dweights - inner[:, :, None])
    dq = dscores @ k * scale
    dk = dscores.swapaxes(-1, -2) @ q * scale
    dsink = -(rest * inner).sum(axis=1)
    return dq, dk, dv, dsink


@exercise(lambda draw: draw.arrays("h d, h r, t c, t r, h c d"))
def latent_scores(q: Array, q_place: Array, latent: Array, place: Array, w_uk: Array) -> Array:
    """Scores from latent keys.

    In multi-head latent attention a cache holds one latent vector c_t for each token, and a rotated key that all
    heads share. The key of head h would be (c_t W_h, place_t), its query is (q_h, q_place_h), and the scores are
    their products over √(d + d_R). Compute the scores of one new token without computing any key: compare each
    query with the latents directly.

    q: (H, d); q_place: (H, d_R); latent: (T, d_c); place: (T, d_R); w_uk: (H, d_c, d), all W_h; scores: (H, T).

    Hint: q_h·(c_t W_h) = (W_h q_h)·c_t: multiply the query by the matrix once, instead of every latent.
    """
    asked = (w_uk @ q[:, :, None])[:, :, 0]
    scores = (asked @ latent.T + q_place @ place.T) / np.sqrt(q.shape[1] + place.shape[1])
    return scores


def _normed(draw: Draw) -> Arguments:
    t_q, t_k, d = draw.sizes(3, 3, 8)
    q, k = draw.normal(t_q, d), draw.normal(t_k, d)
    if draw.extreme:
        q[0], k[1] = 0.0, 100.0 * k[1]
    return q, k, 1.0 + draw.normal(d), 1.0 + draw.normal(d), draw.gradient(t_q, t_k)


@exercise(_normed)
def normed_scores_backward(q: Array, k: Array, gamma_q: Array, gamma_k: Array, dscores: Array) -> tuple[Array, ...]:
    """Norms of queries and keys, backward.

    Long queries and keys make scores so large that the softmax saturates. So some models normalise both before
    their product, each with a gain of its own:

        scores = n(q, γ_q) n(k, γ_k)ᵀ / √d,   n(x, γ) = γ x / √(mean(x²) + 1e-5), row by row

    Given dscores, return the gradients of q, k and both gains.

    q, dq: (T_q, d); k, dk: (T_k, d); gamma_q, gamma_k, dgamma_q, dgamma_k: (d,); dscores: (T_q, T_k).

    Hint: First the product: it gives the gradients of the normalised rows. Then each norm: with u = x / r, where r is
    the root, dx = (du - u mean(du u)) / r and du = γ dy. Every row used the same gain.
    """

    def root(x: Array) -> Array:
        return np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)

    def norm_backward(dy: Array, x: Array, gamma: Array) -> tuple[Array, Array]:
        unit = x / root(x)
        dunit = gamma * dy
        return (dunit - unit * (dunit * unit).mean(axis=-1, keepdims=True)) / root(x), (dy * unit).sum(axis=0)

    normed_q, normed_k = gamma_q * q / root(q), gamma_k * k / root(k)
    factor = 1.0 / np.sqrt(q.shape[1])
    dnormed_q = dscores @ normed_k * factor
    dnormed_k = dscores.T @ normed_q * factor
    dq, dgamma_q = norm_backward(dnormed_q, q, gamma_q)
    dk, dgamma_k = norm_backward(dnormed_k, k, gamma_k)
    return dq, dk, dgamma_q, dgamma_k


def _text_and_window(draw: Draw) -> Arguments:
    window, sinks, more = draw.sizes(3, 2, 30 if draw.extreme else 7)
    n = window - 1 if draw.number == 1 else window + sinks + more  # in one trial nothing is forgotten yet
    return draw.normal(2), draw.normal(n, 2), window, sinks


@exercise(_text_and_window)
def rolling_cache_scores(q: Array, k: Array, window: int, sinks: int) -> Array:
    """A rolling cache with sinks.

    A rolling cache holds the keys of the first `sinks` tokens and of the last `window` ones, in the order of the
    text; a token that belongs to both is held once. Positions count within the cache: the kept keys are at 0, 1, 2,
    ..., and a new token comes after them. Queries and keys are rotated by one radian for each position, from the
    first axis towards the second. Return the scores of the new token with the kept keys, not divided by √d.

    q: (2,), the new token's query; k: (n, 2), all keys before the new token's; both not rotated yet;
    window, sinks: integers; scores: (n_kept,).

    Hint: Choose the kept keys with a mask over 0, ..., n - 1. A rotation of (a, b) by an angle is the product of a + ib
    and e^(i angle); the dot product of two such numbers is the real part of one times the conjugate of the other.
    """
    n = len(k)
    tokens = np.arange(n)
    kept = tokens[(tokens < sinks) | (tokens >= n - window)]
    places = np.arange(len(kept))
    keys = (k[kept, 0] + 1j * k[kept, 1]) * np.exp(1j * places)
    query = (q[0] + 1j * q[1]) * np.exp(1j * len(kept))
    scores = (keys.conj() * query).real
    return scores
