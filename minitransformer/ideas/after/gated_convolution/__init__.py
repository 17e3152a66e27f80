"""A short convolution between two gates, in place of attention: layer, cases and mistakes."""

from .layer import GatedConvolution

__all__ = ["GatedConvolution"]
