"""Checks that the hand-derived gradients are right: of inputs, parameters and every named intermediate."""

from . import strict
from .catalogue import CASES, Case
from .gradients import gradients
from .report import Report, Row
from .tracing import values_inside

__all__ = ["CASES", "Case", "Report", "Row", "gradients", "strict", "values_inside"]
