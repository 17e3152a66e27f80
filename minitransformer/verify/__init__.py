"""Checks that the hand-derived gradients are right: of inputs, parameters and every named intermediate."""

from . import strict
from .catalogue import CASES, Case
from .gradients import gradients
from .report import Report, Row
from .tracing import values_inside
from .wrong_variants import VARIANTS, WrongVariant

__all__ = ["CASES", "VARIANTS", "Case", "Report", "Row", "WrongVariant", "gradients", "strict", "values_inside"]
