"""Marks for a completed form, one for each blank. An early slip does not cost later marks.

Each step is recomputed by its formula from the student's own earlier numbers. An answer is right if it agrees with the
key or with this result. So a student who continues consistently after a slip loses only the mark of the slip. The key's
number replaces an earlier blank, wrong zeros throughout a step, and the only number of a form: else zeros or ones
everywhere would follow from each other.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .form import Form
from .sheet import UNITS, Sheet, number

TOLERANCE = 1.1e-3  # in the numbers as they are written: three decimals, rounded or cut off


@dataclass(frozen=True)
class StepMark:
    """The marks of a step, out of `of`. follows: how many of its right answers are right only after an earlier slip.

    wrong: places (row, column), from 1. expected: the right answers there, given the student's numbers. blank: how many
    were not given.
    """

    name: str
    right: int
    of: int
    follows: int
    blank: int
    wrong: tuple[tuple[int, int], ...]
    expected: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In words."""
        if self.blank == self.of:
            return "not answered"
        words = []
        if self.right == self.of:
            words.append("right")
        elif self.wrong:
            words.append(f"wrong at {_places(self.wrong)}")
        if self.blank:
            words.append(f"{self.blank} left blank")
        if self.follows:
            words.append("follows from your earlier slip")
        return ", ".join(words)


@dataclass(frozen=True)
class Marks:
    """The marks of a form."""

    sheet: Sheet
    steps: tuple[StepMark, ...]

    @property
    def right(self) -> int:
        """The number of right answers, by the key or after an earlier slip."""
        return sum(step.right for step in self.steps)

    @property
    def blanks(self) -> int:
        """The number of all answers."""
        return sum(step.of for step in self.steps)

    @property
    def score(self) -> float:
        """The share of right answers."""
        return self.right / self.blanks

    def as_dict(self, expected: bool = False) -> dict[str, Any]:
        """The marks as JSON types; with `expected` also the right answers."""
        steps = [asdict(step) | {"verdict": step.verdict} for step in self.steps]
        for step in steps if not expected else ():
            del step["expected"]
        return self.sheet.head | {"right": self.right, "of": self.blanks, "score": self.score, "steps": steps}

    def table(self, expected: bool = False) -> str:
        """A line for each step; with `expected` also the right answers."""
        sheet = self.sheet
        lines = [f"{sheet.label}{f', {sheet.student}' if sheet.student else ''}"]
        width = max(len(step.name) for step in self.steps)
        for step in self.steps:
            lines.append(f"  {step.name:<{width}}  {step.right:2d} of {step.of:2d}  {step.verdict}")
            if expected and step.wrong:
                lines.append(f"  {'':<{width}}            expected there: {', '.join(step.expected)}")
        return "\n".join([*lines, f"{self.right} of {self.blanks} right ({100 * self.score:.0f} %)"])

    def __str__(self) -> str:
        return self.table()


def mark(form: Form) -> Marks:
    """The marks of a completed form."""
    sheet = form.sheet
    own = dict(sheet.given)  # the values from which the student continues
    written = np.concatenate([np.ravel(form.values[step.name]) / UNITS[step.unit] for step in sheet.task.steps])
    is_one_number = len({*np.round(written[~np.isnan(written)], 6)}) < 2
    steps = []
    for step in sheet.task.steps:
        unit, key, answer = UNITS[step.unit], sheet.answers[step.name], form.values[step.name]
        with np.errstate(all="ignore"):  # a slip may make a total zero
            followed = step.computed(own)
        by_key, by_rule = _agrees(answer, key, unit), _agrees(answer, followed, unit)
        right, blank = by_key | by_rule, np.isnan(answer)
        wrong = np.argwhere(np.atleast_2d(~right & ~blank))
        expected = np.atleast_2d(np.where(np.isfinite(followed), followed, key) / unit)
        steps.append(
            StepMark(
                step.name,
                right=int(right.sum()),
                of=answer.size,
                follows=int((right & ~by_key).sum()),
                blank=int(blank.sum()),
                wrong=tuple((int(i) + 1, int(j) + 1) for i, j in wrong),
                expected=tuple(number(expected[i, j]) for i, j in wrong),
            )
        )
        nothing = not np.nan_to_num(answer).any() and not right.all()
        own[step.name] = np.where(blank | nothing | is_one_number, key, answer)
    return Marks(sheet, tuple(steps))


def _agrees(answer: np.ndarray, wanted: np.ndarray, unit: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.abs(answer - wanted) <= TOLERANCE * unit


def _places(places: tuple[tuple[int, int], ...]) -> str:
    shown = [f"row {i} column {j}" for i, j in places[:3]]
    return "; ".join(shown) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
