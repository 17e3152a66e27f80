"""The tasks of a model, from text files to a folder and back: translation, continuing a text, classification."""

from . import classification, language, translation
from .task import Task

TASKS: dict[str, Task] = {"translate": translation.TASK, "lm": language.TASK, "classify": classification.TASK}


__all__ = ["TASKS", "Task"]
