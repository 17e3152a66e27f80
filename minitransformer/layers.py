# What users import: the names of core/layers.
from .core import layers as _room
from .core.layers import *  # noqa: F403
from .core.layers import __doc__ as __doc__

__all__ = _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
