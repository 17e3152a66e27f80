"""The second half of a check: judge what a student's function returned, and find the mistake that explains it.

A known mistake is recognised by its answers: it must give the same answers as the student's function on every trial. No
code of the student runs here.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...check.verify.mistakes import Mistake
from ...core.arrays.backend import to_numpy
from .advice import advice
from .collecting import Answer, collect, described
from .comparison import Compared, differing, of_one_kind, run, unchanged
from .exercise import Exercise
from .formulas import off_by_multiples
from .properties import changing_factor, failing, remark
from .recognition import Outputs, best, recognised
from .result import Entry, Output, Result

_SHOWN_ENTRIES = 4


def check(exercise: Exercise, f: Callable[..., Any], seed: int = 0) -> Result:
    """Run f on the exercise's trials and say whether it is right, and if not, what is wrong."""
    return judge(exercise, collect(exercise, f, seed, to_numpy), seed)


def judge(exercise: Exercise, answers: list[Answer], seed: int = 0, explain: bool = True) -> Result:
    """Compare the answers from `collect` for this seed with the reference, and look for what explains wrong ones.

    explain: whether to look; without it the verdict alone is right.
    """
    trials = exercise.trials(seed)
    for answer, trial in zip(answers, trials, strict=False):
        if answer.problem:
            stops = answer.problem.endswith(":")  # if not, it says why
            told = advice(answer.error, described(exercise, trial)) if answer.error and stops else ""
            problem = f"{answer.problem}\n{told}" if told else answer.problem
            return _without_outputs(exercise, problem, answer.error)
    if len(answers) != len(trials) or any(len(answer.outputs) != len(exercise.outputs) for answer in answers):
        return _without_outputs(exercise, f"There must be one answer for each of the {len(trials)} trials.")
    compared = Compared(exercise, trials, answers)
    wrong = [i for i in range(len(exercise.outputs)) if not compared.equals(i, compared.expected[i])]
    explained = _explain(compared, wrong, 1) if explain else {}
    order = _order(compared, wrong)
    if explained and len({explained.get(i) for i in wrong}) == 1:
        order = {}  # one known mistake explains all of them better
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = _said(compared, wrong, explained) if explain and not order else {}
    outputs = [Output(name, i not in wrong) for i, name in enumerate(exercise.outputs)]
    for i in wrong if not order else ():  # a wrong order is told once, for all
        outputs[i] = _wrong_output(compared, i, explained.get(i, ()), said.get(i, ""))
    changed = [
        name
        for trial, answer in zip(trials, answers, strict=True)
        for name, before, after in zip(exercise.arguments, trial, answer.inputs, strict=False)  # none without outputs
        if not unchanged(before, after)
    ]
    return Result(
        exercise.name,
        tuple(outputs),
        changed=tuple(name for name in exercise.arguments if name in changed),
        repeated=tuple(name for name in exercise.arguments if any(name in answer.repeated for answer in answers)),
        order=tuple(exercise.outputs[order.get(i, i)] for i in range(len(outputs))) if order else (),
    )


def _without_outputs(exercise: Exercise, problem: str, error: str = "") -> Result:
    return Result(exercise.name, tuple(Output(name, False) for name in exercise.outputs), problem=problem, error=error)


def _wrong_output(compared: Compared, i: int, mistakes: tuple[Mistake, ...], said: str) -> Output:
    """The report on output i."""
    wrong_trials = compared.places(i)
    trial = wrong_trials[0]
    got, right = compared.got[i][trial], compared.expected[i][trial]
    entries, wrong = _wrong_entries(got, right, compared.scales[i][trial])
    problem = got if isinstance(got, str) else _problem(got, right)
    said = "" if mistakes else said
    return Output(
        compared.exercise.outputs[i],
        False,
        problem,
        where=compared.inputs[trial],
        size=right.size,
        entries=entries,
        wrong=wrong,
        right_trials=len(compared.trials) - len(wrong_trials),
        trials=len(compared.trials),
        mistake=" + ".join(mistake.name for mistake in mistakes) or None,
        explanation=" And: ".join(mistake.sentence for mistake in mistakes),
        unknown=not (problem or mistakes or said),
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


def _said(compared: Compared, wrong: list[int], explained: dict[int, tuple[Mistake, ...]]) -> dict[int, str]:
    """A sentence on each wrong output that no known mistake explains. Adds to `explained` where two of these do."""
    pairs = [list(zip(compared.got[i], compared.expected[i], strict=True)) for i in wrong]
    comparable = [
        i for i, xs in zip(wrong, pairs, strict=True) if all(isinstance(a, str) or of_one_kind(a, b) for a, b in xs)
    ]
    said: dict[int, str] = {}

    def left() -> list[int]:
        return [i for i in comparable if i not in explained and not said.get(i)]

    said |= {i: remark(compared, i) for i in left()}
    said |= recognised(compared, left())
    explained |= _explain(compared, left(), 2)
    said |= recognised(compared, left(), twice=True)
    for tell in (changing_factor, failing, off_by_multiples):
        said |= {i: tell(compared, i) for i in left()}
    return said


def _explain(compared: Compared, wrong: list[int], count: int) -> dict[int, tuple[Mistake, ...]]:
    """For each wrong output the `count` mistakes that reproduce it together on every trial."""
    found = best(compared, set(wrong), _mistaken(compared, count))
    return {i: mistakes for i, (mistakes, holds) in found.items() if holds}


def _mistaken(compared: Compared, count: int) -> Iterator[tuple[tuple[Mistake, ...], Outputs]]:
    """`count` mistakes that do not overlap, and what the reference with them in it returns."""
    for mistakes in itertools.combinations(compared.exercise.mistakes, count):
        for order in itertools.permutations(mistakes):
            try:
                f = compared.exercise.mistaken(*order)
            except (ValueError, SyntaxError):
                if count == 1:  # only edits of two mistakes may overlap
                    raise
                continue
            yield mistakes, functools.partial(_returned, f, compared)
            break


def _returned(f: Callable[..., Any], compared: Compared, trial: int) -> list[Any]:
    return [x for (x,) in run(f, [compared.trials[trial]])]


def _order(compared: Compared, wrong: list[int]) -> dict[int, int]:
    """If the wrong outputs are the right ones in another order: for each, which one it is. Otherwise nothing."""
    order: dict[int, int] = {}
    for i in wrong:
        for j in wrong:
            if j not in order.values() and compared.equals(i, compared.expected[j]):
                order[i] = j
                break
    return order if len(order) == len(wrong) else {}
