# What users import: the names of core/generation.
from .core import generation as _room
from .core.generation import *  # noqa: F403
from .core.generation import __doc__ as __doc__

__all__ = _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
