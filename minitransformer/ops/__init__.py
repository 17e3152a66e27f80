"""The mathematics: each op is a pure function of arrays that returns its output and its pullback, `(y, backward)`.

Each file holds one idea, with the derivation at its top and forward and backward together.
"""

from .activations import gated, gelu, relu, silu, tanh
from .additive_attention import additive_attention
from .alibi import alibi
from .attention import attention
from .convolution import convolution
from .cross_entropy import cross_entropy
from .dropout import dropout
from .embedding import embedding, learned_positions
from .experts import load_balance, top_k_gates
from .flash_attention import flash_attention
from .gated_delta import gated_delta
from .gru_reset_first import gru_cell_reset_first
from .heads import merge_heads, repeat_heads, split_heads
from .linear import linear, low_rank_linear
from .linear_attention import linear_attention
from .local_attention import local_attention
from .norm_over_axes import layer_norm_over_axes, rms_norm_over_axes
from .normalization import layer_norm, rms_norm
from .pooling import mean_pool
from .positions import sinusoidal_positions
from .recurrent import gru_cell, lstm_cell, rnn_cell
from .relative_bias import relative_bias
from .rotary import rotary
from .rotate import rotate
from .sink_attention import sink_attention
from .softmax import softmax
from .weighted_cross_entropy import weighted_cross_entropy

__all__ = [
    "additive_attention",
    "alibi",
    "attention",
    "convolution",
    "cross_entropy",
    "dropout",
    "embedding",
    "flash_attention",
    "gated",
    "gated_delta",
    "gelu",
    "gru_cell",
    "gru_cell_reset_first",
    "layer_norm",
    "layer_norm_over_axes",
    "learned_positions",
    "linear",
    "linear_attention",
    "load_balance",
    "local_attention",
    "low_rank_linear",
    "lstm_cell",
    "mean_pool",
    "merge_heads",
    "relative_bias",
    "relu",
    "repeat_heads",
    "rms_norm",
    "rms_norm_over_axes",
    "rnn_cell",
    "rotary",
    "rotate",
    "silu",
    "sink_attention",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "tanh",
    "top_k_gates",
    "weighted_cross_entropy",
]
