"""The course: in each exercise a student writes a piece of the Transformer, and the checker names the mistake.

from minitransformer import course

course.exercises()                               # the list of all exercises
course.exercise("softmax_backward")              # the statement; .hint() and .solution() on request
course.check("softmax_backward", my_function)    # right, or what is wrong

course.derivations()                             # the exercises that one derives on paper
course.derivation("derive_softmax")              # the statement; .hint(line) and .solution() on request
course.check_derivation("derive_softmax", text)  # a verdict for each line, and what is still to find
"""

import difflib
from collections.abc import Callable
from typing import Any

from ...check.verify.mistakes import MISTAKES, Mistake
from . import checking
from .checking import judge
from .collecting import Answer, collect
from .derive import Derivation, Marked, mark, tasks
from .derive import task as derivation
from .exercise import Exercise
from .exercises import EXERCISES
from .result import Output, Result
from .suspects import suspect

__all__ = [
    "EXERCISES",
    "MISTAKES",
    "Answer",
    "Derivation",
    "Exercise",
    "Marked",
    "Mistake",
    "Output",
    "Result",
    "check",
    "check_derivation",
    "collect",
    "derivation",
    "derivations",
    "exercise",
    "exercises",
    "judge",
    "suspect",
]


class _Titles(dict[str, str]):
    """Names and titles, one per line."""

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {title}" for name, title in self.items())


def exercises() -> dict[str, str]:
    """The names of all exercises with their titles, in the order of the course."""
    return _Titles({name: one.title for name, one in EXERCISES.items()})


def exercise(name: str) -> Exercise:
    """The exercise with that name. Raises ValueError for an unknown name, with the nearest known one."""
    if name not in EXERCISES:
        near = difflib.get_close_matches(str(name), EXERCISES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "minitransformer.course.exercises() lists them"
        raise ValueError(f"there is no exercise {name!r}; {hint}")
    return EXERCISES[name]


def check(name: str, f: Callable[..., Any], seed: int = 0) -> Result:
    """Test the function f on the exercise of that name: is it right, and if not, what is the mistake?

    f is called on several inputs of unequal sizes, drawn from the seed. It gets copies of the arrays.
    """
    return checking.check(exercise(name), f, seed)


def derivations() -> dict[str, str]:
    """The names of all exercises that one derives on paper with their titles, in the order of the course."""
    return _Titles({name: one.title for name, one in tasks().items()})


def check_derivation(name: str, text: str) -> Marked:
    """Mark a written derivation line by line, going on from what the exercise gives; see `derive.mark`."""
    return mark(derivation(name), text)
