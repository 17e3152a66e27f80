"""Check the hand-derived gradients of inputs, parameters and every named intermediate, and name known mistakes."""

from ...core.arrays import strict
from ..trace.recorder import values_inside
from .catalogue import CASES, Case
from .gradients import gradients
from .report import Report, Row

__all__ = ["CASES", "Case", "Report", "Row", "gradients", "strict", "values_inside"]
