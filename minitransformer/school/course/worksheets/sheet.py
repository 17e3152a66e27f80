"""A worksheet: given matrices, and steps that a student fills in. Each step is a formula of the values before it.

A kind of worksheet is a function that draws the numbers. Its docstring has the title, the notes (a paragraph each), and
a line for every step:

    y = x W + b | x @ W + b | linear.y
    dx = dy Wᵀ | dy @ W.T | linear.dx

First comes the formula that is printed above the blanks; its first word is the name of the step. Then the same in
Python, from the given matrices and the steps before it; then the library's variable that holds the answer, or nothing
where it has none, and the rule gives it. The answers come from a run of the library. The rules check them, and serve to
mark the work of a student who continues from a wrong number. Some lines have a fourth part: `unit ln 2` is a factor of
the numbers in the boxes, printed beside them; `moves x + t` is the displacement of a forward value, of which the step
is the derivative. (The step `dname` needs none: it displaces every entry of `name` separately.)
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ....check.trace.recorder import Recorder
from ....core.arrays.backend import Array, Pullback
from ..exercise import docstring
from .numbers import Draw

Values = Mapping[str, np.ndarray]
Run = Callable[[], tuple[Array, Pullback, Array]]

LN2 = math.log(2.0)
UNITS = {"": 1.0, "ln 2": LN2, "0.1": 0.1, "0.1 ln 2": 0.1 * LN2}


def row_mean(x: np.ndarray) -> np.ndarray:
    """The mean of each row, as a column."""
    return x.mean(axis=-1, keepdims=True)


def row_sum(x: np.ndarray) -> np.ndarray:
    """The sum of each row, as a column."""
    return x.sum(axis=-1, keepdims=True)


def row_min(x: np.ndarray) -> np.ndarray:
    """The smallest number of each row, as a column."""
    return x.min(axis=-1, keepdims=True)


def turned(x: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Row p of x, multiplied p times by the matrix."""
    return np.stack([row @ np.linalg.matrix_power(turn, p) for p, row in enumerate(x)])


_KNOWN = {"np": np, "LN2": LN2, "row_mean": row_mean, "row_sum": row_sum, "row_min": row_min, "turned": turned}


@dataclass(frozen=True)
class Given:
    """A matrix that is printed with its numbers: `value` is the number in a box times the unit.

    ignored: a number that is printed as "ignore".
    """

    name: str
    value: np.ndarray
    unit: str = ""
    note: str = ""
    ignored: int | None = None


@dataclass(frozen=True)
class Step:
    """A matrix to fill in: the parts of its line, as described above."""

    formula: str
    rule: str
    key: str
    unit: str
    moves: str

    @property
    def name(self) -> str:
        """The name of the matrix: the first word of the formula."""
        return self.formula.split()[0]

    def computed(self, values: Values) -> np.ndarray:
        """The matrix by its rule, from these values of the matrices before it. In a rule q' is written q_."""
        return _evaluated(self.rule, {name.replace("'", "_"): value for name, value in values.items()})

    @property
    def moved(self) -> str:
        """The forward value that is displaced, or "" for a forward step."""
        return self.moves.partition(" ")[0] or (self.name[1:] if self.name.startswith("d") else "")

    def displaced(self, value: np.ndarray, t: np.ndarray) -> np.ndarray:
        """The forward value after the displacement by t."""
        return _evaluated(self.moves or "value + t", {self.moved: value, "value": value, "t": t})

    @property
    def backward(self) -> bool:
        """Whether it belongs to the backward pass: it is a derivative."""
        return bool(self.moved)


@functools.cache
def _compiled(rule: str) -> types.CodeType:
    return compile(rule, "<a rule of a worksheet>", "eval")


def _evaluated(rule: str, values: Values) -> np.ndarray:
    return np.asarray(eval(_compiled(rule), {**_KNOWN, **values}))


@dataclass(frozen=True)
class Task:
    """The task of a kind of worksheet with its numbers. `run` calls the library, for the answers."""

    title: str
    notes: tuple[str, ...]
    given: tuple[Given, ...]
    steps: tuple[Step, ...]
    run: Run

    @property
    def output(self) -> str:
        """The step whose gradient is given, or the loss."""
        given = {one.name for one in self.given}
        return next((step.name for step in self.steps if f"d{step.name}" in given), "loss")


@dataclass(frozen=True)
class Kind:
    """A kind of worksheet: the function that draws its numbers, and its possible sizes."""

    drawn: Callable[[Draw, int], tuple[Sequence[Given], Run]]
    sizes: range

    def make(self, draw: Draw, size: int) -> Task:
        """Its task of a size with new numbers."""
        given, run = self.drawn(draw, size)
        title, *parts = docstring(self.drawn).split("\n\n")
        sizes = {"less": size - 1, "size": size, "more": size + 1}
        notes = [" ".join(part.split()).format(**sizes) for part in parts if "|" not in part]
        lines = [line for part in parts if "|" in part for line in part.splitlines()]
        return Task(title.removesuffix("."), tuple(notes), tuple(given), tuple(map(_step, lines)), run)


def _step(line: str) -> Step:
    formula, rule, key, more = [*map(str.strip, line.split("|")), "", ""][:4]
    what, _, of = more.partition(" ")
    return Step(formula, rule, key, unit=of if what == "unit" else "", moves=of if what == "moves" else "")


KINDS: dict[str, Kind] = {}
Drawn = TypeVar("Drawn", bound=Callable[..., Any])


def kind(smallest: int, largest: int) -> Callable[[Drawn], Drawn]:
    """Put the function into KINDS, under its own name, with the sizes of its sheets."""

    def add(drawn: Drawn) -> Drawn:
        KINDS[drawn.__name__.replace("_", "-")] = Kind(drawn, range(smallest, largest + 1))
        return drawn

    return add


@dataclass(frozen=True)
class Sheet:
    """One worksheet: a task with its numbers. Kind, seed, size and student determine the numbers."""

    kind: str
    seed: int
    size: int
    student: str
    task: Task

    @property
    def head(self) -> dict[str, Any]:
        """What determines the numbers, as a form and JSON call it."""
        return {"worksheet": self.kind, "seed": self.seed, "size": self.size, "student": self.student}

    @property
    def label(self) -> str:
        """The label of the sheet: "attention-backward, seed 7, size 3"."""
        return f"{self.kind}, seed {self.seed}, size {self.size}"

    @property
    def forward_steps(self) -> tuple[Step, ...]:
        """The steps of the forward pass."""
        return tuple(step for step in self.task.steps if not step.backward)

    @property
    def backward_steps(self) -> tuple[Step, ...]:
        """The steps of the backward pass."""
        return tuple(step for step in self.task.steps if step.backward)

    @cached_property
    def given(self) -> dict[str, np.ndarray]:
        """The given values by name."""
        return {given.name: given.value for given in self.task.given}

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        """The answer to each step, by name."""
        recorded, values = _recorded(self.task.run), dict(self.given)
        for step in self.task.steps:
            values[step.name] = np.asarray(recorded[step.key]) if step.key else step.computed(values)
        return {step.name: values[step.name] for step in self.task.steps}

    def boxes(self, name: str) -> np.ndarray:
        """The numbers in the boxes of a given matrix, or the answers for the boxes of a step: (rows, columns)."""
        units = {given.name: given.unit for given in self.task.given} | {
            step.name: step.unit for step in self.task.steps
        }
        value = self.given[name] if name in self.given else self.answers[name]
        return np.atleast_2d(value) / UNITS[units[name]]


def _recorded(run: Run) -> dict[str, np.ndarray]:
    """Every value that a run of the library bound to a name: "softmax.y", "linear#2.dproduct", "attention.dq"."""
    with Recorder(run) as recorder:
        _output, backward, upstream = run()
        recorder.in_forward = False
        backward(upstream)
    last = [groups[-1][-1] for call in recorder.calls for groups in call.bound.values()]
    return {b.title.replace("#1.", "."): b.value.array for b in last if b.value.array is not None}


def number(x: float) -> str:
    """A number as written by hand: 12, −0.35. It has up to four decimals if these are exact, otherwise three."""
    whole = round(x)
    if abs(x - whole) < 1e-7:
        return str(whole)
    exact = abs(x - round(x, 4)) < 1e-7
    return f"{x:.{4 if exact else 3}f}".rstrip("0")
