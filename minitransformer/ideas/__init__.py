"""Ideas from after the paper, and from before: a file for each, with its op and its layer. The core does not use them.

An op is a function of arrays, as in `ops`. A part that turns queries and keys, or mixes them with values, is passed to
`layers.MultiHeadAttention(turn=..., mix=...)`.
"""

from .after.alibi import LinearBias, alibi
from .after.around import Around
from .after.clamped_experts import clamped_swiglu
from .after.experts import MixtureOfExperts, load_balance, top_k_gates
from .after.flash_attention import flash_attention
from .after.gated import GatedFeedForward, gated
from .after.gated_delta import gated_delta
from .after.grouped import Grouped, grouped, repeat_heads
from .after.latent_attention import LatentAttention
from .after.linear_attention import LinearAttention, linear_attention
from .after.local import Local, local_attention
from .after.low_rank_linear import low_rank_linear
from .after.norm_over_axes import layer_norm_over_axes, rms_norm_over_axes
from .after.qk_norm import HeadNorm, qk_norm
from .after.relative_bias import RelativeBias, relative_bias
from .after.rotary import RotaryPositions, rotary, rotary_turn
from .after.rotate import rotate
from .after.sandwich import Normed, NormedUpdate, OffsetRMSNorm
from .after.score_bias import Biased
from .after.sink import Sink, sink_attention
from .after.softcap import SoftCapped, softcap, softcapped_attention
from .after.weighted_cross_entropy import weighted_cross_entropy
from .after.window import RollingCache, Window
from .before.alignment import Alignment, additive_attention
from .before.convolution import Convolution, convolution
from .before.gru_reset_first import gru_cell_reset_first
from .before.recurrent import Bidirectional, Recurrent, gru_cell, lstm_cell, rnn_cell
from .before.state_cache import StateCache

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
