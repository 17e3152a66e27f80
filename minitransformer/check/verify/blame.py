"""What is to blame for a wrong gradient, and what would make it right.

Our own ops keep the rule that `dscores` is the gradient of `scores`. In others' code this is a guess. Many call `di`
the gradient of what goes into the activation that returns `i`; `dscores` may be bound again after a scaling; `dP` may
belong to all tiles, and `P` to one. So the guess is tested. Let v be a value with the gradient g by hand, and g* in
truth. When an input x moves along w, v moves along some u. If backward computes dx from g, an error of g makes dx wrong
by just as much:

    <dx - dx*, w> = <g - g*, u>

All of it is known: dx and g by hand, u from two runs of forward, <dx*, w> and <g*, u> from central differences. If the
two sides agree for random directions w, the error of dx comes through g, and v is blamed. The steps of a loop may also
explain an error together: then the right side is a sum over all of them. If v explains no wrong gradient of an input or
parameter, its g belongs to something else, or there is a second mistake between g and dx. Then v is not blamed.

What would make it right is said in words: a factor, a term, a product, a path that was forgotten. The right gradient is
known by its differences, and so is all that forward and backward bind to names. So small expressions of these are
tried: `dx * y`, `dx + a * b`, `dh @ w.T`. Then forgotten paths: a backward that leaves one out has the right gradient
of another function, of the one in which a value on that path stays as it is while the input moves. So each value that
forward binds is held in turn.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, device_of, to_device
from ..trace.calls import Pair, values_of
from ..trace.recorder import Recorder
from ..trace.tracing import Replacement
from ..trace.values import host_copy, is_array
from .foreign import is_separate
from .report import Row
from .slopes import COARSE, Probe

_DIRECTIONS = 2  # a value must explain the error along each
_ARRAYS = 8  # at most so many wrong gradients are explained
_CLOSE = 0.02  # how near the two sides must be, relative to the error


def blamed(check: Any, rows: list[Row]) -> list[Row]:
    """The rows, in which no intermediate is called wrong that may be innocent. check: the `_Check` that made them.

    Nor is one called wrong for the shape of its gradient, or if the gradients of all inputs and parameters are right.
    Those to blame come first among the intermediates, in the order in which backward computes their gradients.
    """
    if not is_separate(check.f):
        return rows
    if all(row.ok for row in rows if row.kind != "intermediate"):
        why_not = "its d... or grad_... seems to belong to something else: all inputs' gradients are right"
        to_blame: dict[str, Row] = {}
    else:
        why_not = "its d... or grad_... may belong to something else: it explains no wrong gradient of an input"
        to_blame = _to_blame(check, rows)

    def judged(row: Row) -> Row:
        if not row.is_wrong or row.kind != "intermediate":
            return row
        why = why_not if row.checked else row.problem
        return dataclasses.replace(row, ok=True, error=0.0, problem=f"not checked: {why}")

    rows = [judged(row) for row in rows if row.name not in to_blame]
    start = next((i for i, row in enumerate(rows) if row.kind == "intermediate"), len(rows))
    return [*rows[:start], *to_blame.values(), *rows[start:]]


def _to_blame(check: Any, rows: list[Row]) -> dict[str, Row]:
    """The rows of the values that explain a wrong gradient, in the order of their gradients in backward."""
    wrong = {row.name: row for row in rows if row.kind == "intermediate" and row.is_wrong and row.checked}
    pairs = {pair.title: pair for pair in check.pairs if pair.title in wrong}
    to_explain = [row.name for row in rows if pairs and row.is_wrong and row.name in check.probes][:_ARRAYS]
    errors = [[_Error(check, pairs, *check.probes[name]) for _ in range(_DIRECTIONS)] for name in to_explain]
    errors = [along for along in errors if not any(error.hidden for error in along)]
    found: dict[str, Row] = {}
    for title, pair in sorted(pairs.items(), key=lambda item: item[1].order):
        loop = [other for other in pairs.values() if (other.call, other.name) == (pair.call, pair.name)]
        if any(_explain(values, along) for along in errors for values in ([pair], loop)):
            found[title] = wrong[title]
            continue
        earlier = [dataclasses.replace(pair, gradient=gradient) for gradient in pair.earlier]
        other = next((each for each in earlier if any(_explain([each], along) for along in errors)), None)
        if other is not None:
            found[title] = check._intermediate_row(other)
    return found


class _Error:
    """The error of one gradient along a random direction, and that of each value's gradient along the way it moves."""

    def __init__(self, check: Any, pairs: dict[str, Pair], gradient: np.ndarray, probe: Probe) -> None:
        self._check, self._step = check, check.differences.step
        direction = check.rng.normal(size=gradient.shape)
        direction *= self._step / (np.linalg.norm(direction) or 1.0)
        ahead, behind = (self._watched(probe, way * direction, pairs) for way in (1.0, -1.0))
        with np.errstate(invalid="ignore"):  # a score that is -inf stays there
            moves = {title: 0.5 * (x - behind[1][title]) for title, x in ahead[1].items() if title in behind[1]}
        self._moves = {title: np.where(np.isfinite(move), move, 0.0) for title, move in moves.items()}
        self._changes: dict[str, float] = {}
        by_hand, numerical = float(np.vdot(gradient, direction)), self._change(ahead[0], behind[0])
        self.size = by_hand - numerical
        differences = check.differences
        self._noise = 1e-8 * self._step if differences.atol is None else differences.atol * self._step
        self._noise += differences.rtol * max(abs(by_hand), abs(numerical))
        self._noise += (
            10.0 * max(differences.eps, differences.precision) * float(np.linalg.norm(differences.weighted.ravel()))
        )

    @property
    def hidden(self) -> bool:
        """Whether rounding may explain it."""
        return abs(self.size) <= 10.0 * self._noise

    def is_that_of(self, values: list[Pair]) -> bool:
        """Whether the errors of these values' gradients add up to it."""
        return abs(self.size - sum(map(self._of, values))) <= _CLOSE * abs(self.size) + self._noise

    def _of(self, pair: Pair) -> float:
        """<g - g*, u>; 0 for a value that does not move."""
        move = self._moves.get(pair.title)
        size = 0.0 if move is None else float(np.linalg.norm(move))
        if move is None or pair.gradient is None or size == 0.0:
            return 0.0
        if pair.title not in self._changes:
            probe, step = self._check._intermediate_probe(pair), move * (self._step / size)
            self._changes[pair.title] = self._change(probe(step), probe(-step)) * size / self._step
        return float(np.vdot(pair.gradient, move)) - self._changes[pair.title]

    def _change(self, ahead: np.ndarray, behind: np.ndarray) -> float:
        return 0.5 * float(np.vdot(self._check.differences.upstream, ahead - behind))

    def _watched(self, probe: Probe, displacement: np.ndarray, pairs: dict[str, Pair]) -> Any:
        """The output where an array is displaced, and the values of the pairs there."""
        with Recorder(self._check.f, only={pair.name for pair in pairs.values()}) as recorder:
            y = probe(displacement)
        found: dict[str, np.ndarray] = {}
        for title, pair in pairs.items():
            groups = recorder.calls[pair.call].bound.get(pair.name, []) if pair.call < len(recorder.calls) else []
            arrays = [group[0].value.array for group in groups if group[0].value.is_float_array]
            array = arrays[pair.occurrence] if pair.occurrence < len(arrays) else None
            if array is not None and array.shape == pair.value.shape:
                found[title] = array
        return y, found


def _explain(values: list[Pair], errors: list[_Error]) -> bool:
    return all(error.is_that_of(values) for error in errors)


_VALUES = 32  # at most so many are tried
_ROWS = 3  # for so many wrong gradients
_EQUAL = 1e-5
_PRODUCTS = 500  # at most so many of two values are multiplied by a third
_FACTORS = (1.0, 2.0, 0.5, 3.0, 4.0, 0.25)
Named = tuple[str, np.ndarray]


def with_remedies(check: Any, rows: list[Row]) -> list[Row]:
    """The rows, in which the pattern of a wrong one ends with what would make it right, if that is known."""
    wrong = [row for row in rows if row.is_wrong and not row.problem and row.kind != "intermediate"][:_ROWS]
    if not wrong or check.differences.eps > COARSE:
        return rows
    values = _known(check)
    said = {row.name: _expressed(row, values) or _factor(check, row) for row in wrong}
    for row in wrong:
        if not said[row.name] and row.name in check.probes:
            said[row.name] = _forgotten(check, row.name, *check.probes[row.name])
    return [
        dataclasses.replace(row, pattern=" ".join(filter(None, [row.pattern, said[row.name]]))) if row in wrong else row
        for row in rows
    ]


def _known(check: Any) -> list[Named]:
    """The arrays that have a name, with equal ones once."""
    bound = [
        (name, group[-1].value.array)
        for call in check.recording.calls
        for name, groups in call.bound.items()
        for group in groups
    ]
    found: dict[bytes, Named] = {}
    for name, x in [*bound, *_given(check), ("the output", check.differences.output)]:
        if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.ndim and np.isfinite(x).all() and np.ptp(x) > 0.0:
            found.setdefault(repr(x.shape).encode() + x.tobytes(), (name, x.astype(np.float64)))
    return list(found.values())[:_VALUES]


def _given(check: Any) -> list[Named]:
    """The arrays among the arguments, and the parameters, on the host."""
    arrays = [*check.leaves, *((key, parameter.value) for key, parameter in check.owned)]
    return [(name, host_copy(x)) for name, x in arrays if is_array(x)]


def _expressed(row: Row, values: list[Named]) -> str:
    """The expression of known values that is the right gradient, if it has been checked entry by entry."""
    if row.full is None or row.full.by_hand.size < 3 or " times the right one" in row.pattern:
        return ""
    hand, right = row.full.by_hand, row.full.numerical
    size = max(float(abs(right).max()), float(abs(hand).max()))
    if (off := float(abs(hand - right).max()) / size) < 10.0 * _EQUAL:
        why = "an ε that only forward adds or a rounded constant"
        return f"d{row.name} is off by {off:.0e} of its largest entry, as by {why}."
    with np.errstate(all="ignore"):
        tried = _tried(f"d{row.name}", hand, [(told, x) for told, x in values if told != f"d{row.name}"])
        told = next(filter(None, (_if_equal(told, x, right, _EQUAL * size) for told, x in tried)), "")
    return f"d{row.name} should be {told}." if told else ""


def _tried(name: str, hand: np.ndarray, values: list[Named]) -> Iterator[Named]:
    """Expressions, the simplest first."""
    alike = [(told, x) for told, x in values if _spreads(x.shape, hand.shape)]
    forms = [*alike, *((f"(1 - {told})", 1.0 - x) for told, x in alike)]
    squares = [(f"{told}²", x * x) for told, x in alike]
    forms += [*squares, *((f"(1 - {told})", 1.0 - x) for told, x in squares)]
    for told, x in forms:
        yield f"{name} * {told}", hand * x
        yield f"{name} / {told}", hand / x
    for told, x in forms:
        yield f"{name} + {told}", hand + x
        yield f"{name} - {told}", hand - x
    products = [(f"{one[0]} * {other[0]}", one[1] * other[1]) for one, other in itertools.combinations(forms, 2)]
    yield from products
    for told, x in products:
        yield f"{name} + {told}", hand + x
        yield f"{name} - {told}", hand - x
    for (one, a), (other, b) in itertools.product(values, values):
        if a.ndim == b.ndim == 2:
            for left, x in ((one, a), (f"{one}.T", a.T)):
                for right, y in ((other, b), (f"{other}.T", b.T)):
                    if (x.shape[0], y.shape[1]) == hand.shape and x.shape[1] == y.shape[0]:
                        yield f"{left} @ {right}", x @ y
    for (one, a), (other, b) in itertools.product(alike, products[:_PRODUCTS]):
        yield f"{one} * {other}", a * b


def _if_equal(told: str, x: np.ndarray, right: np.ndarray, near: float) -> str:
    """The expression, with a factor that is easily forgotten, if it is the right gradient."""
    if x.shape != right.shape:
        return ""
    factor = float(np.vdot(x, right)) / (float(np.vdot(x, x)) or 1.0)
    nearest = next((each for each in _FACTORS if math.isclose(abs(factor), each, rel_tol=_EQUAL)), 0.0)
    if not nearest or not (abs(factor * x - right) <= near).all():
        return ""
    start = {1.0: "", -1.0: "-"}.get(math.copysign(nearest, factor), f"{math.copysign(nearest, factor):g} * ")
    return f"{start}({told})" if (start and " + " in told) or (start and " - " in told) else f"{start}{told}"


def _spreads(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    """Whether an array of one shape can be multiplied by one of the other, and the product has the other's."""
    return len(shape) <= len(over) and all(n in (1, m) for n, m in zip(shape[::-1], over[::-1], strict=False))


def _factor(check: Any, row: Row) -> str:
    """Which length a factor is, such as that of an axis over which a mean stands for a sum."""
    if row.full is None or " times the right one" not in row.pattern:
        return ""
    factor = float(np.vdot(row.full.by_hand, row.full.numerical) / np.vdot(row.full.numerical, row.full.numerical))
    arrays = _given(check)
    lengths = [(n, f"axis {i} of {name}") for name, x in arrays for i, n in enumerate(x.shape) if n > 1]
    rows = [(math.prod(x.shape[:-1]), name) for name, x in arrays if x.ndim > 2]
    lengths += [(n, f"all of {name} but its last axis") for n, name in rows]
    for n, where in lengths:
        forms = {f"1/{n}": 1 / n, f"{n}": n, f"1/√{n}": n**-0.5, f"√{n}": n**0.5}
        for told, number in forms.items():
            if math.isclose(abs(factor), number, rel_tol=_EQUAL):
                return f"That is {'-' if factor < 0.0 else ''}{told}, and {where} has {n} entries."
    return ""


def _forgotten(check: Any, name: str, gradient: np.ndarray, probe: Probe) -> str:
    """The value through which nothing flows back."""
    ways = [check.rng.normal(size=gradient.shape) for _ in range(2)]
    by_hand, step = [float(np.vdot(gradient, way)) for way in ways], check.differences.step
    size = max(map(abs, by_hand))

    def slope(way: np.ndarray, held: Pair) -> float:
        def as_it_was(moved: Array) -> Array:
            return to_device(held.value.copy(), device_of(moved).name)

        ends = []
        for side in (step, -step):
            try:
                with Replacement(check.f, held, as_it_was) as replacement:
                    ends.append(probe(side * way))
            except (TypeError, ValueError):  # as where autograd finds no way around it
                return np.nan
            if not replacement.done or ends[-1].shape != check.differences.output.shape:  # autograd lost an output
                return np.nan
        return float(np.vdot(check.differences.upstream, ends[0] - ends[1])) / (2.0 * step)

    bound = values_of(call for call in check.recording.calls if not call.in_backward).values()
    in_order = sorted((value for values in bound for value in values), key=lambda value: value.order)
    for held in in_order[:_VALUES]:
        if size and all(abs(slope(way, held) - mine) <= _EQUAL * size for way, mine in zip(ways, by_hand, strict=True)):
            return f"d{name} lacks what flows back through {held.title}: it would be right if that were constant."
    return ""
