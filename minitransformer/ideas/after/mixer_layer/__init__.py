"""A layer that mixes positions and does nothing else, as in Mamba."""

from .layer import MixerLayer

__all__ = ["MixerLayer"]
