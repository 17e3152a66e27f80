"""The exercises, by topic and in the order of the course; then those that ideas bring in a file `lesson.py`."""

import importlib

from ....core.arrays import rooms
from ..exercise import EXERCISES

_THEMES = (
    "derivatives linear softmax cross_entropy attention masks dropout heads normalization feed_forward residual tokens "
    "layers training positions cheaper experts inspection ranks"
)
for _theme in _THEMES.split():
    importlib.import_module(f".{_theme}", __name__)
rooms.load("lesson.py")

__all__ = ["EXERCISES"]
