"""A window on both sides of each query, around a part that mixes. ModernBERT has it."""

from .layer import BothSides

__all__ = ["BothSides"]
