"""What came after the paper: each idea in a file, plugged into a socket of the core, which knows nothing of it.

A part that turns queries and keys, or mixes them with values, goes into `layers.MultiHeadAttention(turn=..., mix=...)`.
"""

from .alignment import Alignment
from .around import Around
from .convolution import Convolution
from .experts import MixtureOfExperts
from .gated import GatedFeedForward
from .grouped import Grouped, grouped
from .latent_attention import LatentAttention
from .linear_attention import LinearAttention
from .local import Local
from .qk_norm import HeadNorm, qk_norm
from .recurrent import Bidirectional, Recurrent
from .rotary import RotaryPositions, rotary
from .sandwich import Normed, OffsetRMSNorm
from .score_bias import Biased, LinearBias, RelativeBias
from .sink import Sink
from .softcap import SoftCapped
from .window import RollingCache, Window

__all__ = [
    "Alignment",
    "Around",
    "Biased",
    "Bidirectional",
    "Convolution",
    "GatedFeedForward",
    "Grouped",
    "HeadNorm",
    "LatentAttention",
    "LinearAttention",
    "LinearBias",
    "Local",
    "MixtureOfExperts",
    "Normed",
    "OffsetRMSNorm",
    "Recurrent",
    "RelativeBias",
    "RollingCache",
    "RotaryPositions",
    "Sink",
    "SoftCapped",
    "Window",
    "grouped",
    "qk_norm",
    "rotary",
]
