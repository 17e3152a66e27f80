"""An exercise: a statement, inputs, a reference solution, and the mistakes people make in it.

The reference is a function with a docstring: the first line is the title, then comes the statement, and the last
paragraph is the hint.

The inputs of the trials differ from trial to trial, and the extremes are included.

A known mistake (check/verify/mistakes/) is an edit of the reference. So it differs from the reference only in what is
wrong, two mistakes at once are two edits, and a change of the reference also changes its mistakes.
"""

from __future__ import annotations

import ast
import functools
import html
import inspect
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...check.verify.mistakes import Mistake, mistakes_in
from ...core.arrays.backend import Array

# Five usual trials have axes of unequal lengths, so that every mistake in the axes shows. In "ones" every axis has
# length 1 and every count is minimal: one head, the first step. In "extreme" the numbers are large, and everything that
# a formula must survive occurs: scores that overflow, rows that are all zero.
KINDS = ("usual",) * 5 + ("ones", "extreme")


Arguments = tuple[Any, ...]


class Draw:
    """Draws the arguments of one trial; `number` counts the trials from 0."""

    def __init__(self, seed: int, number: int) -> None:
        kind = KINDS[number]
        self.rng = np.random.default_rng([seed, number])
        self.number = number
        self.ones = kind == "ones"
        self.extreme = kind == "extreme"

    def sizes(self, count: int, low: int = 2, high: int = 7) -> list[int]:
        """`count` different sizes from low to high; all 1 in "ones"."""
        if self.ones:
            return [1] * count
        return [int(size) for size in self.rng.permutation(np.arange(low, high + 1))[:count]]

    def normal(self, *shape: int) -> Array:
        """Normally distributed numbers, of moderate size in every trial."""
        return self.rng.normal(size=shape)

    def gradient(self, *shape: int) -> Array:
        """Normally distributed numbers for an upstream gradient; 100 times as large in "extreme", so clipping shows."""
        return self.rng.normal(size=shape) * (100.0 if self.extreme else 1.0)

    def arrays(self, shapes: str, low: int = 2, high: int = 7) -> Arguments:
        """Normally distributed arrays of these shapes, and after the ; upstream gradients: "n m, m p; n p".

        Different letters are different sizes.
        """
        letters = list(dict.fromkeys(re.findall(r"[a-z]", shapes)))
        sizes = dict(zip(letters, self.sizes(len(letters), low, high), strict=True)) | {"1": 1}
        made = []
        for part, drawn in zip(shapes.split(";"), (self.normal, self.gradient), strict=False):
            made += [drawn(*(sizes[letter] for letter in shape.split())) for shape in part.split(",")]
        return tuple(made)

    def scores(self, *shape: int) -> Array:
        """Normally distributed numbers that are exact in float32 even when 1000 is added to them."""
        return np.round(64.0 * self.rng.normal(size=shape)) / 64.0

    def weights(self, *shape: int) -> Array:
        """Rows of the last axis that look like a softmax: positive, with sum 1; very uneven in "extreme"."""
        exponentials = np.exp((2.0 if self.extreme else 1.0) * self.rng.normal(size=shape))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        return float(self.rng.uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def indices(self, count: int, *shape: int) -> Array:
        """Integers from 0 to count - 1. Their dtype is NumPy's own for indices, since `np.bincount` takes no wider one;
        in a browser that is int32.
        """
        return self.rng.integers(0, count, size=shape).astype(np.intp)

    def queries_and_keys(self, batch: tuple[int, ...], t_q: int, t_k: int, d_k: int) -> tuple[Array, Array]:
        """q (*batch, t_q, d_k) and k (*batch, t_k, d_k).

        In "extreme" d_k is 4. The scores of the queries 0, 3, 6, ... are near 800 for the even keys, all of them
        different, and near -1600 for the odd ones; those of the queries 1, 4, ... are near -800 for all keys; the
        others have the usual scores. Float32 holds all of them exactly: √4 is 2, and both factors are multiples of 1/8.
        """
        if not self.extreme:
            return 1.5 * self.normal(*batch, t_q, d_k), 1.5 * self.normal(*batch, t_k, d_k)
        q, k = (np.round(8.0 * self.normal(*batch, t, 4)) / 8.0 for t in (t_q, t_k))
        q[..., :2] = 0.0
        q[..., 0::3, :] = (40.0, 0.0, 2.0, 0.0)
        q[..., 1::3, 1] = -40.0
        k[..., 0] = np.where(np.arange(t_k) % 2 == 0, 40.0, -80.0)
        k[..., 1] = 40.0
        k[..., 2] = self.rng.permutation(t_k) / 2.0
        return q, k

    def mask(self, t_q: int, t_k: int) -> Array:
        """A mask (t_q, t_k): one row may attend to nothing, one to everything, and the others to some keys."""
        mask = self.rng.random((t_q, t_k)) < 0.6
        mask[:, 0] = True
        mask[:1], mask[1:2] = False, True
        mask[2:3, 1:2] = False
        return mask[self.rng.permutation(t_q)]


Inputs = Callable[[Draw], Arguments]


def docstring(function: Callable[..., Any]) -> str:
    """The docstring of a function, which is a text for students. Raises ValueError where there is none."""
    if not function.__doc__:
        raise ValueError(
            f"{function.__name__} has no docstring, which is its text; write one, and run python without -OO, which "
            "removes all of them"
        )
    return inspect.cleandoc(function.__doc__)


@dataclass(frozen=True, repr=False)
class Exercise:
    """One exercise. `str()` and a notebook show its statement; hint and solution appear only on request.

    reference: the solution, whose docstring is all that is said about it; inputs(draw) draws the arguments of one
    trial.
    """

    reference: Callable[..., Any]
    inputs: Inputs

    @functools.cached_property
    def _said(self) -> tuple[str, str, str]:
        """The title, the statement and the hint."""
        title, _, rest = docstring(self.reference).partition(".\n\n")
        statement, _, hint = rest.partition("\n\nHint: ")
        return title, statement, hint

    @property
    def title(self) -> str:
        """What is to be written, in a few words."""
        return self._said[0]

    @property
    def statement(self) -> str:
        """The task, with the names and shapes of everything in it."""
        return self._said[1]

    @property
    def name(self) -> str:
        """The name of the exercise, and of the function to be written."""
        return self.reference.__name__

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of what the function takes, in order."""
        return tuple(inspect.signature(self.reference).parameters)

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of what the function returns, as the last line of the reference solution has them."""
        return tuple(self.solution().rpartition("return ")[2].strip().split(", "))

    @property
    def signature(self) -> str:
        """How the function is called and what it returns: `softmax_backward(y, dy) -> dx`."""
        return f"{self.name}({', '.join(self.arguments)}) -> {', '.join(self.outputs)}"

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The mistakes that the checker recognises: edits of the reference solution."""
        return mistakes_in(f"{self.reference.__module__.partition('.')[2]}:{self.name}")

    def hint(self) -> str:
        """A hint, without the solution."""
        return self._said[2]

    def solution(self) -> str:
        """The source of the reference solution."""
        return _definition(self.reference)

    def trials(self, seed: int = 0) -> list[Arguments]:
        """The arguments on which an answer is tested; the same for the same seed."""
        return [self.inputs(Draw(seed, number)) for number in range(len(KINDS))]

    def mistaken(self, *mistakes: Mistake) -> Callable[..., Any]:
        """The reference with these mistakes in it. Raises ValueError unless each snippet occurs exactly once."""
        source = _definition(self.reference)
        for mistake in mistakes:
            source = mistake.edited(source)
        namespace = {"np": np} | self.reference.__globals__
        exec(_compiled(source), namespace)
        return namespace[self.name]

    def __repr__(self) -> str:
        return f"Exercise({self.signature!r})"

    def __str__(self) -> str:
        return f"{self.title}\n\n    {self.signature}\n\n{self.statement}"

    def _repr_html_(self) -> str:
        title, signature, statement = (html.escape(text) for text in (self.title, self.signature, self.statement))
        return (
            f"<p><b>{title}</b></p><p><code>{signature}</code></p>"
            f'<p style="white-space: pre-wrap; max-width: 120ch">{statement}</p>'
        )


EXERCISES: dict[str, Exercise] = {}
Reference = TypeVar("Reference", bound=Callable[..., Any])


def exercise(inputs: Inputs) -> Callable[[Reference], Reference]:
    """Add an exercise to EXERCISES; the decorated function is its reference solution, with the statement above it."""

    def add(reference: Reference) -> Reference:
        EXERCISES[reference.__name__] = Exercise(reference, inputs)
        return reference

    return add


@functools.cache
def _definition(function: Callable[..., Any]) -> str:
    """The source of a function without its decorators and its docstring."""
    source = inspect.getsource(function)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    lines, docstring = source.splitlines(keepends=True), node.body[0]
    body = "".join(lines[docstring.end_lineno :]).lstrip("\n")
    return "".join(lines[node.lineno - 1 : docstring.lineno - 1]) + body


@functools.cache
def _compiled(source: str) -> types.CodeType:
    return compile(source, "<a known mistake>", "exec", dont_inherit=True)
