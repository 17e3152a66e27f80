"""A gate on the output of attention, an idea in one folder: op, layers, cases and mistakes."""

from .layer import Columns, GatedAttention, OpenedFeedForward, Unchanged, gated_attention
from .op import sigmoid

__all__ = ["Columns", "GatedAttention", "OpenedFeedForward", "Unchanged", "gated_attention", "sigmoid"]
