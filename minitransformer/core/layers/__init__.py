"""Layers: modules that own parameters (Linear, LayerNorm, Embedding, ...) and modules composed of them.

A call returns `(output, backward)`. Calling `backward` adds to the `.grad` of every parameter that took part and
returns the gradients of the inputs.
"""

from .attention import MultiHeadAttention
from .blocks import Decoder, DecoderLayer, Encoder, EncoderLayer
from .cache import Cache, KeyValueCache
from .embedding import Embedding, InputEmbedding, LearnedPositions, SinusoidalPositions
from .feed_forward import FeedForward
from .linear import Linear
from .module import Module, Parameter
from .normalization import LayerNorm, RMSNorm
from .part_cost import Cost
from .residual import Recompute, Residual
from .scaled_dot_product import ScaledDotProduct

__all__ = [
    "Cache",
    "Cost",
    "Decoder",
    "DecoderLayer",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "InputEmbedding",
    "KeyValueCache",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "Parameter",
    "RMSNorm",
    "Recompute",
    "Residual",
    "ScaledDotProduct",
    "SinusoidalPositions",
]
