# What users import: the names of core/text, and what other wings add.
import functools
from typing import TYPE_CHECKING

from . import moved
from .core import text as _room
from .core.models.opening import load_tokenizer as load
from .core.text import *  # noqa: F403
from .core.text import __doc__ as __doc__
from .ideas.published.tokenizers import PublishedTokenizer

__all__ = ["PublishedTokenizer", "load"]
__all__ += _room.__all__
if not TYPE_CHECKING:
    __getattr__ = functools.partial(moved.no_attribute, __name__)
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
