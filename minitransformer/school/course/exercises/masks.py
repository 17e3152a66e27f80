"""Masks, and softmax under a mask."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _causal(draw: Draw) -> Arguments:
    if draw.ones or draw.extreme:
        t = draw.integer(8, 12) if draw.extreme else 1
        return t, t
    t_q = draw.integer(2, 5)
    return t_q, t_q + 2 + draw.number % 3  # an offset of 1 would look like a query that cannot see itself


@exercise(_causal)
def causal_mask(t_q: int, t_k: int) -> Array:
    """The causal mask.

    A query may attend to its own position and to those before it. The T_q queries are the last T_q of the T_k
    positions, as when a decoder continues from a cache: query i is at position i + T_k - T_q.

    t_q, t_k: integers, t_q ≤ t_k; mask: (T_q, T_k) booleans, True for "may attend".

    Hint: Compare a column of query positions, np.arange(...)[:, None], with a row of key positions.
    """
    queries = np.arange(t_q)[:, None] + t_k - t_q
    keys = np.arange(t_k)[None, :]
    mask = keys <= queries
    return mask


def _padding(draw: Draw) -> Arguments:
    batch, t_k = draw.sizes(2, 3, 8)
    lengths = draw.rng.integers(1, t_k + 1, size=batch)
    lengths[:2] = (0, t_k - 1)[:batch]
    return lengths, t_k


@exercise(_padding)
def padding_mask(lengths: Array, t_k: int) -> Array:
    """The padding mask.

    Sequence b of a batch has lengths[b] real tokens; the keys after them are padding, to which no query may attend.
    The middle axis of length 1 lets the mask broadcast over the queries.

    lengths: (B,) integers from 0 to T_k; t_k: an integer; mask: (B, 1, T_k) booleans, True for "may attend".

    Hint: The keys have positions 0, 1, ..., so a sequence of length 2 has the real positions 0 and 1.
    """
    positions = np.arange(t_k)
    mask = positions < lengths[:, None, None]
    return mask


def _local(draw: Draw) -> Arguments:
    if draw.ones:
        return 1, 0
    if draw.extreme:
        return 12, draw.integer(7, 9)
    return draw.integer(6, 9), draw.number  # 0 to 4


@exercise(_local)
def local_mask(t: int, radius: int) -> Array:
    """The local mask.

    Restricted self-attention: each of t positions may attend to itself and to at most `radius` positions on either
    side.

    t, radius: integers; mask: (t, t) booleans, True for "may attend".

    Hint: What is the distance between position i and position j, and what must it be?
    """
    distance = np.arange(t)[:, None] - np.arange(t)[None, :]
    mask = abs(distance) <= radius
    return mask


def _masked_scores(draw: Draw) -> Arguments:
    t_q, t_k = draw.sizes(2, 5 if draw.extreme else 3, 9 if draw.extreme else 8)
    scores, mask = draw.scores(t_q, t_k), draw.mask(t_q, t_k)
    if draw.extreme:
        mask[:5] = True
        mask[0], mask[1, 0], mask[2, 1], mask[3, ::2] = False, False, False, False
        scores[1] += np.where(mask[1], -1000.0, 5.0)
        scores[2] += np.where(mask[2], 1000.0, 3000.0)
        scores[3] += np.where(mask[3], -1000.0, 1000.0)
        scores[4] += 1000.0
        scores[5:] -= 1000.0
    return scores, mask


@exercise(_masked_scores)
def masked_softmax_forward(scores: Array, mask: Array) -> Array:
    """Softmax under a mask.

    Softmax over the keys that a query may attend to; the others get the weight 0. A query that may attend to
    nothing gets only zeros, not NaN: there is such a row in every trial.

    scores: (T_q, T_k); mask: (T_q, T_k) booleans, True for "may attend"; weights: (T_q, T_k).
    Some rows have visible scores around 1000, others around -1000, and some hidden ones are larger still.

    Hint: np.where(mask, scores, -np.inf) and softmax do it, except for the row that is all -inf: -inf - (-inf) is NaN,
    and so is 0 / 0. Replace the largest score and the sum of that row before you use them.
    """
    visible = np.where(mask, scores, -np.inf)
    largest = visible.max(axis=-1, keepdims=True)
    exponentials = np.exp(visible - np.where(largest == -np.inf, 0.0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total == 0.0, 1.0, total)
    return weights
