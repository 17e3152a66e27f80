"""Where f has no derivative: which gradients are possible there.

At a kink the gap between the slopes to the right and to the left stays as the step shrinks. On a smooth function it
shrinks in proportion to the step; at a jump it grows, and so does rounding.

Where f has a derivative, a gradient is right if each entry is. At a kink that is not enough: of max(x1, x2) at x1 = x2
each entry may be anything from 0 to 1, but their sum must be 1. So the gradient g is then compared along directions d
that move several entries at once. Clarke (1975) gives the rule: <g, d> must lie between the smallest and the largest
slope along d that f has at the point or nearby. If f is convex or concave, the two one-sided slopes at the point are
these.

Code that gives each of several kinks a slope by itself may leave these bounds: at x = 0 a layer relu(x W) V gets
gradient 0, though nowhere near 0 all of its units are off. Half a circle around the point crosses each kink once. There
the slope along d rises by P and falls by M in all, from s at its start. If the kinks do not depend on each other, every
half circle gives the same bounds s - M and s + P, and any slope between them is possible.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from .report import Row
from .slopes import Around, Slope, Verdict, constant, scale_of

_NEARBY = 96  # random points beside a kink
_HALF_CIRCLES = 3
_OPPOSITE = 24  # pairs of places, more than circles, since a few may agree by chance
_ON_EACH = (33, 257, 1025)  # points: a few first, because most slopes are far inside; kinks met at once hide each other
_BLOCKS = 256  # directions, each of some entries, that look for what is smooth in an array with kinks


class Judge(Protocol):
    """What compares a slope by hand with f's differences, and how finely: Differences is one."""

    rng: np.random.Generator
    step: float
    directions: int

    def agrees(self, hand: float, numerical: float, around: Around) -> bool:
        """Whether the two slopes are equal, within the tolerance."""

    def judge(self, around: Around, hand: float, direction: np.ndarray, step: float) -> Verdict:
        """Whether `hand` is the slope along the direction."""

    def error(self, hand: float, numerical: float) -> float:
        """How far the two are apart, in a measure that a table can show."""


class Kinks(NamedTuple):
    """An array in which some entries are at a kink, its gradient by hand, and the bend of each entry, or 0."""

    kind: str
    name: str
    value: np.ndarray
    hand: np.ndarray
    bends: np.ndarray


def at_kink(
    how: Judge, around: Around, look: Callable[[float], Slope], hand: float, first: Slope, several: bool
) -> Verdict | None:
    """Whether `hand` is between the slopes to the right and to the left; None if this is no kink.

    If rounding hides whether it is a kink, and `hand` may be between them, the verdict is hidden.
    """
    if not first.is_bent:
        return None
    slopes = around.seen_again([first, *(look(first.step / shrink) for shrink in (10.0, 100.0))])
    short = slopes[-1]
    lowest, highest = short.between if several else sorted((short.left, short.right))
    nearest = min(max(hand, lowest), highest)
    if constant(*slopes):
        return Verdict(nearest, how.agrees(hand, nearest, around), True, bend=short.bend, error=short.noise)
    if (
        slopes[1].gap + 4.0 * slopes[1].noise < 0.5 * first.gap
        or slopes[1].gap > 2.0 * first.gap + 4.0 * slopes[1].noise
    ):
        return None  # the gap shrinks or grows, by more than rounding
    if short.is_bent and short.gap < first.gap:  # some of the kinks are beside the point: nearer to it are fewer
        return at_kink(how, around, look, hand, short, several)
    lowest, highest = first.between if several else sorted((first.left, first.right))
    unclear = lowest - first.noise <= hand <= highest + first.noise
    return Verdict(first.central, True, hidden=True, error=first.gap) if unclear else None


def jumps(how: Judge, around: Around, direction: np.ndarray) -> bool:
    """Whether the gap between the two sides grows as the step shrinks."""
    long, short = around.seen_again([around.slope(direction, step) for step in (how.step, 0.01 * how.step)])
    return not short.is_finite or (short.is_bent and short.gap > 10.0 * long.gap)


def has_none(how: Judge, around: Around) -> bool:
    """Whether f may have no slope along a direction that moves all entries, although it has one for each entry.

    So where pieces meet, and at 0/0, which becomes x1/x2.
    """
    everywhere = scale_of(around.value) * how.rng.normal(size=around.value.shape)
    return pieces_meet(how, around) or jumps(how, around, everywhere)


def pieces_meet(how: Judge, around: Around) -> bool:
    """Whether f has other slopes beside the point, however near, along a direction that has only one at it.

    An example is the median of three equal numbers, which does not change if one of them does.
    """
    direction, *places = scale_of(around.value) * how.rng.normal(size=(5, *around.value.shape))

    def apart(near: float) -> float:
        ways = [[around.at(near * (x + way * direction)) for way in (0.1, -0.1)] for x in (0.0, *places)]
        found = around.seen_again([around.of(ahead, behind, 0.1 * near) for ahead, behind in ways])
        slopes = [slope.central for slope in found]
        return max(slopes) - min(slopes) - max(0.01 * max(map(abs, slopes)), 2.0 * found[0].noise)

    least = apart(1e-3 * how.step)  # not above 0 where f is smooth, so that two thirds of the work is rare
    return least > 0.0 and least > 0.5 * apart(0.1 * how.step) and not jumps(how, around, direction)


def is_possible(how: Judge, around: Around, row: Row, kinks: Kinks) -> Verdict:
    """Whether the slope of an entry is one that f has near the point, where other entries are at kinks as well."""
    if int((kinks.bends != 0.0).sum()) < 2:
        return Verdict(row.numerical, False, True)
    unit = np.zeros(kinks.hand.shape)
    unit[row.where] = 1.0
    return _possible(how, around, row.hand, unit, kinks)


def with_several(how: Judge, around: Around, row: Row, kinks: Kinks) -> Row:
    """The row, wrong if the gradient is wrong along a direction that moves several entries at once."""
    at_kinks = kinks.bends != 0.0
    directions = [abs(how.rng.normal(size=at_kinks.shape))] if at_kinks.size > 1 else []
    if at_kinks.sum() > 1:
        directions += [1.0 * at_kinks, kinks.hand * at_kinks]
        directions += [how.rng.normal(size=at_kinks.shape) * at_kinks for _ in range(how.directions)]
    for direction in directions:
        moved = scale_of(kinks.value) * direction / (np.linalg.norm(direction) or 1.0)
        slope = float((kinks.hand * moved).sum())
        found = how.judge(around, slope, moved, how.step)
        if not found.ok and jumps(how, around, moved):
            continue  # as 0/0 does when it becomes x1/x2: there is no slope along this direction
        if not found.ok and at_kinks.any():
            found = _possible(how, around, slope, moved, kinks)
        if not row.checked:
            row = dataclasses.replace(row, checked=f"{len(directions)} directions")
        if not found.ok:
            problem = "each entry is possible, but not all together: the slope along a direction that moves several"
            error = how.error(slope, found.numerical)
            return dataclasses.replace(
                row, where=None, hand=slope, numerical=found.numerical, error=error, ok=False, problem=problem
            )
    return row


def smooth_apart(how: Judge, around: Around, hand: np.ndarray) -> np.ndarray:
    """The flat indices of the entries that must be looked at one by one: those at kinks, and those that are wrong.

    Entries are moved in blocks, and a block that is smooth and right is done. Equal numbers are neighbours in them,
    because kinks are where numbers are equal, or zero.
    """
    flat = around.value.ravel()
    blocks = np.array_split(np.argsort(flat, kind="stable"), 8)
    left: list[np.ndarray] = []
    for _ in range(_BLOCKS):
        if not blocks:
            break
        block = blocks.pop(0)
        direction: np.ndarray = np.zeros(hand.size)
        direction[block] = how.rng.normal(size=block.size)
        direction = (direction / np.linalg.norm(direction)).reshape(hand.shape)
        found = how.judge(around, float((hand * direction).sum()), direction, how.step)
        if found.ok and not found.kink and not found.hidden:
            continue
        if block.size <= 4 or flat[block[0]] == flat[block[-1]]:
            left.append(block)
        else:
            blocks += np.array_split(block, 2)
    return np.concatenate([*left, *blocks, np.array([], dtype=int)])


def _possible(how: Judge, around: Around, hand: float, direction: np.ndarray, kinks: Kinks) -> Verdict:
    found = _nearby(how, around, hand, direction, kinks)
    return found if found.ok else _one_by_one(how, around, hand, direction, kinks) or found


def _nearby(how: Judge, around: Around, hand: float, direction: np.ndarray, kinks: Kinks) -> Verdict:
    """Whether `hand` is between the slopes along `direction` that f has near the point.

    A function that is bent up along some entries and down along others may have its smallest and largest slope
    elsewhere than at the point: for |x1| - |x2| at 0 along (1, 1) they are those beside it, at (-h, h) and (h, -h).
    """
    aside = direction * np.sign(kinks.bends)
    near, step = 0.1 * how.step, 0.01 * how.step
    lowest, highest = math.inf, -math.inf
    for place in [0.0 * aside, aside, -aside, *(_beside(how, kinks) for _ in range(_NEARBY))]:
        behind, middle, ahead = (around.at(near * place + way * step * direction) for way in (-1.0, 0.0, 1.0))
        slopes = [float(np.vdot(around.upstream, part)) / step for part in (middle - behind, ahead - middle)]
        lowest, highest = min(lowest, *slopes), max(highest, *slopes)
        nearest = min(max(hand, lowest), highest)
        if how.agrees(hand, nearest, around) or abs(hand - nearest) <= around.of(ahead, behind, step).noise:
            return Verdict(nearest, True, True)
    return Verdict(nearest, False, True)


def _one_by_one(how: Judge, around: Around, hand: float, direction: np.ndarray, kinks: Kinks) -> Verdict | None:
    """Whether `hand` is possible if each kink takes a slope by itself; None if the kinks depend on each other."""
    aside = direction * np.sign(kinks.bends)
    aside = aside / (np.linalg.norm(aside) or 1.0)
    starts = [aside if aside.any() else _beside(how, kinks), *(_beside(how, kinks) for _ in range(_HALF_CIRCLES - 1))]
    tops = [_beside(how, kinks) for _ in starts]
    for points in _ON_EACH:
        bounds = np.array([_bounds(how, around, direction, *ends, points) for ends in zip(starts, tops, strict=True)])
        lowest, highest = bounds.mean(axis=0)
        if np.ptp(bounds, axis=0).max() > 0.25 * (highest - lowest):
            continue
        if np.ptp(_of_opposites(how, around, direction, kinks)) > 0.25 * (highest - lowest):
            return None
        nearest = min(max(hand, lowest), highest)
        if lowest <= hand <= highest or how.agrees(hand, nearest, around):
            return Verdict(nearest, True, True)
    return None


def _bounds(
    how: Judge, around: Around, direction: np.ndarray, start: np.ndarray, top: np.ndarray, points: int
) -> tuple[float, float]:
    """s - M and s + P, summed over the outputs, on the half circle from -start over top to start."""
    angles = np.linspace(0.0, math.pi, points)
    along = (_slopes(how, around, direction, math.sin(angle) * top - math.cos(angle) * start) for angle in angles)
    before, _ = next(along)
    lowest = highest = float(before.sum())
    for slopes, noise in along:
        change = np.where(abs(slopes - before) > noise, slopes - before, 0.0)
        lowest += float(np.minimum(change, 0.0).sum())
        highest += float(np.maximum(change, 0.0).sum())
        before = slopes
    return lowest, highest


def _of_opposites(how: Judge, around: Around, direction: np.ndarray, kinks: Kinks) -> list[float]:
    """s + (s + P - M) at random places and opposite them, the same for all if the kinks do not depend on each other."""
    places = [_beside(how, kinks) for _ in range(_OPPOSITE)]
    return [sum(float(_slopes(how, around, direction, way * x)[0].sum()) for way in (1.0, -1.0)) for x in places]


def _slopes(how: Judge, around: Around, direction: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, float]:
    """The slope of each term of L near the point, and the noise of their sum."""
    step = 0.001 * how.step
    ahead, behind = (around.at(0.1 * how.step * place + way * step * direction) for way in (1.0, -1.0))
    return around.upstream * (ahead - behind) / (2.0 * step), around.of(ahead, behind, step).noise


def _beside(how: Judge, kinks: Kinks) -> np.ndarray:
    """A random direction that moves each entry at a kink by about 1, however many these are.

    If they shared a length of 1, many would stay so near to their kinks that a step crosses several at once.
    """
    place: np.ndarray = how.rng.normal(size=kinks.hand.shape) * scale_of(kinks.value) * (kinks.bends != 0.0)
    return place
