"""Masks, and softmax under a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _causal(draw: Draw) -> tuple[Any, ...]:
    if draw.ones or draw.extreme:
        t = draw.integer(8, 12) if draw.extreme else 1
        return t, t
    t_q = draw.integer(2, 5)
    return t_q, t_q + draw.integer(2, 4)  # an offset of 1 would look like a query that cannot see itself


@exercise(
    title="The causal mask",
    statement="""
        A query may attend to its own position and to those before it. The T_q queries are the last T_q of the T_k
        positions, as when a decoder goes on from a cache: query i stands at position i + T_k - T_q.

        t_q, t_k: integers, t_q ≤ t_k; mask: (T_q, T_k) booleans, True for "may attend".
    """,
    outputs="mask",
    inputs=_causal,
    hint="Compare a column of query positions, np.arange(...)[:, None], with a row of key positions.",
    mistakes=(
        Mistake(
            "itself-hidden",
            "keys <= queries",
            "keys < queries",
            "A query cannot see its own position: use ≤, not <.",
        ),
        Mistake(
            "sees-the-future",
            "keys <= queries",
            "keys >= queries",
            "It is the wrong way round: each query sees its own position and the future.",
        ),
        Mistake(
            "one-ahead",
            "keys <= queries",
            "keys <= queries + 1",
            "Each query sees one position ahead: that is the token it has to predict.",
        ),
        Mistake(
            "true-means-hidden",
            "keys <= queries",
            "keys > queries",
            'True marks what is hidden; here True means "may attend".',
        ),
        Mistake(
            "offset-forgotten",
            "np.arange(t_q)[:, None] + t_k - t_q",
            "np.arange(t_q)[:, None]",
            "The queries are taken for the first positions, but they are the last: query i stands at i + T_k - T_q.",
        ),
        Mistake(
            "transposed",
            "return mask",
            "return mask.T",
            "The mask is transposed: a row for each query, a column for each key.",
        ),
    ),
)
def causal_mask(t_q: int, t_k: int) -> Array:
    queries = np.arange(t_q)[:, None] + t_k - t_q
    keys = np.arange(t_k)[None, :]
    mask = keys <= queries
    return mask


def _padding(draw: Draw) -> tuple[Any, ...]:
    batch, t_k = draw.sizes(2, 3, 8)
    lengths = draw.rng.integers(1, t_k + 1, size=batch)
    lengths[:2] = (0, t_k - 1)[:batch]
    return lengths, t_k


@exercise(
    title="The padding mask",
    statement="""
        Sequence b of a batch has lengths[b] real tokens; the keys after them are padding, which nobody may attend to.
        The middle axis of length 1 lets the mask broadcast over the queries.

        lengths: (B,) integers from 0 to T_k; t_k: an integer; mask: (B, 1, T_k) booleans, True for "may attend".
    """,
    outputs="mask",
    inputs=_padding,
    hint="The keys stand at positions 0, 1, ..., so a sequence of length 2 has the real positions 0 and 1.",
    mistakes=(
        Mistake(
            "one-too-many",
            "positions < lengths",
            "positions <= lengths",
            "One padding key may be attended to: positions count from 0, so use < and not ≤.",
        ),
        Mistake(
            "true-means-padding",
            "positions < lengths",
            "positions >= lengths",
            'True marks the padding; here True means "may attend".',
        ),
        Mistake(
            "padding-in-front",
            "positions < lengths",
            "positions >= t_k - lengths",
            "The padding is taken to stand in front; it comes after the real tokens.",
        ),
        Mistake(
            "axis-missing",
            "lengths[:, None, None]",
            "lengths[:, None]",
            "The middle axis is missing: (B, T_k) would broadcast as (T_q, T_k), a mask of the queries.",
        ),
        Mistake(
            "axis-in-the-wrong-place",
            "return mask",
            "return mask.swapaxes(1, 2)",
            "(B, T_k, 1) masks the queries; the keys are the last axis.",
        ),
        Mistake(
            "longest-for-all",
            "lengths[:, None, None]",
            "np.full_like(lengths, lengths.max())[:, None, None]",
            "Every sequence is given the length of the longest.",
        ),
    ),
)
def padding_mask(lengths: Array, t_k: int) -> Array:
    positions = np.arange(t_k)
    mask = positions < lengths[:, None, None]
    return mask


def _local(draw: Draw) -> tuple[Any, ...]:
    if draw.ones:
        return 1, 0
    if draw.extreme:
        return 12, draw.integer(7, 9)
    return draw.integer(6, 9), draw.number  # 0 to 4


@exercise(
    title="The local mask",
    statement="""
        Restricted self-attention: each of t positions may attend to itself and to at most `radius` positions either
        side.

        t, radius: integers; mask: (t, t) booleans, True for "may attend".
    """,
    outputs="mask",
    inputs=_local,
    hint="What is the distance between position i and position j, and what must it be?",
    mistakes=(
        Mistake(
            "radius-exclusive",
            "abs(distance) <= radius",
            "abs(distance) < radius",
            "The positions at distance `radius` are left out: at most means ≤.",
        ),
        Mistake(
            "past-only",
            "abs(distance) <= radius",
            "(distance >= 0) & (distance <= radius)",
            "Only positions before are seen; those after belong to it as well.",
        ),
        Mistake(
            "future-only",
            "abs(distance) <= radius",
            "(distance <= 0) & (-distance <= radius)",
            "Only positions after are seen; those before belong to it as well.",
        ),
        Mistake(
            "all-the-past",
            "abs(distance) <= radius",
            "distance <= radius",
            "Without the absolute value only one side has a limit.",
        ),
        Mistake(
            "itself-hidden",
            "abs(distance) <= radius",
            "(abs(distance) <= radius) & (distance != 0)",
            "A position cannot see itself, but it may.",
        ),
        Mistake(
            "true-means-hidden",
            "abs(distance) <= radius",
            "abs(distance) > radius",
            'True marks what is hidden; here True means "may attend".',
        ),
    ),
)
def local_mask(t: int, radius: int) -> Array:
    distance = np.arange(t)[:, None] - np.arange(t)[None, :]
    mask = abs(distance) <= radius
    return mask


def _masked_scores(draw: Draw) -> tuple[Any, ...]:
    t_q, t_k = draw.sizes(2, 3, 8)
    scores, mask = draw.scores(t_q, t_k), draw.mask(t_q, t_k)
    if draw.extreme:
        scores += np.where(mask, 1000.0, 3000.0)
    return scores, mask


@exercise(
    title="Softmax under a mask",
    statement="""
        Softmax over the keys that a query may attend to; the others get the weight 0. A query that may attend to
        nothing gets only zeros, not NaN: there is such a row in every trial.

        scores: (T_q, T_k); mask: (T_q, T_k) booleans, True for "may attend"; weights: (T_q, T_k).
        Some scores are around 1000, and some hidden ones are larger still.
    """,
    outputs="weights",
    inputs=_masked_scores,
    hint="""
        np.where(mask, scores, -np.inf) and softmax do it, but for the row that is all -inf: -inf - (-inf) is NaN, and
        so is 0 / 0. Replace the largest score and the sum of that row before you use them.
    """,
    mistakes=(
        Mistake(
            "mask-ignored",
            "np.where(mask, scores, -np.inf)",
            "scores",
            "The mask is not used.",
        ),
        Mistake(
            "mask-inverted",
            "np.where(mask, scores, -np.inf)",
            "np.where(mask, -np.inf, scores)",
            'The mask is used the wrong way round: True means "may attend".',
        ),
        Mistake(
            "masked-score-zero",
            "np.where(mask, scores, -np.inf)",
            "np.where(mask, scores, 0.0)",
            "A hidden key has the score 0, and exp(0) = 1 is not nothing: it needs -inf.",
        ),
        Mistake(
            "finite-mask",
            "np.where(mask, scores, -np.inf)",
            "np.where(mask, scores, -1e9)",
            "With a large negative number for -inf, the row in which all is hidden attends to every key alike.",
        ),
        Mistake(
            "nan-in-empty-row",
            "np.where(largest == -np.inf, 0.0, largest)",
            "largest",
            "Where every score is -inf, -inf - (-inf) is NaN: the row in which all is hidden must be zeros.",
        ),
        Mistake(
            "masked-after-softmax",
            "weights = exponentials / np.where(total == 0.0, 1.0, total)",
            "weights = np.exp(scores) * mask / np.exp(scores).sum(axis=-1, keepdims=True)",
            "The mask is laid over the weights after softmax, so what is left of a row no longer sums to one.",
        ),
        Mistake(
            "no-shift",
            "visible - np.where(largest == -np.inf, 0.0, largest)",
            "visible",
            "exp overflows where a score is around 1000: subtract the largest visible score of each row first.",
        ),
        Mistake(
            "shift-by-hidden-maximum",
            "visible.max(",
            "scores.max(",
            "The largest score is taken over hidden keys too. Where a hidden one is far larger, each visible exp is 0.",
        ),
    ),
)
def masked_softmax_forward(scores: Array, mask: Array) -> Array:
    visible = np.where(mask, scores, -np.inf)
    largest = visible.max(axis=-1, keepdims=True)
    exponentials = np.exp(visible - np.where(largest == -np.inf, 0.0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total == 0.0, 1.0, total)
    return weights
