"""Short causal convolution of each channel: op, layer, cases, mistakes, sentences, exercise, example and page."""

from .layer import ShortConvolution
from .op import short_convolution

__all__ = ["ShortConvolution", "short_convolution"]
