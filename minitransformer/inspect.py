# What users import: the names of school/inspect.
from .school import inspect as _room
from .school.inspect import *  # noqa: F403
from .school.inspect import __doc__ as __doc__

__all__ = _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
