# What users import: the names of check/verify, and what other wings add.
from .check import verify as _room
from .check.derivation import DerivationReport, derivation
from .check.referee.diagnosis import Diagnosis, diagnose
from .check.referee.expectation import check_gradients
from .check.referee.from_jax import from_jax
from .check.referee.from_pair import from_pair
from .check.referee.from_torch import from_torch
from .check.verify import *  # noqa: F403
from .check.verify import __doc__ as __doc__

__all__ = [
    "DerivationReport",
    "Diagnosis",
    "check_gradients",
    "derivation",
    "diagnose",
    "from_jax",
    "from_pair",
    "from_torch",
]
__all__ += _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
