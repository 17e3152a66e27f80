"""Softcapped scores, an idea in one folder: op, layers, cases, mistakes, sentences, exercise, example and page.

No file outside this folder refers to it; `arrays/rooms.py` explains how the other rooms find its parts.
"""

from .layer import CappedOutput, SoftCapped
from .op import softcap, softcapped_attention

__all__ = ["CappedOutput", "SoftCapped", "softcap", "softcapped_attention"]
