"""Attention and feed-forward network side by side in one layer, as in GPT-J, GPT-NeoX and Phi."""

from .layer import ParallelLayer

__all__ = ["ParallelLayer"]
