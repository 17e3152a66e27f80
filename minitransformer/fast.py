# What users import: the names of run/fast.
from .run import fast as _room
from .run.fast import *  # noqa: F403
from .run.fast import __doc__ as __doc__

__all__ = _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
