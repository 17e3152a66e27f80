"""Which values inside a function of others are to blame for its wrong gradients.

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
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..trace.calls import Pair
from ..trace.recorder import Recorder
from ..trace.values import host_copy, is_float_array
from . import arguments as given
from .report import Row
from .slopes import Probe

_DIRECTIONS = 2  # a value must explain the error along each
_ARRAYS = 8  # at most so many wrong gradients are explained
_CLOSE = 0.02  # how near the two sides must be, relative to the error


def blamed(check: Any, rows: list[Row]) -> list[Row]:
    """The rows, in which no intermediate is called wrong that may be innocent. check: the `_Check` that made them.

    Nor is one called wrong for the shape of its gradient, or if the gradients of all inputs and parameters are right.
    Those to blame come first among the intermediates, in the order in which backward computes their gradients.
    """
    if not getattr(given.inside_partial(check.f), "separate", False):
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
    probes = probes_of(check) if pairs else {}
    to_explain = [row.name for row in rows if row.is_wrong and row.name in probes][:_ARRAYS]
    errors = [[_Error(check, *probes[name], pairs) for _ in range(_DIRECTIONS)] for name in to_explain]
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


def probes_of(check: Any) -> dict[str, tuple[np.ndarray, Probe]]:
    """The gradient of each input and parameter, and how to move the array; without gradients that do not fit."""
    places = {name: i for i, (name, x) in enumerate(check.leaves) if is_float_array(x)}
    owned = dict(check.owned)
    found = {}
    for name, gradient in check.results[1:]:
        value = check.leaves[places[name]][1] if name in places else owned[name].value
        if given.misfit(value, gradient) == "":
            by_place = name in places
            probe = check._input_probe(places[name]) if by_place else given.parameter_probe(owned[name], check.call)
            found[name] = (host_copy(gradient), probe)
    return found


class _Error:
    """The error of one gradient along a random direction, and that of each value's gradient along the way it moves."""

    def __init__(self, check: Any, gradient: np.ndarray, probe: Probe, pairs: dict[str, Pair]) -> None:
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
