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
from .heads import merge_heads, repeat_heads, split_heads
from .linear import linear, low_rank_linear
from .linear_attention import linear_attention
from .local_attention import local_attention
from .normalization import layer_norm, rms_norm
from .pooling import mean_pool
from .positions import sinusoidal_positions
from .recurrent import gru_cell, lstm_cell, rnn_cell
from .relative_bias import relative_bias
from .rotary import rotary
from .sink_attention import sink_attention
from .softmax import softmax

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
    "gelu",
    "gru_cell",
    "layer_norm",
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
    "rnn_cell",
    "rotary",
    "silu",
    "sink_attention",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "tanh",
    "top_k_gates",
]
