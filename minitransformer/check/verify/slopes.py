"""Slopes of f along a line through the point, each with a bound on what rounding may have done to it.

    (f(x + h d) - f(x - h d)) / 2h          errs by O(h²), and by the rounding of f divided by h

How f rounds is not known before it is measured: it may compute a part in float32, or subtract two large numbers. On a
fine grid of points the higher differences of a smooth function vanish, and what is left is its rounding: Hamming 1973;
Moré and Wild 2011, "Estimating computational noise".
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Probe = Callable[[np.ndarray], np.ndarray]  # a displacement of one array to the output of f

_GRID = 3e-8  # eleven points so far apart, relative to the array, lie in several cells of float32
_COARSER = (1e-6, 3e-5, 1e-3, 3e-2)
# Not at equal distances, or neighbours might all be rounded alike.
_POINTS = np.arange(11) + 0.8 * (0.618 * np.arange(11) % 1.0)
COARSE = 1e-12  # what rounds by more than this is not float64


class Slope(NamedTuple):
    """Central, right and left difference of one step, and a generous bound on their rounding error.

    between: the sums, over the outputs, of the smaller and of the larger of the two slopes. moved: the outputs that
    differ from those at the point. reach: the largest size of each term of L at the three points.
    """

    step: float
    central: float
    right: float
    left: float
    noise: float
    between: tuple[float, float]
    moved: np.ndarray
    reach: np.ndarray

    @property
    def bend(self) -> float:
        return self.right - self.left

    @property
    def gap(self) -> float:
        return abs(self.bend)

    @property
    def is_bent(self) -> bool:
        """Whether the two sides differ, by more than rounding: it moves their gap four times as far as their mean."""
        return self.gap > max(4.0 * self.noise, 1e-4 * (abs(self.right) + abs(self.left)))

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.central)


class Estimate(NamedTuple):
    """A slope, and how far the true one may be from it."""

    slope: float
    error: float


class Verdict(NamedTuple):
    """The numerical slope; ok: the slope by hand agrees; kink: this is a kink; hidden: rounding hides the answer.

    bend: by how much the slope grows from left to right, at a kink. error: how far the numerical slope may be wrong.
    is_sure: another difference would say the same.
    """

    numerical: float
    ok: bool
    kink: bool = False
    hidden: bool = False
    bend: float = 0.0
    error: float = 0.0
    is_sure: bool = False


class Around:
    """f around the point, as one array moves. eps: how f is known to round, relative to its output."""

    def __init__(self, probe: Probe, value: np.ndarray, output: np.ndarray, upstream: np.ndarray, eps: float) -> None:
        self.probe, self.value, self.output, self.upstream, self.eps = probe, value, output, upstream, eps
        self.weighted = upstream * output  # the terms of L
        self.size = float(np.linalg.norm(self.weighted))
        finite = value[np.isfinite(value)]
        self.typical = float(np.sqrt(np.mean(finite * finite))) if finite.any() else 1.0
        self.largest = 0.0  # entry of the gradient by hand
        self.rounding: np.ndarray | None = None  # of each term of L, once it is measured
        self.precision = eps  # the rounding of f relative to its output, as measured, or as known

    def at(self, displacement: np.ndarray) -> np.ndarray:
        """The output at the displaced point, which may lie outside the domain of f."""
        return self.probe(displacement)

    def slope(self, direction: np.ndarray, step: float) -> Slope:
        """The slope for one step."""
        return self.of(self.at(step * direction), self.at(-step * direction), step)

    def one_sided(self, direction: np.ndarray, step: float, side: float = 1.0) -> Slope:
        """The slope at the end of the domain of f, (-3 f(x) + 4 f(x + h d) - f(x + 2h d)) / 2h on the right side.

        So f(x - h d) is replaced by what it would be if the third difference were zero.
        """
        near, far = self.at(side * step * direction), self.at(2.0 * side * step * direction)
        beyond = far - 3.0 * near + 3.0 * self.output
        found = self.of(near, beyond, step) if side > 0.0 else self.of(beyond, near, step)
        return found._replace(noise=4.0 * found.noise)

    def of(self, ahead: np.ndarray, behind: np.ndarray, step: float) -> Slope:
        change = [ahead - behind, ahead - self.output, self.output - behind]
        central, right, left = (float(np.vdot(self.upstream, part)) / step for part in change)
        sides = [self.upstream * part for part in change[1:]]
        between = (float(np.minimum(*sides).sum()) / step, float(np.maximum(*sides).sum()) / step)
        moved = (ahead != self.output) | (behind != self.output)
        reach = abs(self.upstream) * np.maximum(abs(self.output), np.maximum(abs(ahead), abs(behind)))
        noise = self.noise(moved, reach) / step
        return Slope(step, 0.5 * central, right, left, noise, between, moved, reach)

    def noise(self, moved: np.ndarray, reach: np.ndarray) -> float:
        """By how much rounding may change the sum of the terms of L that move, of which the largest are in reach."""
        if not moved.any():
            moved = np.ones_like(moved)  # f does not move by so little, or rounding hides that it does
        size = float(np.linalg.norm(reach[moved]))
        if self.rounding is None:
            return 100.0 * self.eps * size
        measured = 6.0 * float(np.linalg.norm(self.rounding[moved])) + 4.0 * self.eps * size
        return measured if self.precision < COARSE else max(measured, 2.0 * self.precision * size)

    def seen_again(self, slopes: list[Slope]) -> list[Slope]:
        """Slopes along one direction, the longest step first, with the noise of all outputs that any of them moves."""
        moved = np.logical_or.reduce([slope.moved for slope in slopes])
        again = [slope._replace(noise=self.noise(moved, slope.reach) / slope.step) for slope in slopes]
        return sorted(again, key=lambda slope: -slope.step)

    def measure(self, rng: np.random.Generator) -> None:
        """Measure how f rounds here, once, on grids on which it moves from point to point.

        The median leaves out a kink, which is in few of the differences. What rounds much is measured on two grids. A
        part that rounds much may stand still on a fine grid while the rest of f moves, so there are three for the rest.
        """
        if self.rounding is not None:
            return
        signs = rng.choice([-1.0, 1.0], self.value.shape)
        sizes = np.where((self.value == 0.0) | ~np.isfinite(self.value), self.typical, abs(self.value))
        direction = sizes * signs * rng.uniform(0.5, 1.0, size=self.value.shape)
        self.rounding, measured = np.zeros(self.output.shape), 0
        weights = [_higher_differences(_POINTS, order) for order in (3, 4, 5)]
        for grid in (max(_GRID, 0.25 * self.eps), *_COARSER):
            table = np.stack([self.at(point * grid * direction) - self.output for point in _POINTS])
            table = self.upstream * np.where(np.isfinite(table), table, 0.0)
            jumps = abs(np.diff(table, axis=0))
            if jumps.reshape(len(jumps), -1).any(axis=1).mean() < 0.75:  # it rounds so much that it does not see all
                if self.eps < COARSE and jumps.max() < 1e-5 * self.size:  # larger ones are steps of f itself
                    self._add(0.5 * jumps.max(axis=0), table)
                continue
            found = [1.5 * np.median(abs(np.tensordot(each, table, 1)), axis=0) for each in weights]
            falls = (2.0 * found[2] < found[1]) & (2.0 * found[1] < found[0])  # as where f is curved, not rounded
            was_coarse, measured = self.precision > COARSE, measured + 1
            self._add(np.where(falls & (measured > 1), 0.0, np.min(found, axis=0)), table)
            if measured == 3 or (measured == 2 and was_coarse):
                return

    def _add(self, rounding: np.ndarray, table: np.ndarray) -> None:
        """Keep what a grid shows of the rounding. Its size is that of L on the grid: at the point it may be near 0."""
        terms = (self.weighted + table).reshape(len(table), -1)
        size = max(self.size, float(np.linalg.norm(terms, axis=1).max()))
        if size > 0.0:
            self.precision = max(self.precision, 3.0 * float(np.linalg.norm(rounding)) / size)
        self.rounding = np.maximum(rounding, 0.0 if self.rounding is None else self.rounding)

    @functools.cached_property
    def widened(self) -> Around | None:
        """The same in NumPy's longest floating-point type, if it is longer than float64 and f computes in it."""
        eps = float(np.finfo(np.longdouble).eps)
        if eps >= min(self.eps, float(np.finfo(np.float64).eps)):  # on some machines it is float64 itself
            return None
        try:
            output = self.at(np.zeros(self.value.shape, np.longdouble))
        except Exception:  # f takes float64 alone
            return None
        if output.dtype != np.longdouble:
            return None
        wide = Around(lambda moved: self.probe(moved.astype(np.longdouble)), self.value, output, self.upstream, eps)
        wide.largest = self.largest
        return wide


def _higher_differences(points: np.ndarray, order: int) -> np.ndarray:
    """Weights, a row for each run of neighbours, that a polynomial of lower degree makes zero; their squares sum to 1.

    Divided differences: w_j in proportion to 1 / prod_{m != j} (t_j - t_m).
    """
    rows = np.zeros((len(points) - order, len(points)))
    for i, row in enumerate(rows):
        run = points[i : i + order + 1]
        weights = 1.0 / (run[:, None] - run + np.eye(order + 1)).prod(axis=1)
        row[i : i + order + 1] = weights / np.linalg.norm(weights)
    return rows


def estimates(slopes: list[Slope]) -> Iterator[Estimate]:
    """The true slope, from differences for steps that get shorter.

    The difference for a shorter step errs by less than what it differs from the one before. The error is in proportion
    to the step or to its square, so three steps show the limit, too: Richardson 1911.
    """
    for long, short in itertools.pairwise(slopes):
        yield Estimate(short.central, abs(long.central - short.central) + short.noise)
    for order in (1, 2):
        limits = []
        for long, short in itertools.pairwise(slopes):
            ratio = (long.step / short.step) ** order
            limits.append((ratio * short.central - long.central) / (ratio - 1.0))
        for i, (one, other) in enumerate(itertools.pairwise(limits)):
            yield Estimate(other, abs(one - other) + 2.0 * slopes[i + 2].noise)


def constant(*slopes: Slope) -> bool:
    """Whether the gap between the two sides is the same for all steps, and not from rounding: so at kinks alone."""
    same = all(0.5 * long.gap < short.gap < 2.0 * long.gap for long, short in itertools.pairwise(slopes))
    return same and all(slope.is_bent for slope in slopes)


def scale_of(value: np.ndarray) -> Any:
    """How far to move each entry, relative to the step for a small one."""
    return np.maximum(1.0, abs(np.where(np.isfinite(value), value, 0.0)))
