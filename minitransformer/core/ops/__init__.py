"""The mathematics: each op is a pure function of arrays that returns its output and its pullback, `(y, backward)`.
`sinusoidal_positions` alone has no input with a gradient, and returns its table.

Each file holds one idea, with the derivation at its top and forward and backward together.

An op checks its arguments, because users call it. A layer has already checked what it passes on, or made it, so layers
compute with `trusting`: the same functions without their checks, except those that take ids or targets, whose range
only the op knows.
"""

from types import SimpleNamespace

from ..arrays.declared import inside, takes_ids
from .activations import gelu, relu, silu, tanh
from .attention import attention
from .cross_entropy import cross_entropy
from .dropout import dropout
from .embedding import embedding, learned_positions
from .heads import merge_heads, split_heads
from .linear import linear
from .normalization import layer_norm, rms_norm
from .pooling import mean_pool
from .positions import sinusoidal_positions
from .softmax import softmax

__all__ = [
    "attention",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "layer_norm",
    "learned_positions",
    "linear",
    "mean_pool",
    "merge_heads",
    "relu",
    "rms_norm",
    "silu",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "tanh",
]


checking = SimpleNamespace(**{name: globals()[name] for name in __all__})
trusting = SimpleNamespace(**{name: op if takes_ids(op) else inside(op) for name, op in vars(checking).items()})
