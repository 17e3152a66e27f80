"""Central differences: the numerical side of a gradient check.

    dL/dx_i ≈ sum(upstream * (f(x + h e_i) - f(x - h e_i))) / 2h,        with an error of O(h²), plus O(ε/h) of rounding

With h = 1e-5 in float64 both errors are near 1e-10. If the gradient by hand and the difference disagree, shorter steps
and the slopes to the right and to the left distinguish a wrong gradient from a kink, and the limit is compared, too.
If the gradient is small compared with f, longer steps reduce the rounding; entries still hidden by it are counted.

Where f has a derivative, a gradient is right if each entry is. At a kink that is not enough: of max(x1, x2) at x1 = x2
each entry may be anything from 0 to 1, but their sum must be 1. So the gradient g is then compared along directions d
that move several entries at once. Clarke (1975) gives the rule: <g, d> must lie between the smallest and the largest
slope along d that f has at the point or nearby. If f is convex or concave, the two one-sided slopes at the point are
these.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .pattern import located, pattern
from .report import Entries, Row

Probe = Callable[[np.ndarray], np.ndarray]  # a displacement of one array to the output of f

_MANY = 4096  # in a larger array that meets a kink, only _SOME entries are checked one by one
_SOME = 1024
_ATOL = 1e-8  # the absolute tolerance, unless the caller gives one; gradients below 100 times that are small
_NEARBY = 96  # random points beside a kink


class _Slope(NamedTuple):
    """Central, right and left difference of one step, and a generous bound on their rounding error."""

    step: float
    central: float
    right: float
    left: float
    noise: float
    between: tuple[float, float]  # the sums, over the outputs, of the smaller and of the larger of the two slopes

    @property
    def bend(self) -> float:
        return self.right - self.left

    @property
    def gap(self) -> float:
        return abs(self.bend)


class _Verdict(NamedTuple):
    """The numerical slope; ok: the slope by hand agrees; kink: this is a kink; hidden: rounding hides the answer.

    bend: by how much the slope grows from left to right, at a kink.
    """

    numerical: float
    ok: bool
    kink: bool = False
    hidden: bool = False
    bend: float = 0.0


class _Kinks(NamedTuple):
    """An array in which some entries are at a kink, its gradient by hand, and the bend of each entry, or 0."""

    kind: str
    name: str
    value: np.ndarray
    hand: np.ndarray
    bends: np.ndarray


@dataclass
class Differences:
    """How one function is differentiated: at which output, with which upstream gradient, how finely.

    entries_at_kinks: where a direction meets a kink, look at single entries, each with at least two runs of f.
    """

    output: np.ndarray
    upstream: np.ndarray
    rng: np.random.Generator
    atol: float | None
    rtol: float
    step: float
    entrywise: int
    directions: int
    entries_at_kinks: bool = True
    eps: float = float(np.finfo(np.float64).eps)  # how f rounds
    at_kinks: list[_Kinks] = dataclasses.field(default_factory=list)  # of the inputs and parameters, row by row

    @property
    def weighted(self) -> np.ndarray:
        """The terms of L: upstream gradient times output."""
        return self.upstream * self.output

    def row(self, name: str, kind: str, value: np.ndarray, gradient: np.ndarray, probe: Probe) -> Row:
        """Compare the gradient by hand with differences: entry by entry or, for a large array, along directions."""
        if not np.isfinite(gradient).all():
            index = tuple(np.argwhere(~np.isfinite(gradient))[0].tolist())
            return Row(name, kind, value.shape, where=index, error=math.inf, ok=False, problem="gradient is not finite")
        if value.size == 0:
            return Row(name, kind, value.shape, problem="not checked: the array is empty")
        if value.size > self.entrywise:
            row = self._along_directions(name, kind, gradient, probe)
            if not (self.entries_at_kinks and (row.kinks or (not row.ok and self._pieces_meet(value, probe)))):
                return self._with_pattern(row, gradient, probe)
            entries = self._entry_by_entry(name, kind, value, gradient, probe)
            row = row if entries.ok and not row.ok and entries.full is None else entries
            return self._with_pattern(row, gradient, probe)
        return self._with_pattern(self._entry_by_entry(name, kind, value, gradient, probe), gradient, probe)

    def _with_pattern(self, row: Row, gradient: np.ndarray, probe: Probe) -> Row:
        """The row; if it is wrong, with the pattern in which it is and, where it has no entry yet, its worst one."""
        if row.ok or 10 * row.kinks > gradient.size:  # at a kink a central difference is only one of the slopes
            return row
        if row.full is not None:
            said = pattern(f"d{row.name}", row.full.by_hand, row.full.numerical)
            return dataclasses.replace(row, pattern=said)
        return located(row, gradient, self.upstream, self.step, probe) if self.entries_at_kinks else row

    def _along_directions(self, name: str, kind: str, hand: np.ndarray, probe: Probe) -> Row:
        checked = f"{self.directions} direction" + "s" * (self.directions > 1)
        worst = Row(name, kind, hand.shape, checked, error=-1.0)
        hidden = 0
        for _ in range(self.directions):
            direction = self.rng.normal(size=hand.shape)
            direction /= np.linalg.norm(direction)
            slope = float((hand * direction).sum())
            found = self._difference(slope, direction, self.step, probe, several=True)
            error = _error(slope, found.numerical)
            hidden += found.hidden
            if found.kink or (not found.ok, error) > (not worst.ok, worst.error):
                kinks = int(found.kink)
                worst = Row(name, kind, hand.shape, checked, None, slope, found.numerical, error, found.ok, kinks)
            if found.kink:
                break  # a direction mixes the entries, so it cannot say which slopes are right at a kink
        return _with_hidden(worst, hidden, self.directions)

    def _entry_by_entry(self, name: str, kind: str, value: np.ndarray, hand: np.ndarray, probe: Probe) -> Row:
        indices = list(np.ndindex(hand.shape))
        if hand.size > _MANY:
            indices = [indices[i] for i in self.rng.choice(hand.size, _SOME, replace=False)]
        checked = f"{len(indices)} of {hand.size} entries" if len(indices) < hand.size else f"{hand.size} entries"
        worst = Row(name, kind, hand.shape, checked, error=-1.0)
        everywhere, bends = np.zeros(hand.shape), np.zeros(hand.shape)
        kinks = hidden = 0
        outside: list[Row] = []  # entries at kinks, with a slope that is not between the two of their own
        wrong: list[Row] = []
        for index in indices:
            unit = np.zeros(hand.shape)
            unit[index] = 1.0
            size = abs(value[index])
            step = self.step * max(1.0, float(size)) if np.isfinite(size) else self.step
            slope = float(hand[index])
            found = self._difference(slope, unit, step, probe)
            everywhere[index], bends[index] = found.numerical, found.bend
            kinks += found.kink
            hidden += found.hidden
            error = _error(slope, found.numerical)
            row = Row(name, kind, hand.shape, checked, index, slope, found.numerical, error, found.ok)
            if not found.ok:
                (outside if found.kink else wrong).append(row)
            elif error > worst.error:
                worst = row
        if wrong and self._pieces_meet(value, probe):
            kinks, bends = kinks + len(wrong), np.where(bends == 0.0, 1.0, bends)
            outside, wrong = outside + wrong, []
        at_kinks = _Kinks(kind, name, value, hand, bends)
        outside.sort(key=lambda row: -row.error)
        if wrong:
            worst = max([*wrong, *outside], key=lambda row: row.error)
        else:
            worst = next((row for row in outside if not self._is_possible(row, at_kinks, probe)), worst)
        full = Entries(value, hand, everywhere) if len(indices) == hand.size else None
        worst = dataclasses.replace(worst, kinks=kinks, full=full)
        if worst.ok and (full or bends.any()):
            worst = self._with_several(worst, at_kinks, probe)
        if bends.any() and kind != "intermediate":
            self.at_kinks.append(at_kinks)
        return _with_hidden(worst, hidden, len(indices))

    def together(self, probe: Callable[[list[np.ndarray]], np.ndarray]) -> list[Row]:
        """A row for all arrays at kinks, which are moved together; none if there are fewer than two.

        An example is max(x, z) where x = z. probe: the displacements of the arrays in at_kinks to the output of f.
        """
        if len(self.at_kinks) < 2:
            return []
        ends = np.cumsum([kinks.hand.size for kinks in self.at_kinks])[:-1]
        value, hand, bends = (
            np.concatenate([part.ravel() for part in parts])
            for parts in zip(*((x.value, x.hand, x.bends) for x in self.at_kinks), strict=True)
        )
        all_kinks = _Kinks("input", " and ".join(x.name for x in self.at_kinks), value, hand, bends)

        def displaced(displacement: np.ndarray) -> np.ndarray:
            parts = np.split(displacement, ends)
            return probe([part.reshape(x.hand.shape) for part, x in zip(parts, self.at_kinks, strict=True)])

        row = Row(all_kinks.name, "input", hand.shape, kinks=int((bends != 0.0).sum()))
        return [self._with_several(row, all_kinks, displaced)]

    def _with_several(self, row: Row, kinks: _Kinks, probe: Probe) -> Row:
        """The row, wrong if the gradient is wrong along a direction that moves several entries at once."""
        at_kink = kinks.bends != 0.0
        scale = _scale(kinks.value)
        directions = [abs(self.rng.normal(size=at_kink.shape))] if at_kink.size > 1 else []
        if at_kink.sum() > 1:
            directions += [1.0 * at_kink, kinks.hand * at_kink]
            directions += [self.rng.normal(size=at_kink.shape) * at_kink for _ in range(self.directions)]
        for direction in directions:
            moved = scale * direction / (np.linalg.norm(direction) or 1.0)
            slope = float((kinks.hand * moved).sum())
            found = self._difference(slope, moved, self.step, probe)
            if not found.ok and self._jumps(moved, probe):
                continue  # as 0/0 does when it becomes x1/x2: there is no slope along this direction
            if not found.ok and at_kink.any():
                found = self._nearby(slope, moved, scale, kinks, probe)
            error = _error(slope, found.numerical)
            if not row.checked:
                row = dataclasses.replace(row, checked=f"{len(directions)} directions")
            if not found.ok:
                problem = "each entry is possible, but not all together: the slope along a direction that moves several"
                return dataclasses.replace(
                    row, where=None, hand=slope, numerical=found.numerical, error=error, ok=False, problem=problem
                )
        return row

    def _is_possible(self, row: Row, kinks: _Kinks, probe: Probe) -> bool:
        """Whether the slope of an entry is one that f has near the point, where other entries are at kinks as well."""
        unit = np.zeros(kinks.hand.shape)
        unit[row.where] = 1.0
        several = int((kinks.bends != 0.0).sum()) > 1
        return several and self._nearby(row.hand, unit, _scale(kinks.value), kinks, probe).ok

    def _pieces_meet(self, value: np.ndarray, probe: Probe) -> bool:
        """Whether f has other slopes beside the point, however near, along a direction that has only one at it.

        An example is the median of three equal numbers, which does not change if one of them does.
        """
        direction, *places = _scale(value) * self.rng.normal(size=(5, *value.shape))

        def apart(near: float) -> float:
            ways = [[probe(near * (x + way * direction)) for way in (0.1, -0.1)] for x in (0.0, *places)]
            found = [self._slope(ahead, behind, 0.1 * near) for ahead, behind in ways]
            slopes = [slope.central for slope in found]
            return max(slopes) - min(slopes) - max(0.01 * max(map(abs, slopes)), found[0].noise)

        least = apart(1e-3 * self.step)  # not above 0 where f is smooth, so that two thirds of the work is rare
        return least > 0.0 and least > 0.5 * apart(0.1 * self.step) and not self._jumps(direction, probe)

    def _nearby(self, hand: float, direction: np.ndarray, scale: np.ndarray, kinks: _Kinks, probe: Probe) -> _Verdict:
        """Whether `hand` is between the slopes along `direction` that f has near the point.

        A function that is bent up along some entries and down along others may have its smallest and largest slope
        elsewhere than at the point: for |x1| - |x2| at 0 along (1, 1) they are those beside it, at (-h, h) and (h, -h).
        """
        aside = direction * np.sign(kinks.bends)
        random = [self.rng.normal(size=scale.shape) * scale * (kinks.bends != 0.0) for _ in range(_NEARBY)]
        near, step = 0.1 * self.step, 0.01 * self.step
        lowest, highest = math.inf, -math.inf
        for place in [0.0 * aside, aside, -aside, *(x / np.linalg.norm(x) for x in random)]:
            behind, middle, ahead = (probe(near * place + way * step * direction) for way in (-1.0, 0.0, 1.0))
            slopes = [float(np.vdot(self.upstream, part)) / step for part in (middle - behind, ahead - middle)]
            lowest, highest = min(lowest, *slopes), max(highest, *slopes)
            nearest = min(max(hand, lowest), highest)
            noise = self._slope(ahead, behind, step).noise
            if self._agrees(hand, nearest) or abs(hand - nearest) <= noise:
                return _Verdict(nearest, True, True)
        return _Verdict(nearest, False, True)

    def _difference(
        self, hand: float, direction: np.ndarray, step: float, probe: Probe, several: bool = False
    ) -> _Verdict:
        """Whether `hand` is the slope along `direction`.

        If the central difference disagrees, other steps decide. If rounding alone may explain it, longer steps are
        tried first, because they round less. Then shorter steps are tried. On a smooth function the gap between the
        slopes to the right and to the left shrinks in proportion to the step, and the difference becomes more exact,
        so its limit can be extrapolated. At a kink the gap stays, and any slope between the two is right. If the kink
        is only near the point, the gap vanishes once the step is too short to reach it. At a jump the gap grows, and no
        slope is right.

        several: the direction moves many entries, and those at a kink are not known. Then each output may have any
        slope between its own two.
        """
        ahead, behind = probe(step * direction), probe(-step * direction)
        central = float((self.upstream * (ahead - behind)).sum() / (2.0 * step))
        small = self.atol is None and hand != central and max(abs(hand), abs(central)) < 100.0 * _ATOL
        first = self._slope(ahead, behind, step)
        if self._agrees(hand, central):
            if first.gap > max(1e-4 * (abs(first.right) + abs(first.left)), first.noise):
                short = self._probed(direction, step / 100.0, probe)
                if _constant(first, short):
                    return _Verdict(central, abs(hand - central) < 0.51 * short.gap, True, bend=short.bend)
            return self._judge_small(hand, first, direction, probe) if small else _Verdict(central, True)
        slopes = [first]
        if abs(hand - first.central) <= first.noise:
            with np.errstate(all="ignore"):
                longer = [self._probed(direction, factor * step, probe) for factor in (10.0, 100.0, 1000.0)]
            for slope in longer:
                if self._agrees(hand, slope.central):
                    return _Verdict(slope.central, True)
            if all(abs(hand - slope.central) <= slope.noise for slope in longer):
                return _Verdict(longer[-1].central, True, hidden=True)
        for shrink in (10.0, 100.0, 1e3, 1e4):
            if shrink > 100.0 and slopes[-1].noise > 0.1 * self.rtol * abs(hand):
                break  # the next difference would be rounding alone
            last = self._probed(direction, step / shrink, probe)
            slopes.append(last)
            if self._agrees(hand, last.central):
                beside = last.gap < first.gap / (3.0 * shrink) and first.gap > last.noise
                return _Verdict(last.central, True, beside)
        short = slopes[2]
        if _constant(first, short):
            lowest, highest = short.between if several else sorted((short.left, short.right))
            nearest = min(max(hand, lowest), highest)
            return _Verdict(nearest, self._agrees(hand, nearest), True, bend=short.bend)
        for order in (10.0, 100.0):  # extrapolate: remove an error proportional to the step, or to its square
            limits = [(order * b.central - a.central) / (order - 1.0) for a, b in itertools.pairwise(slopes)]
            if all(self._agrees(hand, limit) for limit in limits[-2:]):
                return _Verdict(limits[-1], True)
        in_proportion = 0.5 * first.gap < 10.0 * slopes[1].gap < 2.0 * first.gap
        return _Verdict(first.central, False, not in_proportion and first.gap > first.noise)

    def _judge_small(self, hand: float, first: _Slope, direction: np.ndarray, probe: Probe) -> _Verdict:
        """Whether a gradient, so small that the absolute tolerance could hide an error, is right to one percent.

        Two differences are trusted if they agree and one step is ten times the other. If there are no such two, a
        gradient no larger than the rounding of f counts as zero, and any other as hidden.
        """
        with np.errstate(all="ignore"):
            longer = [self._probed(direction, factor * first.step, probe) for factor in (1000.0, 100.0, 10.0)]
        rounding = 10.0 * self.eps * float(np.linalg.norm(self.weighted.ravel()))
        for one, other in itertools.pairwise([*longer, first]):
            if abs(one.central) > one.noise + rounding / one.step and _near(one.central, other.central):
                return _Verdict(other.central, _near(one.central, hand) or _near(other.central, hand))
        return _Verdict(first.central, True, hidden=abs(hand) > rounding)

    def _probed(self, direction: np.ndarray, step: float, probe: Probe) -> _Slope:
        return self._slope(probe(step * direction), probe(-step * direction), step)

    def _jumps(self, direction: np.ndarray, probe: Probe) -> bool:
        long, short = (self._probed(direction, step, probe) for step in (self.step, 0.01 * self.step))
        return short.gap > max(10.0 * long.gap, short.noise)

    def _slope(self, ahead: np.ndarray, behind: np.ndarray, step: float) -> _Slope:
        size = float(np.linalg.norm((self.weighted * (ahead != behind)).ravel()))  # of the terms that change
        change = [ahead - behind, ahead - self.output, self.output - behind]
        central, right, left = (float(np.vdot(self.upstream, part)) / step for part in change)
        sides = [self.upstream * part for part in change[1:]]
        between = (float(np.minimum(*sides).sum()) / step, float(np.maximum(*sides).sum()) / step)
        return _Slope(step, 0.5 * central, right, left, 100.0 * self.eps * size / step, between)

    def _agrees(self, hand: float, numerical: float) -> bool:
        return abs(hand - numerical) <= (_ATOL if self.atol is None else self.atol) + self.rtol * abs(numerical)


def _scale(value: np.ndarray) -> np.ndarray:
    """How far to move each entry, relative to the step for a small one."""
    return np.maximum(1.0, abs(np.where(np.isfinite(value), value, 0.0)))


def _constant(long: _Slope, short: _Slope) -> bool:
    """Whether the gap between the two sides is the same for a long and a short step: so at a kink, and nowhere else."""
    return 0.5 * long.gap < short.gap < 2.0 * long.gap and short.gap > short.noise


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 0.01 * abs(one)


def _with_hidden(row: Row, hidden: int, of: int) -> Row:
    """The row with the number of entries or directions that rounding hides; if it hides all, nothing was checked."""
    problem = "not checked: this gradient is too small beside rounding" if row.ok and hidden == of else row.problem
    return dataclasses.replace(row, hidden=hidden, problem=problem)


def _error(hand: float, numerical: float) -> float:
    error = abs(hand - numerical) / (1.0 + abs(numerical))
    return error if math.isfinite(error) else math.inf
