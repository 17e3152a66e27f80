"""A contrastive loss over a batch of pairs: ops, cases, mistakes, sentences, exercise, example and page."""

from .op import contrastive_loss, scaled_cosines, unit_length

__all__ = ["contrastive_loss", "scaled_cosines", "unit_length"]
