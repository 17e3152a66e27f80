"""Checks that the hand-derived gradients are right: of inputs, parameters and every named intermediate."""

from .gradients import gradients
from .report import Report, Row
from .tracing import values_inside

__all__ = ["Report", "Row", "gradients", "values_inside"]
