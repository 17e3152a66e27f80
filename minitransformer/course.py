# What users import: the names of school/course.
from .school import course as _room
from .school.course import *  # noqa: F403
from .school.course import __doc__ as __doc__

__all__ = _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
