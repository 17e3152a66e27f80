"""Check the hand-derived gradients of inputs, parameters and every named intermediate, and name known mistakes."""

from typing import TYPE_CHECKING

from ..arrays import strict
from ..arrays.lazy import at_first_use
from ..trace.recorder import values_inside
from .catalogue import CASES, Case
from .gradients import gradients
from .report import Report, Row

if TYPE_CHECKING:  # of other rooms, which are imported at the first use
    from ..referee.diagnosis import Diagnosis, diagnose
    from ..referee.expectation import check_gradients
    from ..referee.from_jax import from_jax
    from ..referee.from_pair import from_pair
    from ..referee.from_torch import from_torch
else:
    __getattr__, __dir__ = at_first_use(__name__)

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
