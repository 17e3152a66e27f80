"""Ideas from after the paper, and from before: a file for each, with its op and its layer. The core does not use them.

An op is a function of arrays, as in `ops`. A part that turns queries and keys, or mixes them with values, is passed to
`layers.MultiHeadAttention(turn=..., mix=...)`.
"""

from .alibi import LinearBias, alibi
from .alignment import Alignment, additive_attention
from .around import Around
from .clamped_experts import clamped_swiglu
from .convolution import Convolution, convolution
from .experts import MixtureOfExperts, load_balance, top_k_gates
from .flash_attention import flash_attention
from .gated import GatedFeedForward, gated
from .gated_delta import gated_delta
from .grouped import Grouped, grouped, repeat_heads
from .gru_reset_first import gru_cell_reset_first
from .latent_attention import LatentAttention
from .linear_attention import LinearAttention, linear_attention
from .local import Local, local_attention
from .low_rank_linear import low_rank_linear
from .norm_over_axes import layer_norm_over_axes, rms_norm_over_axes
from .qk_norm import HeadNorm, qk_norm
from .recurrent import Bidirectional, Recurrent, gru_cell, lstm_cell, rnn_cell
from .relative_bias import RelativeBias, relative_bias
from .rotary import RotaryPositions, rotary, rotary_turn
from .rotate import rotate
from .sandwich import Normed, NormedUpdate, OffsetRMSNorm
from .score_bias import Biased
from .sink import Sink, sink_attention
from .softcap import SoftCapped, softcap, softcapped_attention
from .state_cache import StateCache
from .weighted_cross_entropy import weighted_cross_entropy
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
    "NormedUpdate",
    "OffsetRMSNorm",
    "Recurrent",
    "RelativeBias",
    "RollingCache",
    "RotaryPositions",
    "Sink",
    "SoftCapped",
    "StateCache",
    "Window",
    "additive_attention",
    "alibi",
    "clamped_swiglu",
    "convolution",
    "flash_attention",
    "gated",
    "gated_delta",
    "grouped",
    "gru_cell",
    "gru_cell_reset_first",
    "layer_norm_over_axes",
    "linear_attention",
    "load_balance",
    "local_attention",
    "low_rank_linear",
    "lstm_cell",
    "qk_norm",
    "relative_bias",
    "repeat_heads",
    "rms_norm_over_axes",
    "rnn_cell",
    "rotary",
    "rotary_turn",
    "rotate",
    "sink_attention",
    "softcap",
    "softcapped_attention",
    "top_k_gates",
    "weighted_cross_entropy",
]
