"""Written derivations, checked line by line on numbers."""

from .checking import derivation
from .report import DerivationReport, Line

__all__ = ["DerivationReport", "Line", "derivation"]
