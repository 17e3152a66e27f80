"""Check the hand-derived gradients of inputs, parameters and every named intermediate, and name known mistakes."""

from typing import Any

from ..arrays import rooms, strict
from ..trace.recorder import values_inside
from .catalogue import CASES, Case
from .gradients import gradients
from .report import Report, Row

__all__ = [
    "CASES",
    "Case",
    "Report",
    "Row",
    "gradients",
    "strict",
    "values_inside",
]
__all__ += rooms.names_for("verify")


def __getattr__(name: str) -> Any:
    return rooms.brought(__name__, name)
