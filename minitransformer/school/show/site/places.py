"""Where each exercise belongs: its chapter, and its number there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...course.exercise import Exercise
from ...course.exercises import EXERCISES
from .notebook import Chapter, source_of


@dataclass(frozen=True)
class Place:
    """Where an exercise belongs: its chapter, and its number there, such as "7.1", or "" if it has none."""

    exercise: Exercise
    chapter: Chapter
    number: str

    @property
    def title(self) -> str:
        return f"{self.number} {self.exercise.title}".lstrip()


def places(chapters: list[Chapter]) -> list[Place]:
    """All exercises in the order of the chapters.

    An exercise belongs to the first chapter that has an empty cell for it; otherwise to one whose text names it;
    otherwise to that of its theme, the exercises in the same file.
    """
    found: dict[str, Place] = {}
    for chapter in chapters:
        for name, number in chapter.numbered(empty=True).items():
            found.setdefault(name, Place(EXERCISES[name], chapter, number))
    for chapter in chapters:
        for name in re.findall(r"`(\w+)`", " ".join(map(source_of, chapter.cells))):
            if name in EXERCISES:
                found.setdefault(name, Place(EXERCISES[name], chapter, ""))
    themes = {place.exercise.reference.__module__: place.chapter for place in reversed(found.values())}
    for name, exercise in EXERCISES.items():
        if (theme := themes.get(exercise.reference.__module__)) is not None:
            found.setdefault(name, Place(exercise, theme, ""))
    return sorted(found.values(), key=lambda place: chapters.index(place.chapter))
