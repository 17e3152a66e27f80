"""Patches, an idea in one folder: an image becomes a sequence. Op, layer, cases, mistakes, exercise, example, page."""

from .layer import PatchEmbedding
from .op import patches

__all__ = ["PatchEmbedding", "patches"]
