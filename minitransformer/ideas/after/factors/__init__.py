"""Constant factors on updates and on logits: layers, cases and mistakes."""

from .layer import ScaledOutput, ScaledUpdate

__all__ = ["ScaledOutput", "ScaledUpdate"]
