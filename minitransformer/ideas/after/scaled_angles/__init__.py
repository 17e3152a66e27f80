"""Rotary positions for longer texts than those of training: linear, dynamic, YaRN, Llama 3's, LongRoPE; partial ones.

`angles.py` has the mathematics, `layer.py` the part for the socket `turn`. Recipes in published/ use it.
"""

from .layer import ScaledRotary, scaled_turn

__all__ = ["ScaledRotary", "scaled_turn"]
