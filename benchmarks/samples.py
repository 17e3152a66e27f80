"""Statistics of the measured times: the order of turns, medians with quartiles, ratios, exponents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


def rounds(programs: Sequence[str], repetitions: int) -> Iterator[list[str]]:
    """The order of turns for each repetition: A B, B A, A B, ... So no program always follows the same one."""
    for repetition in range(repetitions):
        yield list(programs) if repetition % 2 == 0 else list(programs)[::-1]


@dataclass(frozen=True)
class Spread:
    """The quartiles of some samples: half of them lie between low and high."""

    low: float
    median: float
    high: float
    count: int


def spread(samples: Sequence[float]) -> Spread:
    if not len(samples):
        raise ValueError("spread: there are no samples")
    low, median, high = np.quantile(np.asarray(samples, dtype=float), [0.25, 0.5, 0.75])
    return Spread(float(low), float(median), float(high), len(samples))


@dataclass(frozen=True)
class Ratio:
    """Our time for each second of theirs: the ratio of the medians, and the spread over the rounds."""

    of_medians: float
    of_rounds: Spread


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """ours[i] and theirs[i] were measured in the same round i, one right after the other."""
    if len(ours) != len(theirs):
        raise ValueError(f"ratio: each round needs one time of each, got {len(ours)} and {len(theirs)}")
    of_rounds = spread([a / b for a, b in zip(ours, theirs, strict=True)])
    return Ratio(spread(ours).median / spread(theirs).median, of_rounds)


@dataclass(frozen=True)
class Exponent:
    """time = constant · size^value, fitted by least squares of the logarithms; error: its standard error."""

    value: float
    error: float


def exponent(sizes: Sequence[float], times: Sequence[float]) -> Exponent:
    """The slope of log time over log size. With two points the standard error is nan."""
    if len(sizes) != len(times) or len(set(sizes)) < 2:
        raise ValueError("exponent: at least two different sizes are needed, and one time for each")
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(times, dtype=float))
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    residuals = y - y.mean() - slope * x
    freedom = len(sizes) - 2
    error = math.sqrt(float(residuals @ residuals) / freedom / float(x @ x)) if freedom else math.nan
    return Exponent(slope, error)


def gap(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, as a share of the largest number; infinite if shapes differ or a number is not finite."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return math.inf
    largest = float(np.abs(theirs).max())
    difference = float(np.abs(ours - theirs).max())
    return difference / largest if largest else (0.0 if difference == 0.0 else math.inf)
