"""Grade a hand-in: every function in it that is named like an exercise, each in a process of its own.

That process (sandbox.py) gets the inputs and gives back arrays; they are compared with the reference here, where
nothing that a hand-in does has any effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import hand_in as hand_ins
from .checking import judge
from .exercises import EXERCISES
from .result import Result
from .sandbox import Limits, run


@dataclass(frozen=True)
class Grade:
    """The grade of one exercise. verdict: "right", "partial", "wrong", "missing". result: where there were answers."""

    exercise: str
    verdict: str
    score: float
    message: str
    result: Result | None = None

    @property
    def summary(self) -> str:
        """The message in a line."""
        if self.result is None or self.verdict == "right":
            return self.message.partition("\n")[0]
        if self.result.problem:
            return (self.result.error or self.result.problem).strip().splitlines()[-1]
        if self.result.mistake:
            explained = [output.explanation for output in self.result.outputs if output.explanation]
            return f"{self.result.mistake}: {explained[0]}" if explained else self.result.mistake
        wrong = [output for output in self.result.outputs if not output.right]
        said = [(output.name, output.problem or output.remark or "an unknown mistake") for output in wrong]
        return "; ".join(f"{name}: {what}" for name, what in said)

    def as_dict(self) -> dict[str, Any]:
        """The grade as JSON can hold it."""
        head = {"exercise": self.exercise, "verdict": self.verdict, "score": self.score, "summary": self.summary}
        return head | {"message": self.message, "result": None if self.result is None else self.result.as_dict()}


@dataclass(frozen=True)
class Grades:
    """The grades of a hand-in, in the order of the course. failed_cells: what could not be run of it."""

    file: str
    grades: tuple[Grade, ...]
    failed_cells: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The mean over the exercises; 0 where there is none."""
        return sum(grade.score for grade in self.grades) / len(self.grades) if self.grades else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The grades as JSON can hold them."""
        exercises = [grade.as_dict() for grade in self.grades]
        head = {"file": self.file, "score": self.score, "failed_cells": list(self.failed_cells)}
        return head | {"exercises": exercises}

    def __str__(self) -> str:
        if not self.grades:
            return f"{self.file}: no function in it is named like an exercise"
        width = max(len(grade.exercise) for grade in self.grades)
        lines = [f"{self.file}: {100 * self.score:.0f} % of {len(self.grades)}"]
        for grade in self.grades:
            lines.append(f"  {grade.exercise:<{width}}  {grade.verdict:<7}  {grade.score:4.2f}  {grade.summary}")
        return "\n".join([*lines, *(f"  could not be run: {cell}" for cell in self.failed_cells)])


def grade(
    path: Path,
    exercises: Sequence[str] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    jobs: int | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Grades:
    """Grade the functions of a hand-in that are named like exercises.

    exercises: those that were set; one that is not there is "missing", and no other is graded. jobs: how many processes
    at once (default: one for each core). progress is called after each exercise.
    Raises ValueError for an unknown exercise or a file that is no hand-in, and OSError where it cannot be read.
    """
    unknown = [name for name in exercises or () if name not in EXERCISES]
    if unknown:
        raise ValueError(f"there is no exercise {unknown[0]!r}; minitransformer.course.exercises() lists them")
    hand_in = hand_ins.read(path)
    defined = hand_in.defined()
    wanted = [name for name in EXERCISES if name in (defined if exercises is None else exercises)]

    def one(name: str) -> tuple[Grade, tuple[str, ...]]:
        if name not in defined:
            return Grade(name, "missing", 0.0, "the hand-in does not define it"), ()
        found = _graded(hand_in, name, seed, limits or Limits())
        progress()
        return found

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        found = list(pool.map(one, wanted))
    failed = dict.fromkeys(cell for _, cells in found for cell in cells)
    return Grades(str(path), tuple(grade for grade, _ in found), tuple(failed))


def _graded(hand_in: hand_ins.HandIn, name: str, seed: int, limits: Limits) -> tuple[Grade, tuple[str, ...]]:
    exercise = EXERCISES[name]
    outcome = run(hand_in, exercise, seed, limits)
    if outcome.undefined:
        why = "it is not there after the hand-in has been run"
        return Grade(name, "wrong", 0.0, why), outcome.failed_cells
    if outcome.stopped:
        return Grade(name, "wrong", 0.0, outcome.stopped), outcome.failed_cells
    with np.errstate(all="ignore"):  # the answers may hold anything
        result = judge(exercise, outcome.answers, seed)
    verdict = "right" if result.right else "partial" if result.score else "wrong"
    return Grade(name, verdict, result.score, str(result), result), outcome.failed_cells
