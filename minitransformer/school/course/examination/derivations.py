"""The exercises that one derives on paper as open questions; the worked answer is the model derivation."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from ..derive import Derivation, tasks
from .question import Asked


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
