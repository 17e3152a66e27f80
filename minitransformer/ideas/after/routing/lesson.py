"""The exercise on routing by sigmoids."""

import numpy as np

from ....core.arrays.backend import Array
from ....school.course.exercise import Arguments, Draw, exercise


def _backward(draw: Draw) -> Arguments:
    n, n_experts = draw.sizes(2, 3, 7)
    k = draw.integer(min(2, n_experts), n_experts)  # the gate of a single expert is always the factor
    return draw.scores(n, n_experts), draw.normal(n_experts), k, draw.uniform(1.5, 3.0), draw.gradient(n, n_experts)


@exercise(_backward)
def sigmoid_gates_backward(logits: Array, bias: Array, k: int, factor: float, dgates: Array) -> Array:
    """The gates of DeepSeek-V3, backward.

    Each expert i has the score s_i = σ(logits_i). The k experts with the largest s_i + bias_i are chosen. Their gates
    are factor · s_i / (the sum of s over the chosen experts); those of the others are 0. Given dgates, return dlogits.

    logits, dgates, dlogits: (N, E), a row for each token; bias: (E,); k, factor: numbers.

    Hint: First find out which experts were chosen; that choice is constant. The gates of a token share one sum, so each
    gate depends on every chosen score: the quotient rule has two terms. At last comes the slope of the sigmoid.
    """
    scores = 0.5 * (1.0 + np.tanh(0.5 * logits))
    rank = np.argsort(np.argsort(-(scores + bias), axis=-1), axis=-1)
    chosen = rank < k
    share = chosen * scores
    total = share.sum(axis=-1, keepdims=True)
    gates = factor * share / total
    dshare = (factor * dgates - (dgates * gates).sum(axis=-1, keepdims=True)) / total
    dscores = chosen * dshare
    dlogits = dscores * scores * (1.0 - scores)
    return dlogits
