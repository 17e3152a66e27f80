"""The tasks of a model, from text files to a folder and back: translation, continuing a text, classification."""

from typing import Any

from ..arrays import rooms
from . import classification, language, translation
from .task import Task

TASKS: dict[str, Task] = {"translate": translation.TASK, "lm": language.TASK, "classify": classification.TASK}

__all__ = ["TASKS", "Task"]


def __getattr__(name: str) -> Any:
    return rooms.brought(__name__, name)
