"""Differential attention, an idea in one folder: op, layer, cases, mistakes, sentences, exercise, example and page."""

from .layer import Differential
from .op import difference_factor, differential_attention

__all__ = ["Differential", "difference_factor", "differential_attention"]
