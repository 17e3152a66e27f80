"""Kimi Delta Attention, the gated delta rule with a decay for each channel: op, layer, cases and mistakes."""

from .layer import KimiDeltaAttention, NarrowMap
from .op import channel_chunk

__all__ = ["KimiDeltaAttention", "NarrowMap", "channel_chunk"]
