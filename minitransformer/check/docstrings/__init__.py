"""The derivations in the package's own docstrings, tried with numbers like anyone's."""

from .checking import Passage, Tried, check_one, counts, modules, names
from .reading import equations

__all__ = ["Passage", "Tried", "check_one", "counts", "equations", "modules", "names"]
