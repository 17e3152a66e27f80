"""Central differences: the numerical side of a gradient check.

    dL/dx_i ≈ sum(upstream * (f(x + h e_i) - f(x - h e_i))) / 2h,        with an error of O(h²), plus O(ε/h) of rounding

With h = 1e-5 in float64 both errors are near 1e-10. If hand and difference disagree, shorter steps and the slopes to
the right and to the left distinguish a wrong gradient from a kink, and the limit of the differences is compared, too.
If the gradient is small compared with f, longer steps reduce the rounding; entries that it still hides are counted.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .report import Entries, Row

Probe = Callable[[np.ndarray], np.ndarray]  # a displacement of one array to the output of f

_MANY = 4096  # in a larger array that meets a kink, only _SOME entries are checked one by one
_SOME = 1024
_ATOL = 1e-8  # the absolute tolerance, unless the caller gives one; gradients below 100 times that are small
_EPS = float(np.finfo(np.float64).eps)


class _Slope(NamedTuple):
    """Central, right and left difference of one step, and a generous bound on their rounding error."""

    step: float
    central: float
    right: float
    left: float
    noise: float

    @property
    def gap(self) -> float:
        return abs(self.right - self.left)


class _Verdict(NamedTuple):
    """The numerical slope; ok: the slope by hand agrees; kink: this is a kink; hidden: rounding hides the answer."""

    numerical: float
    ok: bool
    kink: bool = False
    hidden: bool = False


@dataclass
class Differences:
    """How one function is differentiated: at which output, with which upstream gradient, how finely.

    entries_at_kinks: where a direction meets a kink, look at single entries, which takes up to a thousand runs of f.
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

    @property
    def weighted(self) -> np.ndarray:
        """The terms of L: upstream gradient times output."""
        return self.upstream * self.output

    def row(self, name: str, kind: str, value: np.ndarray, gradient: np.ndarray, probe: Probe) -> Row:
        """Compare the gradient by hand with differences: entry by entry or, for a large array, along directions."""
        if not np.isfinite(gradient).all():
            index = tuple(np.argwhere(~np.isfinite(gradient))[0].tolist())
            return Row(name, kind, value.shape, where=index, error=math.inf, ok=False, problem="gradient is not finite")
        if value.size > self.entrywise:
            row = self._along_directions(name, kind, gradient, probe)
            if not (row.kinks and self.entries_at_kinks):
                return row
            entries = self._entry_by_entry(name, kind, value, gradient, probe)
            return row if entries.ok and not row.ok and entries.full is None else entries
        return self._entry_by_entry(name, kind, value, gradient, probe)

    def _along_directions(self, name: str, kind: str, hand: np.ndarray, probe: Probe) -> Row:
        checked = f"{self.directions} direction" + "s" * (self.directions > 1)
        worst = Row(name, kind, hand.shape, checked, error=-1.0)
        hidden = 0
        for _ in range(self.directions):
            direction = self.rng.normal(size=hand.shape)
            direction /= np.linalg.norm(direction)
            slope = float((hand * direction).sum())
            found = self._difference(slope, direction, self.step, probe)
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
        everywhere = np.zeros(hand.shape)
        kinks = hidden = 0
        for index in indices:
            unit = np.zeros(hand.shape)
            unit[index] = 1.0
            size = abs(value[index])
            step = self.step * max(1.0, float(size)) if np.isfinite(size) else self.step
            slope = float(hand[index])
            found = self._difference(slope, unit, step, probe)
            everywhere[index] = found.numerical
            kinks += found.kink
            hidden += found.hidden
            error = _error(slope, found.numerical)
            if (not found.ok, error) > (not worst.ok, worst.error):
                worst = Row(name, kind, hand.shape, checked, index, slope, found.numerical, error, found.ok)
        full = Entries(value, hand, everywhere) if len(indices) == hand.size else None
        return _with_hidden(dataclasses.replace(worst, kinks=kinks, full=full), hidden, len(indices))

    def _difference(self, hand: float, direction: np.ndarray, step: float, probe: Probe) -> _Verdict:
        """Whether `hand` is the slope along `direction`.

        If the central difference disagrees, other steps decide. If rounding alone may explain it, longer steps are
        tried first, because they round less. Then shorter steps are tried. On a smooth function the gap between the
        slopes to the right and to the left shrinks in proportion to the step, and the difference becomes more exact,
        so its limit can be extrapolated. At a kink the gap stays, and any slope between the two is right. If the kink
        is only near the point, the gap vanishes once the step is too short to reach it. At a jump the gap grows, and no
        slope is right.
        """
        ahead, behind = probe(step * direction), probe(-step * direction)
        central = float((self.upstream * (ahead - behind)).sum() / (2.0 * step))
        small = self.atol is None and hand != central and max(abs(hand), abs(central)) < 100.0 * _ATOL
        if self._agrees(hand, central) and not small:
            return _Verdict(central, True)
        first = self._slope(ahead, behind, step)
        if self._agrees(hand, central):
            return self._judge_small(hand, first, direction, probe)
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
        if 0.5 * first.gap < short.gap < 2.0 * first.gap and short.gap > short.noise:
            nearest = min(max(hand, min(short.left, short.right)), max(short.left, short.right))
            return _Verdict(nearest, self._agrees(hand, nearest), True)
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
        rounding = 10.0 * _EPS * float(np.linalg.norm(self.weighted.ravel()))
        for one, other in itertools.pairwise([*longer, first]):
            if abs(one.central) > one.noise + rounding / one.step and _near(one.central, other.central):
                return _Verdict(other.central, _near(one.central, hand) or _near(other.central, hand))
        return _Verdict(first.central, True, hidden=abs(hand) > rounding)

    def _probed(self, direction: np.ndarray, step: float, probe: Probe) -> _Slope:
        return self._slope(probe(step * direction), probe(-step * direction), step)

    def _slope(self, ahead: np.ndarray, behind: np.ndarray, step: float) -> _Slope:
        size = float(np.linalg.norm((self.weighted * (ahead != behind)).ravel()))  # of the terms that change
        change = [ahead - behind, ahead - self.output, self.output - behind]
        central, right, left = (float(np.vdot(self.upstream, part)) / step for part in change)
        return _Slope(step, 0.5 * central, right, left, 100.0 * _EPS * size / step)

    def _agrees(self, hand: float, numerical: float) -> bool:
        return abs(hand - numerical) <= (_ATOL if self.atol is None else self.atol) + self.rtol * abs(numerical)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 0.01 * abs(one)


def _with_hidden(row: Row, hidden: int, of: int) -> Row:
    """The row with the number of entries or directions that rounding hides; if it hides all, nothing was checked."""
    problem = "not checked: this gradient is too small beside rounding" if row.ok and hidden == of else row.problem
    return dataclasses.replace(row, hidden=hidden, problem=problem)


def _error(hand: float, numerical: float) -> float:
    error = abs(hand - numerical) / (1.0 + abs(numerical))
    return error if math.isfinite(error) else math.inf
