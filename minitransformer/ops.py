# What users import: the names of core/ops.
from .core import ops as _room
from .core.ops import *  # noqa: F403
from .core.ops import __doc__ as __doc__

__all__ = _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
