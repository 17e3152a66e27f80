"""What a model is trained for, from text files to a folder and back: translating, going on with a text, classifying."""

from . import classification, language, translation
from .run import Run, Task

TASKS: dict[str, Task] = {"translate": translation.TASK, "lm": language.TASK, "classify": classification.TASK}

__all__ = ["TASKS", "Run", "Task"]
