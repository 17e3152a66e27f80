"""Central differences: the numerical side of a gradient check.

    dL/dx_i ≈ sum(upstream * (f(x + h e_i) - f(x - h e_i))) / 2h,        wrong by O(h²) and by O(ε/h) of rounding

With h = 1e-5 in float64 both parts are near 1e-10. Where hand and difference disagree, smaller steps and the slopes to
the right and to the left tell a wrong gradient from a kink.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .report import Entries, Row

Probe = Callable[[np.ndarray], np.ndarray]  # a displacement of one array to the output of f

_MANY = 4096  # of a larger array that meets a kink only _SOME entries are looked at one by one
_SOME = 1024


@dataclass
class Differences:
    """How one function is differentiated: at which output, against which upstream gradient, how finely."""

    output: np.ndarray
    upstream: np.ndarray
    rng: np.random.Generator
    atol: float
    rtol: float
    step: float
    entrywise: int
    directions: int

    def row(self, name: str, kind: str, value: np.ndarray, gradient: np.ndarray, probe: Probe) -> Row:
        """Hold the gradient by hand against differences, entry by entry or, of a large array, along directions."""
        if not np.isfinite(gradient).all():
            index = _first(~np.isfinite(gradient))
            return Row(name, kind, value.shape, where=index, error=math.inf, ok=False, problem="gradient is not finite")
        if value.size > self.entrywise:
            row = self._along_directions(name, kind, gradient, probe)
            if not row.kinks:
                return row
            entries = self._entry_by_entry(name, kind, value, gradient, probe)
            return row if entries.ok and not row.ok and entries.full is None else entries
        return self._entry_by_entry(name, kind, value, gradient, probe)

    def _along_directions(self, name: str, kind: str, hand: np.ndarray, probe: Probe) -> Row:
        checked = f"{self.directions} direction" + "s" * (self.directions > 1)
        worst = Row(name, kind, hand.shape, checked, error=-1.0)
        for _ in range(self.directions):
            direction = self.rng.normal(size=hand.shape)
            direction /= np.linalg.norm(direction)
            slope = float((hand * direction).sum())
            numerical, ok, kink = self._difference(slope, direction, self.step, probe)
            error = _error(slope, numerical)
            if kink or (not ok, error) > (not worst.ok, worst.error):
                worst = Row(name, kind, hand.shape, checked, None, slope, numerical, error, ok, int(kink))
            if kink:
                break  # a direction mixes the entries, so it cannot say which slopes are right at a kink
        return worst

    def _entry_by_entry(self, name: str, kind: str, value: np.ndarray, hand: np.ndarray, probe: Probe) -> Row:
        indices = list(np.ndindex(hand.shape))
        if hand.size > _MANY:
            indices = [indices[i] for i in self.rng.choice(hand.size, _SOME, replace=False)]
        checked = f"{len(indices)} of {hand.size} entries" if len(indices) < hand.size else f"{hand.size} entries"
        worst = Row(name, kind, hand.shape, checked, error=-1.0)
        everywhere = np.zeros(hand.shape)
        kinks = 0
        for index in indices:
            unit = np.zeros(hand.shape)
            unit[index] = 1.0
            size = abs(value[index])
            step = self.step * max(1.0, float(size)) if np.isfinite(size) else self.step
            slope = float(hand[index])
            numerical, ok, kink = self._difference(slope, unit, step, probe)
            everywhere[index] = numerical
            kinks += kink
            error = _error(slope, numerical)
            if (not ok, error) > (not worst.ok, worst.error):
                worst = Row(name, kind, hand.shape, checked, index, slope, numerical, error, ok)
        full = Entries(value, hand, everywhere) if len(indices) == hand.size else None
        return dataclasses.replace(worst, kinks=kinks, full=full)

    def _difference(self, hand: float, direction: np.ndarray, step: float, probe: Probe) -> tuple[float, bool, bool]:
        """The numerical slope along `direction`, whether `hand` agrees with it, and whether kinks may be in the way.

        Where the central difference disagrees, shorter steps decide. On a smooth function the slopes to the right and
        to the left close up in proportion to the step, and the difference only becomes more exact. At a kink their gap
        stays as it is, and any slope between the two is right. At a kink beside the point the gap is gone once the step
        is too short to reach it. At a jump the gap grows: nothing is right there.
        """
        gaps: list[float] = []
        longest = 0.0
        for shrink in (1.0, 10.0, 100.0):
            h = step / shrink
            ahead, behind = probe(h * direction), probe(-h * direction)
            numerical = self._slope(ahead - behind, 2.0 * h)
            right, left = self._slope(ahead - self.output, h), self._slope(self.output - behind, h)
            gaps.append(abs(right - left))
            if shrink == 1.0:
                longest = numerical
            if self._agrees(hand, numerical):
                beside = gaps[-1] < gaps[0] / (3.0 * shrink) and gaps[0] > self._noise(h)
                return numerical, True, beside
        if 0.5 * gaps[0] < gaps[-1] < 2.0 * gaps[0] and gaps[-1] > self._noise(h):
            nearest = min(max(hand, min(left, right)), max(left, right))
            return nearest, self._agrees(hand, nearest), True
        in_proportion = 0.5 * gaps[0] < 10.0 * gaps[1] < 2.0 * gaps[0]
        return longest, False, not in_proportion and gaps[0] > self._noise(step)

    def _noise(self, h: float) -> float:
        """A gap that rounding alone might leave at step h, generously."""
        return 1000.0 * float(np.finfo(np.float64).eps) * (1.0 + float(abs(self.upstream * self.output).sum())) / h

    def _slope(self, change: np.ndarray, distance: float) -> float:
        return float((self.upstream * change).sum() / distance)

    def _agrees(self, hand: float, numerical: float) -> bool:
        return abs(hand - numerical) <= self.atol + self.rtol * abs(numerical)


def _error(hand: float, numerical: float) -> float:
    error = abs(hand - numerical) / (1.0 + abs(numerical))
    return error if math.isfinite(error) else math.inf


def _first(found: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(found)[0])
