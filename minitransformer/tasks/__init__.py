"""The tasks of a model, from text files to a folder and back: translation, continuing a text, classification."""

from typing import TYPE_CHECKING

from ..arrays.lazy import at_first_use
from . import classification, language, translation
from .task import Task

TASKS: dict[str, Task] = {"translate": translation.TASK, "lm": language.TASK, "classify": classification.TASK}

if TYPE_CHECKING:  # of other rooms, which are imported at the first use
    from ..machines.run import Run
else:
    __getattr__, __dir__ = at_first_use(__name__)

__all__ = ["TASKS", "Run", "Task"]
