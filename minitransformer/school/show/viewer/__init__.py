"""See where a model looks: its attention weights, and the gradients of a logit with respect to them, on one page."""

from .viewer import AttentionView, view

__all__ = ["AttentionView", "view"]
