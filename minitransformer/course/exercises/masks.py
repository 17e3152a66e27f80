"""Masks, softmax under a mask, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..exercise import Mistake, exercise
from .inputs import mask_with_empty_row, sizes


def _causal(rng: np.random.Generator) -> tuple[Any, ...]:
    t_q = int(rng.integers(2, 6))
    return t_q, t_q + int(rng.integers(2, 5))  # an offset of 1 would look like a query that cannot see itself


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


def _padding(rng: np.random.Generator) -> tuple[Any, ...]:
    batch, t_k = sizes(rng, 2, 3, 8)
    lengths = rng.integers(1, t_k + 1, size=batch)
    lengths[:2] = 0, t_k - 1
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


def _local(rng: np.random.Generator) -> tuple[Any, ...]:
    t = int(rng.integers(6, 10))
    return t, int(rng.integers(1, 3))


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


def _masked_scores(rng: np.random.Generator) -> tuple[Any, ...]:
    t_q, t_k = sizes(rng, 2, 3, 8)
    return rng.normal(size=(t_q, t_k)), mask_with_empty_row(rng, t_q, t_k)


@exercise(
    title="Softmax under a mask",
    statement="""
        Softmax over the keys that a query may attend to; the others get the weight 0. A query that may attend to
        nothing gets only zeros, not NaN: there is such a row in every trial.

        scores: (T_q, T_k); mask: (T_q, T_k) booleans, True for "may attend"; weights: (T_q, T_k).
    """,
    outputs="weights",
    inputs=_masked_scores,
    hint="""
        np.where(mask, scores, -np.inf) and softmax do it, but for the row that is all -inf: -inf - (-inf) is NaN, and
        so is 0 / 0. Mend the largest score and the sum of that row before you use them.
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
    ),
)
def masked_softmax_forward(scores: Array, mask: Array) -> Array:
    visible = np.where(mask, scores, -np.inf)
    largest = visible.max(axis=-1, keepdims=True)
    exponentials = np.exp(visible - np.where(largest == -np.inf, 0.0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total == 0.0, 1.0, total)
    return weights


def _dropout_forward(rng: np.random.Generator) -> tuple[Any, ...]:
    shape = sizes(rng, 2, 4, 8)
    u = rng.random(shape)
    u.flat[:2] = 0.05, 0.95
    return rng.normal(size=shape), float(rng.choice([0.1, 0.2, 0.3])), u


@exercise(
    title="Dropout",
    statement="""
        Set each entry of x to zero with probability `rate`, and scale up the rest so that the expected value stays
        what it was. The random numbers are given: an entry is dropped where u < rate.

        x, y: of any shape; rate: a number from 0 to 1; u: uniform numbers from [0, 1), of the shape of x.
    """,
    outputs="y",
    inputs=_dropout_forward,
    hint="An entry survives with probability 1 - rate. By what must it be multiplied for the mean to stay x?",
    mistakes=(
        Mistake(
            "not-rescaled",
            "x * keep / (1.0 - rate)",
            "x * keep",
            "What is kept is not scaled up, so the expected value is (1 - rate) x.",
        ),
        Mistake(
            "rescaled-by-inverse",
            "x * keep / (1.0 - rate)",
            "x * keep * (1.0 - rate)",
            "What is kept is multiplied by 1 - rate; divide by it, so that the expected value stays x.",
        ),
        Mistake(
            "divided-by-rate",
            "x * keep / (1.0 - rate)",
            "x * keep / rate",
            "What is kept is divided by rate, the probability of being dropped; divide by 1 - rate.",
        ),
        Mistake(
            "keeps-the-dropped",
            "u >= rate",
            "u < rate",
            "It is the wrong way round: the entries with u < rate are dropped, not kept.",
        ),
        Mistake(
            "keep-rate-for-drop-rate",
            "u >= rate",
            "u < 1.0 - rate",
            "The share is right, but other entries are dropped: those with u < rate must go.",
        ),
        Mistake(
            "nothing-dropped",
            "x * keep / (1.0 - rate)",
            "x / (1.0 - rate)",
            "Everything is scaled up and nothing dropped.",
        ),
    ),
)
def dropout_forward(x: Array, rate: float, u: Array) -> Array:
    keep = u >= rate
    y = x * keep / (1.0 - rate)
    return y


def _dropout_backward(rng: np.random.Generator) -> tuple[Any, ...]:
    x, rate, u = _dropout_forward(rng)
    return rng.normal(size=x.shape), u >= rate, rate


@exercise(
    title="Dropout, backward",
    statement="""
        y = dropout(x): where `keep` is False the entry was set to zero, the others were divided by 1 - rate. Given dy,
        return dx.

        dy, dx: of any shape; keep: booleans of the same shape; rate: a number from 0 to 1.
    """,
    outputs="dx",
    inputs=_dropout_backward,
    hint="Dropout multiplies each entry by a fixed number. So does its backward.",
    mistakes=(
        Mistake(
            "mask-forgotten",
            "dy * keep / (1.0 - rate)",
            "dy * 1.0",
            "The gradient passes everywhere, also where x was dropped.",
        ),
        Mistake(
            "mask-forgotten-but-rescaled",
            "dy * keep / (1.0 - rate)",
            "dy / (1.0 - rate)",
            "The gradient is scaled up, but it passes also where x was dropped.",
        ),
        Mistake(
            "not-rescaled",
            "dy * keep / (1.0 - rate)",
            "dy * keep",
            "What was kept was divided by 1 - rate, so its gradient must be as well.",
        ),
        Mistake(
            "rescaled-by-inverse",
            "dy * keep / (1.0 - rate)",
            "dy * keep * (1.0 - rate)",
            "The gradient is multiplied by 1 - rate; the forward pass divided by it, and so does the backward.",
        ),
        Mistake(
            "divided-by-rate",
            "dy * keep / (1.0 - rate)",
            "dy * keep / rate",
            "The gradient is divided by rate, the probability of being dropped; divide by 1 - rate.",
        ),
        Mistake(
            "mask-inverted",
            "dy * keep",
            "dy * ~keep",
            "The gradient passes where x was dropped and stops where it was kept.",
        ),
    ),
)
def dropout_backward(dy: Array, keep: Array, rate: float) -> Array:
    dx = dy * keep / (1.0 - rate)
    return dx
