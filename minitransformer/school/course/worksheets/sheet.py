"""A worksheet: given matrices, and steps that a student fills in. Each step is a formula of the values before it.

A step holds its formula twice: as the text printed above the blanks, and as `rule`, a function of the values before it.
The answers come from the library (`key` reads them from the variables of a run of the ops). The rules check these
answers, and serve to mark the work of a student who continues from a wrong number.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ....check.trace.recorder import Recorder
from ....core.arrays.backend import Array, Pullback

Values = Mapping[str, np.ndarray]

LN2 = math.log(2.0)
UNITS = {"": 1.0, "ln 2": LN2, "0.1": 0.1, "0.1 ln 2": 0.1 * LN2}


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
    """A matrix to fill in.

    formula: the text above it. rule: the same as a function of matrices before it, which its parameters name, unless
    `of` does. key: the name of the library's variable that holds the answer, or the answer as a function of these
    variables; None if the library has no variable for it and the rule gives the answer. unit: the factor of the numbers
    in the boxes, printed beside them. moves: the forward value that is displaced by t, and the displacement (value, t)
    whose derivative the step is. None for a forward step, and for the step `dname`, which displaces every entry of
    `name` separately.
    """

    formula: str
    rule: Callable[..., np.ndarray]
    key: str | Callable[[Values], np.ndarray] | None = None
    unit: str = ""
    moves: tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] | None = None
    of: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the matrix: the first word of the formula."""
        return self.formula.split()[0]

    @cached_property
    def _reads(self) -> tuple[str, ...]:
        return self.of or tuple(inspect.signature(self.rule).parameters)

    def computed(self, values: Values) -> np.ndarray:
        """The matrix by its rule, from these values of the matrices before it."""
        return np.asarray(self.rule(*(values[name] for name in self._reads)))

    @property
    def backward(self) -> bool:
        """Whether it belongs to the backward pass: it is a derivative."""
        return self.name.startswith("d") or self.moves is not None


@dataclass(frozen=True)
class Task:
    """The task of a kind of worksheet: `run` calls the library, and `output` is the step whose gradient is given."""

    title: str
    notes: tuple[str, ...]
    given: tuple[Given, ...]
    steps: tuple[Step, ...]
    output: str
    run: Callable[[], tuple[Array, Pullback, Array]]


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
        recorded = _recorded(self.task.run)
        values = dict(self.given)
        for step in self.task.steps:
            key = operator.itemgetter(step.key) if isinstance(step.key, str) else step.key
            values[step.name] = step.computed(values) if key is None else np.asarray(key(recorded))
        return {step.name: values[step.name] for step in self.task.steps}

    def boxes(self, name: str) -> np.ndarray:
        """The numbers in the boxes of a given matrix, or the answers for the boxes of a step: (rows, columns)."""
        units = {given.name: given.unit for given in self.task.given} | {
            step.name: step.unit for step in self.task.steps
        }
        value = self.given[name] if name in self.given else self.answers[name]
        return np.atleast_2d(value) / UNITS[units[name]]


def _recorded(run: Callable[[], tuple[Array, Pullback, Array]]) -> dict[str, np.ndarray]:
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
