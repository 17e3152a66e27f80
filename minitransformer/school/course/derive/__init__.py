"""Exercises of the kind *derive*: an answer is a derivation, as one writes it on paper, and is marked by line."""

from .marking import Marked, mark
from .task import Derivation, task, tasks

__all__ = ["Derivation", "Marked", "mark", "task", "tasks"]
