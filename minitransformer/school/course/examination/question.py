"""An examination question: a text with new numbers for each seed, and its worked answer.

A question is a function that draws its numbers. Its docstring is the text, and the worked answer from "Answer:" on:

    An upstream gradient dy, and the input x of y = x²:

    {x, dy}

    Compute dx at the first entry.

    Answer: It is 2 · {x[0]} · {dy[0]} = {dx}.

A name in braces becomes the number, or the vector, of this name; a paragraph of names alone shows them as matrices.

The exercises that one derives on paper are open questions, whose worked answer is the model derivation.
"""

from __future__ import annotations

import re
import string
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..derive import Derivation, tasks
from ..exercise import docstring
from ..worksheets.numbers import Draw
from ..worksheets.sheet import number

Number = float | np.ndarray
Numbers = Mapping[str, Number]
# The numbers in the text, those of the answer that count, and whatever else the worked answer or the text says.
Made = tuple[Numbers, Numbers, Mapping[str, Number | str]]


@dataclass(frozen=True)
class Asked:
    """A question with its numbers.

    text: plain text; blocks that are indented are matrices. given: the numbers in the text. worked: the answer with its
    steps. answers: the numbers that count, by name.
    """

    text: str
    given: Numbers
    worked: str
    answers: Numbers


@dataclass(frozen=True)
class Question:
    """A kind of question: the week of the term it belongs to, its marks, and the function that makes its numbers."""

    name: str
    week: int
    marks: int
    make: Callable[[Draw], Made]

    def asked(self, seed: int) -> Asked:
        """The question with the numbers of a seed. The same seed gives the same numbers on every machine."""
        given, answers, more = self.make(Draw(f"{self.name}/{seed}"))
        text, _, worked = docstring(self.make).partition("\n\nAnswer: ")
        return Asked(_said(text, {**given, **more}), given, _said(worked, {**given, **answers, **more}), answers)


@dataclass(frozen=True)
class OpenQuestion:
    """An open question, which has no numbers, so that it is the same for every seed; a mark for each line."""

    exercise: Derivation
    week = None  # it belongs to none, and is asked by name

    @property
    def name(self) -> str:
        """The name of the exercise."""
        return self.exercise.name

    @property
    def marks(self) -> int:
        """The number of lines of the model derivation."""
        return len(self.exercise.model)

    def asked(self, seed: int) -> Asked:
        """The question, for any seed."""
        start, solution = (textwrap.indent(text, "    ") for text in (self.exercise.start, self.exercise.solution()))
        find = ", ".join(self.exercise.finish)
        wanted = f"Find {find}. Write one step on each line; there may be more steps than marks."
        return Asked(f"{self.exercise.statement}\n\n{start}\n\n{wanted}", {}, solution, {})


def open_questions() -> dict[str, OpenQuestion]:
    """All open questions by name, such as "derive_softmax"."""
    return {name: OpenQuestion(exercise) for name, exercise in tasks().items()}


QUESTIONS: dict[str, Question] = {}


def question(week: int, marks: int) -> Callable[[Callable[[Draw], Made]], Callable[[Draw], Made]]:
    """Put the function into QUESTIONS, under its own name."""

    def add(make: Callable[[Draw], Made]) -> Callable[[Draw], Made]:
        name = make.__name__.replace("_", "-")
        QUESTIONS[name] = Question(name, week, marks, make)
        return make

    return add


class _Formatter(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        return format(value, spec) if spec or isinstance(value, int | str) else n(value)


def _said(template: str, numbers: Mapping[str, Any]) -> str:
    """The paragraphs of a template, with the numbers in them."""
    parts = []
    for part in template.split("\n\n"):
        names = part.removeprefix("{").removesuffix("}").split(", ")
        if all(name in numbers for name in names):
            parts.append(block(**{name: numbers[name] for name in names}))
        else:
            parts.append(as_written(_Formatter().vformat(part.replace("\n", " "), (), numbers)))
    return "\n\n".join(parts)


def as_written(text: str) -> str:
    """A text whose formulas are as one writes them: x + -1·y is x − y. Code in backticks stays."""
    pieces = text.split("`")
    for i in range(0, len(pieces), 2):
        piece = re.sub(r"(?<![\w)\]])-(?=[\d.])", "−", pieces[i])
        piece = re.sub(r"(?<![\w.·])([−]?)1·(?=[^\W\d])", r"\1", piece)
        pieces[i] = piece.replace("− −", "+ ").replace("+ −", "− ")
    return "`".join(pieces)


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
