"""Check the hand-derived gradients of inputs, parameters and every named intermediate, and name known mistakes."""

from ..arrays import strict
from ..trace.recorder import values_inside
from .catalogue import CASES, Case
from .diagnosis import Diagnosis, diagnose
from .expectation import check_gradients
from .from_jax import from_jax
from .from_pair import from_pair
from .from_torch import from_torch
from .gradients import gradients
from .report import Report, Row

__all__ = [
    "CASES",
    "Case",
    "Diagnosis",
    "Report",
    "Row",
    "check_gradients",
    "diagnose",
    "from_jax",
    "from_pair",
    "from_torch",
    "gradients",
    "strict",
    "values_inside",
]
