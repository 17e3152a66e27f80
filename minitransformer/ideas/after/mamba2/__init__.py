"""Mamba-2, a layer around a state space: op, layer, cases and mistakes."""

from .layer import GroupedRMSNorm, Mamba2
from .op import softplus

__all__ = ["GroupedRMSNorm", "Mamba2", "softplus"]
