"""Gated DeltaNet, an idea in one folder: op, layer with its cache, cases and mistakes."""

from .layer import DeltaCache, GatedDeltaNet
from .op import step_decay

__all__ = ["DeltaCache", "GatedDeltaNet", "step_decay"]
