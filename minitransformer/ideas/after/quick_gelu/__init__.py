"""A quick GELU, an idea in one folder: op, cases and mistakes."""

from .op import quick_gelu

__all__ = ["quick_gelu"]
