"""Layers: modules that own parameters (Linear, LayerNorm, Embedding, ...) and modules composed of them.

A call returns `(output, backward)`. Calling `backward` adds to the `.grad` of every parameter that took part and
returns the gradients of the inputs.
"""

from .alignment import Alignment
from .attention import MultiHeadAttention, RelativeBias
from .blocks import Decoder, DecoderLayer, Encoder, EncoderLayer
from .cache import Cache, KeyValueCache, RollingCache, StateCache
from .convolution import Convolution
from .embedding import Embedding, InputEmbedding, LearnedPositions, SinusoidalPositions
from .experts import MixtureOfExperts
from .feed_forward import FeedForward
from .latent_attention import LatentAttention
from .linear import Linear
from .linear_attention import LinearAttention
from .module import Module, Parameter
from .normalization import LayerNorm, RMSNorm
from .recurrent import Bidirectional, Recurrent
from .residual import Checkpoint, Residual

__all__ = [
    "Alignment",
    "Bidirectional",
    "Cache",
    "Checkpoint",
    "Convolution",
    "Decoder",
    "DecoderLayer",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "InputEmbedding",
    "KeyValueCache",
    "LatentAttention",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "LinearAttention",
    "MixtureOfExperts",
    "Module",
    "MultiHeadAttention",
    "Parameter",
    "RMSNorm",
    "Recurrent",
    "RelativeBias",
    "Residual",
    "RollingCache",
    "SinusoidalPositions",
    "StateCache",
]
