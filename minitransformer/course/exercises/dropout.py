"""Dropout, forward and backward."""

from __future__ import annotations

from typing import Any

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _dropout_forward(draw: Draw) -> tuple[Any, ...]:
    shape = draw.sizes(3 if draw.extreme else 2, 4, 8)
    rate = 0.0 if draw.ones else draw.integer(7, 22) / 64.0  # float32 holds it exactly, so that u < rate is the same
    u = draw.rng.random(shape)
    u.flat[:3] = (rate, 0.05, 0.95)[: u.size]
    return draw.gradient(*shape), rate, u


@exercise(
    title="Dropout",
    statement="""
        Set each entry of x to zero with probability `rate`, and scale up the rest so that the expected value stays
        what it was. The random numbers are given: an entry is dropped where u < rate.

        x, y: of any shape; rate: a number from 0 to below 1; u: uniform numbers from [0, 1), of the shape of x.
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
        Mistake(
            "drops-one-too-many",
            "u >= rate",
            "u > rate",
            "An entry with u equal to the rate is dropped as well; only u < rate is dropped.",
        ),
    ),
)
def dropout_forward(x: Array, rate: float, u: Array) -> Array:
    keep = u >= rate
    y = x * keep / (1.0 - rate)
    return y


def _dropout_backward(draw: Draw) -> tuple[Any, ...]:
    x, rate, u = _dropout_forward(draw)
    return draw.gradient(*x.shape), u >= rate, rate


@exercise(
    title="Dropout, backward",
    statement="""
        y = dropout(x): where `keep` is False the entry was set to zero, the others were divided by 1 - rate. Given dy,
        return dx.

        dy, dx: of any shape; keep: booleans of the same shape; rate: a number from 0 to below 1.
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
