"""What a worksheet is: given matrices, and steps that a student fills in, each a formula of what stands before it.

A step holds its formula twice: as the text that is printed above the blanks, and as `rule`, a function of the values
before it. The answers come from the library (`key`, from what a run of the ops bound to its names); the rules serve to
check them, and to mark the work of a student who goes on from a wrong number of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays.backend import Array, Pullback
from ...trace.recorder import Recorder

Values = Mapping[str, np.ndarray]
Rule = Callable[[Values], np.ndarray]

UNITS = {"": 1.0, "ln 2": math.log(2.0)}


@dataclass(frozen=True)
class Given:
    """A matrix that is printed with its numbers: `value` is what stands in the boxes times the unit.

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

    formula: what is printed above it. rule: the same as a function of the values before it. key: the answer, from what
    the library's names were bound to; None where the library has no name for it and the rule says it.
    unit: what the numbers in the boxes are to be multiplied by, printed beside them.
    moves: of a backward step the forward value whose displacement by t it is the derivative for, and that displacement;
    None for the step `dname`, which displaces every entry of `name` by itself.
    """

    name: str
    formula: str
    rule: Rule
    key: Rule | None = None
    unit: str = ""
    moves: tuple[str, Callable[[Values, np.ndarray], np.ndarray]] | None = None
    backward: bool = False


@dataclass(frozen=True)
class Task:
    """What a kind of worksheet asks: `run` calls the library, and `output` is the step whose gradient is given."""

    title: str
    notes: tuple[str, ...]
    given: tuple[Given, ...]
    steps: tuple[Step, ...]
    output: str
    run: Callable[[], tuple[Array, Pullback, Array]]


@dataclass(frozen=True)
class Sheet:
    """One worksheet: a task with its numbers, which kind, seed, size and student determine."""

    kind: str
    seed: int
    size: int
    student: str
    task: Task

    @property
    def label(self) -> str:
        """What names the sheet: "attention-backward, seed 7, size 3"."""
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
            values[step.name] = np.asarray(step.rule(values) if step.key is None else step.key(recorded))
        return {step.name: values[step.name] for step in self.task.steps}

    def boxes(self, name: str) -> np.ndarray:
        """The numbers that stand in the boxes of a given matrix or belong into those of a step: (rows, columns)."""
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
    """A number as it is written by hand: 12, −0.35; to four decimals, or three where four are not enough."""
    whole = round(x)
    if abs(x - whole) < 1e-7:
        return str(whole)
    exact = abs(x - round(x, 4)) < 1e-7
    return f"{x:.{4 if exact else 3}f}".rstrip("0")
