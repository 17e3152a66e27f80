"""Central differences: the numerical side of a gradient check.

    dL/dx_i ≈ sum(upstream * (f(x + h e_i) - f(x - h e_i))) / 2h,        with an error of O(h²), plus O(ε/h) of rounding

With h = 1e-5 in float64 both errors are near 1e-10. If the gradient by hand agrees, and rounding could not hide a wrong
one, it is right. Otherwise the rounding of f is measured. Longer steps round less, and f curves less over shorter ones;
the best of them has an error that is known (slopes.py). Where that error is too large the gradient cannot be seen: it
is called neither right nor wrong. Before it is called wrong, kinks.py says whether f has no derivative here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import kinks
from .kinks import Kinks
from .pattern import located, pattern
from .report import HIDDEN, Entries, Row
from .slopes import COARSE, Around, Probe, Slope, Verdict, estimates

_MANY = 4096  # in a larger array that meets a kink, what is smooth is checked along directions, and of the rest ...
_SOME = 1024  # ... so many entries one by one
_ATOL = 1e-8  # the absolute tolerance, unless the caller gives one; gradients below 100 times that are small
_SEEN = 0.01  # a gradient is seen if its difference is right to so much of it
_NOTHING_BESIDE = 1e-9  # a gradient so much smaller than another may stay unseen, or be off by so little
_TINY = 1e-3  # the typical size of numbers in an array of which a step of the usual size may lead too far
_FARTHEST = 1.0  # the longest step, relative to a number
_SHORTER, _SHORTEST = 4, 12  # steps below the first, and so many if they round less and less


@dataclass
class Differences:
    """How one function is differentiated: at which output, with which upstream gradient, how finely.

    entries_at_kinks: where a direction meets a kink, look at single entries, each with at least two runs of f. largest:
    the largest entry of any gradient by hand.
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
    largest: float = 0.0
    at_kinks: list[Kinks] = dataclasses.field(default_factory=list)  # of the inputs and parameters, row by row
    precision: float = 0.0  # the coarsest rounding that was measured

    def __post_init__(self) -> None:
        self._seed = int(self.rng.integers(2**32))

    @property
    def weighted(self) -> np.ndarray:
        """The terms of L: upstream gradient times output."""
        return self.upstream * self.output

    def row(self, name: str, kind: str, value: np.ndarray, gradient: np.ndarray, probe: Probe) -> Row:
        """Compare the gradient by hand with differences: entry by entry or, for a large array, along directions."""
        row = Row(name, kind, value.shape)
        if not np.isfinite(gradient).all():
            index = tuple(np.argwhere(~np.isfinite(gradient))[0].tolist())
            return row.wrong("gradient is not finite", where=index)
        if value.size == 0:
            return dataclasses.replace(row, problem="not checked: the array is empty")
        around = self._around(value, gradient, probe)
        with np.errstate(all="ignore"):  # a step may lead to where f is not defined
            row = self._compared(row, gradient, around)
            self.precision = max(self.precision, around.precision)
            return self._with_pattern(row, gradient, probe)

    def _with_pattern(self, row: Row, gradient: np.ndarray, probe: Probe) -> Row:
        """The row; if it is wrong, with the pattern in which it is and, where it has no entry yet, its worst one."""
        if not row.is_wrong or 10 * row.kinks > gradient.size:  # at a kink a difference is only one of the slopes
            return row
        if row.full is None and row.where is not None:
            return row
        if row.full is not None:
            said = pattern(f"d{row.name}", row.full.by_hand, row.full.numerical, upstream=self.upstream)
            return dataclasses.replace(row, pattern=said)
        return located(row, gradient, self.upstream, self.step, probe) if self.entries_at_kinks else row

    def _compared(self, row: Row, hand: np.ndarray, around: Around) -> Row:
        if hand.size <= self.entrywise:
            return self._entry_by_entry(row, hand, around)
        found = self._along_directions(row, hand, around)
        if not (self.entries_at_kinks and (found.kinks or (found.is_wrong and kinks.has_none(self, around)))):
            return found
        entries = self._entry_by_entry(row, hand, around)
        return found if entries.ok and found.is_wrong and entries.full is None and not found.kinks else entries

    def _around(self, value: np.ndarray, gradient: np.ndarray, probe: Probe) -> Around:
        # Equal arrays are moved along equal directions, or one of them might be called right and the other wrong.
        self.rng = np.random.default_rng((self._seed, zlib.crc32(np.ascontiguousarray(value).tobytes())))
        around = Around(probe, value, self.output, self.upstream, self.eps)
        around.largest = float(abs(gradient).max())
        return around

    def _looked_at(self, row: Row, where: tuple[int, ...] | None, hand: float, found: Verdict) -> Row:
        """The row with what was found at one entry, or along one direction."""
        error = self.error(hand, found.numerical)
        return dataclasses.replace(row, where=where, hand=hand, numerical=found.numerical, error=error, ok=found.ok)

    def _along_directions(self, row: Row, hand: np.ndarray, around: Around) -> Row:
        row = dataclasses.replace(row, checked=f"{self.directions} direction" + "s" * (self.directions > 1))
        worst = dataclasses.replace(row, error=-1.0)
        hidden: list[Verdict] = []
        for _ in range(self.directions):
            direction = self.rng.normal(size=hand.shape)
            direction /= np.linalg.norm(direction)
            slope = float((hand * direction).sum())
            found = self.judge(around, slope, direction, self.step, several=True)
            hidden += [found] if found.hidden else []
            along = self._looked_at(row, None, slope, found)
            if found.kink:
                worst = dataclasses.replace(along, kinks=1)
                break  # a direction mixes the entries, so it cannot say which slopes are right at a kink
            worst = max(worst, along, key=lambda each: (not each.ok, each.error))
        return self._with_hidden(worst, hidden, len(hidden) == self.directions)

    def _entry_by_entry(self, row: Row, hand: np.ndarray, around: Around) -> Row:
        value = around.value
        indices = list(np.ndindex(hand.shape))
        checked = f"{hand.size} entries"
        if hand.size > _MANY:
            apart = kinks.smooth_apart(self, around, hand)
            some = self.rng.choice(apart, min(_SOME, apart.size), replace=False)
            indices = [indices[i] for i in some]
            checked = f"{len(indices)} of {hand.size} entries"
        row = dataclasses.replace(row, checked=checked)
        worst = dataclasses.replace(row, error=-1.0)
        everywhere, bends = np.zeros(hand.shape), np.zeros(hand.shape)
        at_kink, hidden = 0, []
        outside: list[Row] = []  # entries at kinks, with a slope that is not between the two of their own
        wrong: list[Row] = []
        for index in indices:
            unit = np.zeros(hand.shape)
            unit[index] = 1.0
            size = abs(value[index])
            step = self.step * max(1.0, float(size)) if np.isfinite(size) else self.step
            slope = float(hand[index])
            found = self.judge(around, slope, unit, step)
            everywhere[index], bends[index] = found.numerical, found.bend
            at_kink += found.kink
            hidden += [found] if found.hidden else []
            entry = self._looked_at(row, index, slope, found)
            if not found.ok:
                (outside if found.kink else wrong).append(entry)
            elif entry.error > worst.error:
                worst = entry
        if wrong and kinks.pieces_meet(self, around):
            at_kink, bends = at_kink + len(wrong), np.where(bends == 0.0, 1.0, bends)
            outside, wrong = outside + wrong, []
        met = Kinks(row.kind, row.name, value, hand, bends)
        outside.sort(key=lambda row: -row.error)
        if wrong:
            worst = max([*wrong, *outside], key=lambda row: row.error)
        else:
            worst = next((row for row in outside if not kinks.is_possible(self, around, row, met).ok), worst)
        full = Entries(value, hand, everywhere) if len(indices) == hand.size else None
        worst = dataclasses.replace(worst, kinks=at_kink, full=full)
        if worst.ok and (full or bends.any()):
            worst = kinks.with_several(self, around, worst, met)
        if bends.any() and row.kind != "intermediate":
            self.at_kinks.append(met)
        matters = max((each.error for each in hidden), default=0.0) > _SEEN * around.largest
        return self._with_hidden(worst, hidden, matters)

    def _with_hidden(self, row: Row, hidden: list[Verdict], unseen: bool) -> Row:
        """The row with the number of entries or directions that rounding hides, and whether these leave it open.

        What can only be nothing beside the other gradients, as behind a softmax that is nearly one-hot, is not checked.
        """
        row = dataclasses.replace(row, hidden=len(hidden))
        if not (row.ok and unseen):
            return row
        possible = max(abs(each.numerical) + each.error for each in hidden)
        if self.atol is None and possible <= _NOTHING_BESIDE * self.largest:
            return dataclasses.replace(row, problem="not checked: too small beside the other gradients")
        return dataclasses.replace(row, ok=False, problem=HIDDEN)

    def together(self, probe: Callable[[list[np.ndarray]], np.ndarray]) -> list[Row]:
        """A row for all arrays at kinks, which are moved together; none if there are fewer than two.

        An example is max(x, z) where x = z. probe: the displacements of the arrays in at_kinks to the output of f.
        """
        if len(self.at_kinks) < 2:
            return []
        ends = np.cumsum([part.hand.size for part in self.at_kinks])[:-1]
        value, hand, bends = (
            np.concatenate([part.ravel() for part in parts])
            for parts in zip(*((x.value, x.hand, x.bends) for x in self.at_kinks), strict=True)
        )
        met = Kinks("input", " and ".join(x.name for x in self.at_kinks), value, hand, bends)

        def displaced(displacement: np.ndarray) -> np.ndarray:
            parts = np.split(displacement, ends)
            return probe([part.reshape(x.hand.shape) for part, x in zip(parts, self.at_kinks, strict=True)])

        row = Row(met.name, "input", hand.shape, kinks=int((bends != 0.0).sum()))
        with np.errstate(all="ignore"):
            return [kinks.with_several(self, self._around(value, hand, displaced), row, met)]

    def judge(self, around: Around, hand: float, direction: np.ndarray, step: float, several: bool = False) -> Verdict:
        """Whether `hand` is the slope along `direction`. Where all numbers are tiny, so may be the steps.

        several: the direction moves many entries, and those at a kink are not known. Then each output may have any
        slope between its own two.
        """
        found = self._judged(around, hand, direction, step, several)
        if not found.ok and around.typical < _TINY:
            near = self._judged(around, hand, direction, around.typical * step, several)
            found = near if near.ok and not near.hidden else found
        return found

    def _judged(self, around: Around, hand: float, direction: np.ndarray, step: float, several: bool) -> Verdict:
        look, first = _within_domain(around, direction, step)
        if not first.is_finite:
            return Verdict(math.nan, False)
        if hand == 0.0 and self._is_still(look, first, around):
            return Verdict(0.0, True)
        if self._is_right(hand, first, around) and (not first.is_bent or _is_curved(look, first)):
            return Verdict(first.central, True)
        around.measure(self.rng)
        (first,) = around.seen_again([first])
        if self._is_right(hand, first, around) and not first.is_bent:
            return Verdict(first.central, True)
        found = self._best(around, look, hand, first)
        if found.hidden and around.widened:
            return self._judged(around.widened, hand, direction, step, several)
        if (found.ok and not first.is_bent) or found.kink:
            return found
        met = kinks.at_kink(self, around, look, hand, first, several)
        return found if met is None or (met.hidden and found.is_sure) else met

    def _is_still(self, look: Callable[[float], Slope], first: Slope, around: Around) -> bool:
        """Whether f does not depend on the array along a direction: no output moves, over longer steps either."""
        if first.moved.any() or look(1e3 * first.step).moved.any():
            return False
        enough = around.eps < COARSE and first.noise <= (_ATOL if self.atol is None else self.atol)
        return enough or not look(1e8 * first.step / self.step).moved.any()

    def _is_right(self, hand: float, first: Slope, around: Around) -> bool:
        """Whether `hand` agrees with one look, and rounding could not hide that it is wrong."""
        if not self.agrees(hand, first.central, around) or (
            hand != first.central and self._is_small(hand, first.central)
        ):
            return False
        return first.noise <= self._visible(hand, first.central, around)

    def _best(self, around: Around, look: Callable[[float], Slope], hand: float, first: Slope) -> Verdict:
        """The verdict of steps of several sizes: longer ones where rounding is the limit, then shorter ones."""
        ratio = 10.0 if around.precision < COARSE else 4.0 if around.precision < 1e-4 else 2.0
        slopes, found = [first], Verdict(first.central, False)
        far = look(1e3 * first.step)
        if far.is_finite:  # rounding may hide at first that an output moves
            (first,) = around.seen_again([first._replace(moved=first.moved | far.moved)])
            slopes = [first]
        unsure = first.noise > min(self._visible(hand, first.central, around), self._tolerance(hand, around))
        if unsure or abs(hand - first.central) <= first.noise:
            step = first.step
            while step < _FARTHEST * first.step / self.step:
                step *= ratio
                slope = look(step)
                if not slope.is_finite:
                    break
                slopes = around.seen_again([*slopes, slope])
                found = self._weighed(hand, slopes, around)
                bent = abs(slopes[0].central - slopes[1].central) > slopes[0].noise + slopes[1].noise
                if found.is_sure or bent:
                    break  # over longer steps f is another function
        step = first.step
        for i in range(_SHORTEST):
            quiet = slopes[-1].noise <= 0.1 * max(abs(hand), abs(slopes[-1].central))
            quieter = len(slopes) > 1 and slopes[-1].noise < 0.5 * slopes[-2].noise
            if found.is_sure or not (quieter or (quiet and i < _SHORTER)):
                break  # at last the next difference would be rounding alone
            step /= ratio
            slopes = around.seen_again([*slopes, look(step)])
            found = self._weighed(hand, slopes, around)
            short = slopes[-1]
            if found.is_sure and first.is_bent and short.gap < first.gap * step / first.step / 3.0:
                return found._replace(kink=True)  # it is beside the point
        return self._weighed(hand, slopes, around, at_last=True) if len(slopes) > 1 else found

    def _weighed(self, hand: float, slopes: list[Slope], around: Around, at_last: bool = False) -> Verdict:
        """The verdict of the best estimate: right, wrong, or hidden if its error could hide that it is wrong."""
        best = min(estimates(slopes), key=lambda each: each.error)
        distance = abs(hand - best.slope)
        eps = max(around.eps, around.precision)
        sizes = [float(abs(x).max(initial=0.0)) for x in (self.upstream, around.weighted)]
        fine = eps < COARSE
        nothing = (100.0 if fine else 10.0) * eps * max(min(sizes), around.largest, self.largest if fine else 0.0)
        if self.atol is None and (fine or at_last) and abs(hand) <= nothing:  # as the gradient of a key's bias
            known = max(abs(slope.central) - slope.noise for slope in slopes)
            zero = abs(best.slope) <= best.error + (nothing if fine else 0.0)
            if zero and best.error <= max((1e3 if fine else 1.0) * nothing, _SEEN * known):
                return Verdict(best.slope, True, is_sure=True)
        tolerance = self._tolerance(best.slope, around)
        if self._is_small(hand, best.slope) and around.precision < COARSE:
            tolerance = max(_SEEN * abs(best.slope), _NOTHING_BESIDE * around.largest)
        if distance <= tolerance + best.error:
            hidden = best.error > self._visible(hand, best.slope, around)
            return Verdict(
                best.slope, True, hidden=hidden, error=best.error, is_sure=distance <= tolerance and not hidden
            )
        close = distance <= best.error + max(nothing, 10.0 * eps * max(sizes[1], self.largest))
        return Verdict(best.slope, close, hidden=close, error=distance)

    def agrees(self, hand: float, numerical: float, around: Around) -> bool:
        """Whether they are equal within the tolerance."""
        return abs(hand - numerical) <= self._tolerance(numerical, around)

    def _is_small(self, hand: float, numerical: float) -> bool:
        return self.atol is None and max(abs(hand), abs(numerical)) < 100.0 * _ATOL

    def _tolerance(self, numerical: float, around: Around) -> float:
        if around.precision > COARSE:
            rtol = max(self.rtol, min(1e3 * around.precision, 0.1))
            return (self.atol or 0.0) + rtol * abs(numerical) + 30.0 * around.precision * around.largest
        return (_ATOL if self.atol is None else self.atol) + self.rtol * abs(numerical)

    def _visible(self, hand: float, numerical: float, around: Around) -> float:
        """The largest error of a difference that cannot hide a wrong gradient."""
        seen = max(_SEEN, self.rtol) * max(abs(hand), abs(numerical))
        if around.precision > COARSE and self.atol is None:
            return max(seen, 1e3 * around.precision * around.largest)
        if self._is_small(hand, numerical):
            return seen
        return max(seen, _ATOL if self.atol is None else self.atol)

    def error(self, hand: float, numerical: float) -> float:
        """|hand - numerical| / (1 + |numerical|)."""
        error = abs(hand - numerical) / (1.0 + abs(numerical))
        return error if math.isfinite(error) else math.inf


def _is_curved(look: Callable[[float], Slope], first: Slope) -> bool:
    """Whether f is curved: the gap of the sides grows like the step. One from a kink, a jump or rounding does not."""
    far = look(10.0 * first.step)
    return far.is_finite and abs(far.bend - 10.0 * first.bend) < abs(first.bend)


def _within_domain(around: Around, direction: np.ndarray, step: float) -> tuple[Callable[[float], Slope], Slope]:
    """How to get slopes along this direction, and the first of them: of a shorter step if f is not defined so far away.

    At the end of a domain only one side is left.
    """
    look = functools.partial(around.slope, direction)
    for shorter in (1.0, 1e-2, 1e-4, 1e-6, 1e-8):
        if (first := look(shorter * step)).is_finite:
            return look, first
    for side in (1.0, -1.0):
        look = functools.partial(around.one_sided, direction, side=side)
        first, shorter_one = look(step), look(0.01 * step)
        if first.is_finite and abs(shorter_one.central) < 5.0 * abs(first.central):  # as √x at 0 has no slope
            return look, first
    return look, first._replace(central=math.nan)
