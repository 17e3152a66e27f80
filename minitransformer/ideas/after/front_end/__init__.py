"""A convolutional front end: what turns many frames of sound into fewer vectors. All that belongs to it is here."""

from .layer import FrontEnd, StridedConvolution
from .op import strided_convolution

__all__ = ["FrontEnd", "StridedConvolution", "strided_convolution"]
