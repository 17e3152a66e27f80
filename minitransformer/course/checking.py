"""The second half of a check: judge what a student's function returned, and find the mistake that explains it.

A known mistake is found by its answers: it is named where it gives, on every trial, what the student's function gave.
Nothing of the student's runs here.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .collecting import Answer, collect, described
from .comparison import ALIKE, RIGHT, close, differing, of_one_kind
from .exercise import Exercise, Mistake
from .result import Entry, Output, Result

_SHOWN_ENTRIES = 4
Trials = list[tuple[Any, ...]]
Values = list[tuple[np.ndarray, ...]]  # for each trial, an array for each output


def check(exercise: Exercise, f: Callable[..., Any], seed: int = 0) -> Result:
    """Run f on the exercise's trials and say whether it is right, and if not, what is wrong."""
    return judge(exercise, collect(exercise, f, seed), seed)


def judge(exercise: Exercise, answers: list[Answer], seed: int = 0) -> Result:
    """Compare the answers that `collect` gave for this seed with the reference, and with the known mistakes."""
    trials = exercise.trials(seed)
    for answer in answers:
        if answer.problem:
            return _without_outputs(exercise, answer.problem, answer.error)
    if len(answers) != len(trials) or any(len(answer.outputs) != len(exercise.outputs) for answer in answers):
        return _without_outputs(exercise, f"There must be an answer to each of {len(trials)} trials.")
    expected = _run(exercise.reference, trials)
    places = range(len(exercise.outputs))
    failed = {i: trial for i in places if (trial := _first_wrong(answers, expected, i)) is not None}
    explained = _explain(exercise, trials, expected, answers, list(failed))
    order = _order(answers, expected, list(failed))
    if explained and len({explained.get(i) for i in failed}) == 1:
        order = {}  # one known mistake gives all of them, and says it better
    outputs = []
    for i, name in enumerate(exercise.outputs):
        if i not in failed:
            outputs.append(Output(name, True))
            continue
        trial = failed[i]
        got, right = answers[trial].outputs[i], expected[trial][i]
        problem = got if isinstance(got, str) else _problem(got, right)
        comparable = not isinstance(got, str) and of_one_kind(got, right)
        entries, wrong = _wrong_entries(got, right)
        mistakes = () if order else explained.get(i, ())
        transposed = not mistakes and _transposed(answers, expected, i)
        outputs.append(
            Output(
                name,
                False,
                problem,
                where=described(exercise, trials[trial]),
                size=right.size,
                entries=entries,
                wrong=wrong,
                mistake=" + ".join(mistake.name for mistake in mistakes) or None,
                explanation=" And: ".join(mistake.explanation for mistake in mistakes),
                unknown=comparable and not mistakes and not transposed and not order,
                remark="" if mistakes or order else transposed or _remark(answers, expected, i),
            )
        )
    changed = {name for answer in answers for name in answer.changed}
    in_order = tuple(exercise.outputs[order.get(i, i)] for i in places) if order else ()
    names = tuple(name for name in exercise.arguments if name in changed)
    return Result(exercise.name, tuple(outputs), names, order=in_order)


def _without_outputs(exercise: Exercise, problem: str, error: str = "") -> Result:
    return Result(exercise.name, tuple(Output(name, False) for name in exercise.outputs), (), problem, error)


def _run(f: Callable[..., Any], trials: Trials) -> Values:
    values = []
    for inputs in trials:
        with np.errstate(all="ignore"):
            returned = f(*copy.deepcopy(inputs))
        values.append(tuple(np.asarray(x) for x in (returned if isinstance(returned, tuple) else (returned,))))
    return values


def _first_wrong(answers: list[Answer], expected: Values, i: int) -> int | None:
    """The first trial on which output i is not right."""
    wrong = (trial for trial, answer in enumerate(answers) if not close(answer.outputs[i], expected[trial][i], RIGHT))
    return next(wrong, None)


def _problem(got: np.ndarray, right: np.ndarray) -> str:
    """What is wrong with an output before its numbers are looked at, or ""."""
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
    if np.isnan(got).any():
        place = [int(j) for j in np.argwhere(np.isnan(got))[0]]
        return f"it holds NaN, first at {place}" if place else "it is NaN"
    return ""


def _explain(
    exercise: Exercise, trials: Trials, expected: Values, answers: list[Answer], wrong: list[int]
) -> dict[int, tuple[Mistake, ...]]:
    """For each wrong output the mistake that reproduces it on every trial; or two, where it takes two at once.

    Where several mistakes do, it is the one that explains most of the wrong outputs and contradicts fewest outputs.
    """
    explained: dict[int, tuple[Mistake, ...]] = {}
    for suspects in (_singles(exercise), _pairs(exercise)):  # pairs only for what no single one explains
        left = {i for i in wrong if i not in explained}
        if not left:
            break
        found = []
        for mistakes, f in suspects:
            alike = _reproduced(f, trials, expected, answers, left)
            if alike & left:
                found.append((len(alike & left), len(alike), alike & left, mistakes))
        for _, _, outputs, mistakes in sorted(found, key=lambda one: one[:2], reverse=True):
            for i in outputs:
                explained.setdefault(i, mistakes)
    return explained


def _reproduced(
    f: Callable[..., Any], trials: Trials, expected: Values, answers: list[Answer], left: set[int]
) -> set[int]:
    """The outputs that f, a mistaken reference, has in common with the answers; empty if it has none of `left`."""
    try:
        first = _run(f, trials[:1])[0]
        if not any(close(answers[0].outputs[i], first[i], ALIKE) for i in left):
            return set()
        values = _run(f, trials)
    except Exception:  # some mistakes, and many pairs of them, do not get through on every shape
        return set()
    return {i for i in range(len(first)) if all(_matches(answers, values, i))}


def _matches(answers: list[Answer], values: Values, i: int) -> Iterator[bool]:
    return (close(answer.outputs[i], value[i], ALIKE) for answer, value in zip(answers, values, strict=True))


def _singles(exercise: Exercise) -> Iterator[tuple[tuple[Mistake, ...], Callable[..., Any]]]:
    for mistake in exercise.mistakes:
        yield (mistake,), exercise.mistaken(mistake)


def _pairs(exercise: Exercise) -> Iterator[tuple[tuple[Mistake, ...], Callable[..., Any]]]:
    """Two mistakes at once, wherever the edit of one leaves that of the other its place."""
    for pair in itertools.combinations(exercise.mistakes, 2):
        for order in (pair, pair[::-1]):
            try:
                f = exercise.mistaken(*order)
            except (ValueError, SyntaxError):
                continue
            yield pair, f
            break


def _order(answers: list[Answer], expected: Values, wrong: list[int]) -> dict[int, int]:
    """Where the wrong outputs are the right ones in another order: for each, which one it is. Else nothing."""
    order: dict[int, int] = {}
    for i in wrong:
        for j in wrong:
            pairs = zip(answers, expected, strict=True)
            if j not in order.values() and all(close(answer.outputs[i], right[j], RIGHT) for answer, right in pairs):
                order[i] = j
                break
    return order if len(order) == len(wrong) else {}


def _transposed(answers: list[Answer], expected: Values, i: int) -> str:
    """What to say of an output that is right but for its last two axes, which are exchanged."""
    for answer, values in zip(answers, expected, strict=True):
        got, right = answer.outputs[i], values[i]
        if isinstance(got, str) or got.ndim < 2 or not close(got.swapaxes(-1, -2), right, RIGHT):
            return ""
    how = ".T" if expected[0][i].ndim == 2 else ".swapaxes(-1, -2)"
    return f"It is the transpose of what was expected: transpose it once more, with {how}."


def _wrong_entries(got: np.ndarray | str, right: np.ndarray) -> tuple[tuple[Entry, ...], int]:
    """The first entries that differ, and how many do."""
    if isinstance(got, str) or got.shape != right.shape or not of_one_kind(got, right):
        return (), 0
    places = [tuple(int(j) for j in place) for place in np.argwhere(differing(got, right, RIGHT))]
    shown = places[:_SHOWN_ENTRIES]
    return tuple(Entry(place, right[place].item(), got[place].item()) for place in shown), len(places)


def _remark(answers: list[Answer], expected: Values, i: int) -> str:
    """Something plain to be seen in an output, though no known mistake explains it: a factor, or zeros."""
    factors = []
    for answer, values in zip(answers, expected, strict=True):
        got, right = answer.outputs[i], values[i]
        if isinstance(got, str) or got.shape != right.shape or not of_one_kind(got, right) or right.dtype.kind != "f":
            return ""
        if not np.isfinite(got).all() or not right.any():
            return ""
        factor = float((got * right).sum() / (right * right).sum())
        if not close(got.astype(np.float64), factor * right, RIGHT) and got.any():
            return ""
        factors.append(factor)
    if not any(factors):
        return "All its entries are zero."
    if np.allclose(factors, -1.0):
        return "It has the wrong sign, and is right apart from that."
    if np.allclose(factors, factors[0]):
        return f"It is {factors[0]:.4g} times what it should be."
    return "It is what it should be times a factor, but the factor changes with the inputs."
