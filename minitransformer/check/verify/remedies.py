"""What would make a wrong gradient right, in words: a factor, a term, a product, a path that was forgotten.

The right gradient is known by its differences, and so is all that forward and backward bind to names. So small
expressions of these are tried: `dx * y`, `dx + a * b`, `dh @ w.T`. Then forgotten paths: a backward that leaves one out
has the right gradient of another function, of the one in which a value on that path stays as it is while the input
moves. So each value that forward binds is held in turn.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from types import CodeType
from typing import Any

import numpy as np

from ..trace.calls import Pair
from ..trace.recorder import Recorder
from ..trace.tracing import Replacement
from .blame import probes_of
from .report import Row
from .slopes import COARSE, Probe

_VALUES = 32  # at most so many are tried
_ROWS = 3  # for so many wrong gradients
_CLOSE = 1e-5
_PRODUCTS = 500  # at most so many of two values are multiplied by a third
_FACTORS = (1.0, 2.0, 0.5, 3.0, 4.0, 0.25)
Named = tuple[str, np.ndarray]


def with_remedies(check: Any, rows: list[Row], recording: Recorder) -> list[Row]:
    """The rows, in which the pattern of a wrong one ends with what would make it right, if that is known."""
    wrong = [row for row in rows if row.is_wrong and not row.problem and row.kind != "intermediate"][:_ROWS]
    if not wrong or check.differences.eps > COARSE:
        return rows
    probes, values = probes_of(check), _known(check, recording)
    said = {row.name: _expressed(row, values) or _factor(check, row) for row in wrong}
    for row in wrong:
        if not said[row.name] and row.name in probes:
            said[row.name] = _forgotten(check, row.name, *probes[row.name], recording)
    return [
        dataclasses.replace(row, pattern=" ".join(filter(None, [row.pattern, said[row.name]]))) if row in wrong else row
        for row in rows
    ]


def _known(check: Any, recording: Recorder) -> list[Named]:
    """The arrays that have a name, with equal ones once."""
    bound = [
        (name, group[-1].value.array)
        for call in recording.calls
        for name, groups in call.bound.items()
        for group in groups
    ]
    owned = [(key, parameter.value) for key, parameter in check.owned]
    found: dict[bytes, Named] = {}
    for name, x in [*bound, *check.leaves, *owned, ("the output", check.differences.output)]:
        if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.ndim and np.isfinite(x).all() and np.ptp(x) > 0.0:
            found.setdefault(repr(x.shape).encode() + x.tobytes(), (name, x.astype(np.float64)))
    return list(found.values())[:_VALUES]


def _expressed(row: Row, values: list[Named]) -> str:
    """The expression of known values that is the right gradient, if it has been checked entry by entry."""
    if row.full is None or row.full.by_hand.size < 3 or " times the right one" in row.pattern:
        return ""
    hand, right = row.full.by_hand, row.full.numerical
    size = max(float(abs(right).max()), float(abs(hand).max()))
    if (off := float(abs(hand - right).max()) / size) < 10.0 * _CLOSE:
        why = "an ε that only forward adds or a rounded constant"
        return f"d{row.name} is off by {off:.0e} of its largest entry, as by {why}."
    with np.errstate(all="ignore"):
        tried = _tried(f"d{row.name}", hand, [(told, x) for told, x in values if told != f"d{row.name}"])
        told = next(filter(None, (_if_equal(told, x, right, _CLOSE * size) for told, x in tried)), "")
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
    nearest = next((each for each in _FACTORS if math.isclose(abs(factor), each, rel_tol=_CLOSE)), 0.0)
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
    arrays = [*check.leaves, *((key, parameter.value) for key, parameter in check.owned)]
    lengths = [(n, f"axis {i} of {name}") for name, x in arrays for i, n in enumerate(np.shape(x)) if n > 1]
    rows = [(math.prod(np.shape(x)[:-1]), name) for name, x in arrays if np.ndim(x) > 2]
    lengths += [(n, f"all of {name} but its last axis") for n, name in rows]
    for n, where in lengths:
        forms = {f"1/{n}": 1 / n, f"{n}": n, f"1/√{n}": n**-0.5, f"√{n}": n**0.5}
        for told, number in forms.items():
            if math.isclose(abs(factor), number, rel_tol=_CLOSE):
                return f"That is {'-' if factor < 0.0 else ''}{told}, and {where} has {n} entries."
    return ""


def _forgotten(check: Any, name: str, gradient: np.ndarray, probe: Probe, recording: Recorder) -> str:
    """The value through which nothing flows back."""
    ways = [check.rng.normal(size=gradient.shape) for _ in range(2)]
    by_hand, step = [float(np.vdot(gradient, way)) for way in ways], check.differences.step
    size = max(map(abs, by_hand))

    def slope(way: np.ndarray, held: Pair) -> float:
        ends = []
        for side in (step, -step):
            try:
                with Replacement(check.f, held, lambda _: held.value.copy()) as replacement:
                    ends.append(probe(side * way))
            except (TypeError, ValueError):  # as where autograd finds no way around it
                return np.nan
            if not replacement.done:
                return np.nan
        return float(np.vdot(check.differences.upstream, ends[0] - ends[1])) / (2.0 * step)

    for held in _values(recording):
        if size and all(abs(slope(way, held) - mine) <= _CLOSE * size for way, mine in zip(ways, by_hand, strict=True)):
            return f"d{name} lacks what flows back through {held.title}: it would be right if that were constant."
    return ""


def _values(recording: Recorder) -> Iterator[Pair]:
    """The arrays that forward binds, in order."""
    turns: Counter[CodeType] = Counter()
    found = []
    for call in [call for call in recording.calls if not call.in_backward]:
        for name, groups in call.bound.items():
            arrays = [group[0] for group in groups if group[0].value.is_float_array]
            for i, binding in enumerate(arrays):
                title = binding.title + (f"[{i}]" if len(arrays) > 1 else "")
                value, turn = binding.value.array, turns[call.code]
                assert value is not None
                pair = Pair(call.index, name, i, title, value, None, code=call.code, turn=turn)
                found.append((binding.serial, pair))
        turns[call.code] += 1
    return (pair for _, pair in sorted(found, key=lambda each: each[0])[:_VALUES])
