# What users import: the names of core/text, and what other wings add.
from .core import text as _room
from .core.text import *  # noqa: F403
from .core.text import __doc__ as __doc__
from .ideas.published.tokenizers import PublishedTokenizer, load, load_published

__all__ = ["PublishedTokenizer", "load", "load_published"]
__all__ += _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
