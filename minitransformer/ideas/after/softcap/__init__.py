"""Softcapped scores, an idea in one folder: op, layers, cases, mistakes, sentences, exercise, example and page.

Checker, course, stepper and site do not name it; `core/arrays/rooms.py` says how they find what is here. Only what
uses it does: the recipe of Gemma 2, and the pictures of weights in `inspect/`.
"""

from .layer import CappedOutput, SoftCapped
from .op import softcap, softcapped_attention

__all__ = ["CappedOutput", "SoftCapped", "softcap", "softcapped_attention"]
