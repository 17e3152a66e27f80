"""The second half of a check: judge what a student's function returned, and find the mistake that explains it.

A known mistake is recognised by its answers: it must give the same answers as the student's function on every trial. No
code of the student runs here.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...check.verify.mistakes import Mistake
from ...core.arrays.backend import to_numpy
from .collecting import Answer, collect, described
from .comparison import close, differing, of_one_kind, scales, unchanged
from .exercise import Exercise
from .remarks import remark
from .result import Entry, Output, Result

_SHOWN_ENTRIES = 4
Trials = list[tuple[Any, ...]]
Values = list[list[np.ndarray]]  # for each output, an array for each trial


def check(exercise: Exercise, f: Callable[..., Any], seed: int = 0) -> Result:
    """Run f on the exercise's trials and say whether it is right, and if not, what is wrong."""
    return judge(exercise, collect(exercise, f, seed, to_numpy), seed)


def judge(exercise: Exercise, answers: list[Answer], seed: int = 0) -> Result:
    """Compare the answers from `collect` for this seed with the reference and with the known mistakes."""
    trials = exercise.trials(seed)
    for answer in answers:
        if answer.problem:
            return _without_outputs(exercise, answer.problem, answer.error)
    if len(answers) != len(trials) or any(len(answer.outputs) != len(exercise.outputs) for answer in answers):
        return _without_outputs(exercise, f"There must be one answer for each of the {len(trials)} trials.")
    attempt = _Attempt(exercise, trials, answers)
    wrong = [i for i in range(len(exercise.outputs)) if not attempt.equals(i, attempt.expected[i])]
    explained = _explain(attempt, wrong)
    order = _order(attempt, wrong)
    if explained and len({explained.get(i) for i in wrong}) == 1:
        order = {}  # one known mistake explains all of them better
    outputs = tuple(
        _wrong_output(attempt, i, explained.get(i, ()), bool(order)) if i in wrong else Output(name, True)
        for i, name in enumerate(exercise.outputs)
    )
    changed = [
        name
        for trial, answer in zip(trials, answers, strict=True)
        for name, before, after in zip(exercise.arguments, trial, answer.inputs, strict=False)  # none without outputs
        if not unchanged(before, after)
    ]
    return Result(
        exercise.name,
        outputs,
        changed=tuple(name for name in exercise.arguments if name in changed),
        repeated=tuple(name for name in exercise.arguments if any(name in answer.repeated for answer in answers)),
        order=tuple(exercise.outputs[order.get(i, i)] for i in range(len(outputs))) if order else (),
    )


class _Attempt:
    """A student's answers and the right ones, by output and trial."""

    def __init__(self, exercise: Exercise, trials: Trials, answers: list[Answer]) -> None:
        self.exercise = exercise
        self.trials = trials
        self.got = [[answer.outputs[i] for answer in answers] for i in range(len(exercise.outputs))]
        self.expected = _run(exercise.reference, trials)
        self.scales = [scales(values) for values in self.expected]

    def equals(self, i: int, values: list[np.ndarray]) -> bool:
        """Whether output i equals these values in all trials."""
        return all(map(close, self.got[i], values, self.scales[i]))

    def places(self, i: int) -> list[int]:
        """The trials in which output i is wrong."""
        rights = list(map(close, self.got[i], self.expected[i], self.scales[i]))
        return [trial for trial, right in enumerate(rights) if not right]

    def unchanged_input(self, i: int) -> str:
        """The remark on output i if it equals one of the inputs in all trials."""
        for name, *given in zip(self.exercise.arguments, *self.trials, strict=True):
            if all(isinstance(x, np.ndarray) for x in given) and self.equals(i, given):
                return f"It is the input {name}, unchanged."
        return ""

    def exchanged(self, i: int) -> str:
        """The remark on output i if it is right for two inputs in each other's place."""
        names = self.exercise.arguments
        for a, b in itertools.combinations(range(len(names)), 2):
            order = [b if j == a else a if j == b else j for j in range(len(names))]
            try:
                values = _run(self.exercise.reference, [tuple(trial[j] for j in order) for trial in self.trials])
            except Exception:  # these two are not of one kind
                continue
            if self.equals(i, values[i]):
                return f"It is right with {names[a]} and {names[b]} exchanged: the order is {', '.join(names)}."
        return ""


def _run(f: Callable[..., Any], trials: Trials) -> Values:
    values = []
    for inputs in trials:
        with np.errstate(all="ignore"):
            returned = f(*copy.deepcopy(inputs))
        values.append([np.asarray(x) for x in (returned if isinstance(returned, tuple) else (returned,))])
    return [list(output) for output in zip(*values, strict=True)]


def _without_outputs(exercise: Exercise, problem: str, error: str = "") -> Result:
    return Result(exercise.name, tuple(Output(name, False) for name in exercise.outputs), problem=problem, error=error)


def _wrong_output(attempt: _Attempt, i: int, mistakes: tuple[Mistake, ...], in_order: bool) -> Output:
    """The report on output i. in_order: right values, wrong order; this is reported once for all outputs."""
    wrong_trials = attempt.places(i)
    trial = wrong_trials[0]
    got, right = attempt.got[i][trial], attempt.expected[i][trial]
    inputs = [described(attempt.exercise, trial) for trial in attempt.trials]
    entries, wrong = _wrong_entries(got, right, attempt.scales[i][trial])
    mistakes = () if in_order else mistakes
    problem = got if isinstance(got, str) else _problem(got, right)
    said = "" if mistakes or in_order else remark(attempt.got[i], attempt.expected[i], attempt.scales[i], inputs)
    if not (said or mistakes or in_order):
        said = attempt.unchanged_input(i) or attempt.exchanged(i)
    return Output(
        attempt.exercise.outputs[i],
        False,
        problem,
        where=inputs[trial],
        size=right.size,
        entries=entries,
        wrong=wrong,
        right_trials=0 if in_order else len(inputs) - len(wrong_trials),
        trials=len(inputs),
        mistake=" + ".join(mistake.name for mistake in mistakes) or None,
        explanation=" And: ".join(mistake.sentence for mistake in mistakes),
        unknown=not (problem or mistakes or said or in_order),
        remark=said,
    )


def _problem(got: np.ndarray, right: np.ndarray) -> str:
    """What is wrong with an output apart from its numbers, or ""."""
    if right.dtype.kind == "b" and got.dtype.kind != "b":
        return f"it holds {got.dtype}, but a mask must hold booleans, True and False"
    if right.dtype.kind == "f" and got.dtype.kind in "iu":
        return f"it holds integers ({got.dtype}), so every fraction was cut off; make the array with dtype float"
    if got.dtype.kind == "O":
        return "it is an array of Python objects; are its rows of unequal length?"
    if right.dtype.kind != got.dtype.kind or (got.dtype.itemsize < 4 and got.dtype.kind == "f"):
        return f"it holds {got.dtype}; compute in float64 (or float32)"
    if got.shape != right.shape:
        if got.ndim > 1 and got.ndim == right.ndim and got.shape in (right.T.shape, right.swapaxes(-1, -2).shape):
            return f"it has the shape {got.shape}, the transpose of the expected {right.shape}"
        return f"it has the shape {got.shape}, but {right.shape} was expected"
    for name, found, cause in (
        ("NaN", np.isnan(got), "0/0, inf - inf or 0 · inf"),
        ("inf", np.isinf(got) & np.isfinite(right), "an overflow or a division by 0"),
    ):
        if found.any():
            place = [int(j) for j in np.argwhere(found)[0]]
            return (f"it holds {name}, first at {place}" if place else f"it is {name}") + f"; {name} comes from {cause}"
    return ""


def _wrong_entries(got: np.ndarray | str, right: np.ndarray, scale: float) -> tuple[tuple[Entry, ...], int]:
    """The first entries that differ, and how many differ in all."""
    if isinstance(got, str) or got.shape != right.shape or not of_one_kind(got, right):
        return (), 0
    places = [tuple(int(j) for j in place) for place in np.argwhere(differing(got, right, scale))]
    number = bool if right.dtype.kind == "b" else float
    shown = places[:_SHOWN_ENTRIES]
    return tuple(Entry(place, number(right[place]), number(got[place])) for place in shown), len(places)


def _explain(attempt: _Attempt, wrong: list[int]) -> dict[int, tuple[Mistake, ...]]:
    """For each wrong output the mistake that reproduces it on every trial, or two mistakes if it takes both.

    If several mistakes do, choose the one that explains most of the wrong outputs and contradicts fewest outputs.
    """
    explained: dict[int, tuple[Mistake, ...]] = {}
    for count in (1, 2):  # pairs of mistakes for the rest
        left = {i for i in wrong if i not in explained}
        if not left:
            break
        found = []
        for mistakes, f in _mistaken(attempt.exercise, count):
            alike = _reproduced(f, attempt, left)
            if alike & left:
                found.append((len(alike & left), len(alike), alike & left, mistakes))
        for _, _, outputs, mistakes in sorted(found, key=lambda one: one[:2], reverse=True):
            for i in outputs:
                explained.setdefault(i, mistakes)
    return explained


def _reproduced(f: Callable[..., Any], attempt: _Attempt, left: set[int]) -> set[int]:
    """The outputs that f, a mistaken reference, shares with the answers; empty if it shares none of `left`."""
    try:
        first = _run(f, attempt.trials[:1])
        if not any(close(attempt.got[i][0], first[i][0], attempt.scales[i][0]) for i in left):
            return set()
        values = _run(f, attempt.trials)
    except Exception:  # some mistakes, and many pairs of them, fail on some shapes
        return set()
    return {i for i in range(len(values)) if attempt.equals(i, values[i])}


def _mistaken(exercise: Exercise, count: int) -> Iterator[tuple[tuple[Mistake, ...], Callable[..., Any]]]:
    """The reference with `count` mistakes in it, for all that do not overlap."""
    for mistakes in itertools.combinations(exercise.mistakes, count):
        for order in itertools.permutations(mistakes):
            try:
                f = exercise.mistaken(*order)
            except (ValueError, SyntaxError):
                if count == 1:  # only edits of two mistakes may overlap
                    raise
                continue
            yield mistakes, f
            break


def _order(attempt: _Attempt, wrong: list[int]) -> dict[int, int]:
    """If the wrong outputs are the right ones in another order: for each, which one it is. Otherwise nothing."""
    order: dict[int, int] = {}
    for i in wrong:
        for j in wrong:
            if j not in order.values() and attempt.equals(i, attempt.expected[j]):
                order[i] = j
                break
    return order if len(order) == len(wrong) else {}
