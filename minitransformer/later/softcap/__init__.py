"""Softcapped scores, an idea in one folder: op, layers, cases, mistakes, sentences, exercise, example and page.

No file outside this folder knows of it; `arrays/rooms.py` says how the other rooms find what is here.
"""

from .layer import CappedOutput, SoftCapped
from .op import softcap, softcapped_attention

__all__ = ["CappedOutput", "SoftCapped", "softcap", "softcapped_attention"]
