# What users import: the names of core/models, and what other wings add.
import functools
from typing import TYPE_CHECKING

from . import moved
from .core import models as _room
from .core.models import *  # noqa: F403
from .core.models import __doc__ as __doc__
from .ideas import published as _published
from .ideas.published import *  # noqa: F403

__all__ = _room.__all__ + _published.__all__
if not TYPE_CHECKING:
    __getattr__ = functools.partial(moved.no_attribute, __name__)
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
