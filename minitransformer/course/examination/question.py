"""An examination question: a text with new numbers for each seed, and its worked answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..worksheets.numbers import Draw
from ..worksheets.sheet import number

Number = float | np.ndarray


@dataclass(frozen=True)
class Asked:
    """A question with its numbers.

    text: plain text; blocks that are indented are matrices. given: the numbers in the text. worked: the answer with its
    steps. answers: the numbers that count, by name.
    """

    text: str
    given: Mapping[str, Number]
    worked: str
    answers: Mapping[str, Number]


@dataclass(frozen=True)
class Question:
    """A kind of question: the week of the term it belongs to, its marks, and the function that draws its numbers."""

    name: str
    week: int
    marks: int
    make: Callable[[Draw], Asked]

    def asked(self, seed: int) -> Asked:
        """The question with the numbers of a seed. The same seed gives the same numbers on every machine."""
        return self.make(Draw(f"{self.name}/{seed}"))


QUESTIONS: dict[str, Question] = {}


def question(week: int, marks: int) -> Callable[[Callable[[Draw], Asked]], Callable[[Draw], Asked]]:
    """Put the function into QUESTIONS, under its own name."""

    def add(make: Callable[[Draw], Asked]) -> Callable[[Draw], Asked]:
        name = make.__name__.replace("_", "-")
        QUESTIONS[name] = Question(name, week, marks, make)
        return make

    return add


def n(x: Number) -> str:
    """A number or a vector as written by hand: 12, -0.35, (1, 2)."""
    if isinstance(x, np.ndarray) and x.ndim:
        return f"({', '.join(n(each) for each in x)})"
    x = float(x)
    return f"{x:.3g}" if 0.0 < abs(x) < 0.01 or abs(x) >= 1e7 else number(x)


def block(**named: Number) -> str:
    """Matrices side by side, each after its name, as an indented block."""
    pictures = []
    for name, x in named.items():
        cells = [[n(each) for each in row] for row in np.atleast_2d(x)]
        width = max(len(cell) for row in cells for cell in row)
        lines = ["[ " + "  ".join(cell.rjust(width) for cell in row) + " ]" for row in cells]
        lead = f"{name} = "
        pictures.append([(lead if i == 0 else " " * len(lead)) + line for i, line in enumerate(lines)])
    height = max(map(len, pictures))
    padded = [lines + [" " * len(lines[0])] * (height - len(lines)) for lines in pictures]
    return "\n".join(("    " + "    ".join(row)).rstrip() for row in zip(*padded, strict=True))
