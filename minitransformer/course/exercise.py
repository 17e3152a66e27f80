"""An exercise: a statement, inputs, a reference solution, and the mistakes people make in it.

A known mistake (mistakes/) is an edit of the reference. So a mistake differs from the reference only in what is wrong,
two mistakes at once are two edits, and a change of the reference also changes its mistakes.
"""

from __future__ import annotations

import ast
import functools
import html
import inspect
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from .draw import KINDS, Draw, Inputs
from .mistakes import Mistake, mistakes_in


@dataclass(frozen=True, repr=False)
class Exercise:
    """One exercise. `str()` and a notebook show its statement; hint and solution appear only on request.

    outputs: the names of what the function returns. inputs(draw) draws the arguments of one trial.
    """

    reference: Callable[..., Any] = field(repr=False)
    title: str
    statement: str
    outputs: tuple[str, ...]
    inputs: Inputs = field(repr=False)
    hint_text: str = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the exercise, and of the function to be written."""
        return self.reference.__name__

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of what the function takes, in order."""
        return tuple(inspect.signature(self.reference).parameters)

    @property
    def signature(self) -> str:
        """How the function is called and what it returns: `softmax_backward(y, dy) -> dx`."""
        return f"{self.name}({', '.join(self.arguments)}) -> {', '.join(self.outputs)}"

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The known mistakes in the reference solution."""
        return mistakes_in(f"{self.reference.__module__.partition('.')[2]}:{self.name}")

    @property
    def known_mistakes(self) -> tuple[str, ...]:
        """The names of the mistakes that the checker recognises."""
        return tuple(mistake.name for mistake in self.mistakes)

    def hint(self) -> str:
        """A hint, without the solution."""
        return self.hint_text

    def solution(self) -> str:
        """The source of the reference solution."""
        return _definition(self.reference)

    def trials(self, seed: int = 0) -> list[tuple[Any, ...]]:
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


def exercise(
    title: str,
    statement: str,
    outputs: str,
    inputs: Inputs,
    hint: str,
) -> Callable[[Reference], Reference]:
    """Add an exercise to EXERCISES; the decorated function is its reference solution. outputs: "dq, dk, dv"."""

    def add(reference: Reference) -> Reference:
        names = tuple(outputs.split(", "))
        made = Exercise(reference, title, _trimmed(statement), names, inputs, _trimmed(hint))
        EXERCISES[made.name] = made
        return reference

    return add


def _trimmed(text: str) -> str:
    return textwrap.dedent(text).strip()


@functools.cache
def _definition(function: Callable[..., Any]) -> str:
    """The source of a function without its decorators."""
    source = inspect.getsource(function)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    return "".join(source.splitlines(keepends=True)[node.lineno - 1 :])


@functools.cache
def _compiled(source: str) -> types.CodeType:
    return compile(source, "<a known mistake>", "exec", dont_inherit=True)
