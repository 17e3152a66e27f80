"""Every rank that an input or a mask of an op or layer may have, and values of ε on both sides of the default.

A backward pass may be right for a batch and yet wrong for a single sequence, or for one more axis: `dy.sum(axis=0)` is
an example. The other cases look at every entry, so these are checked in one direction for each array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ... import layers
from .case import Draw, frozen, gain, ids, layer, op, some_mask

_LEADING = {n: (2, 3, 2, 6)[4 - n :] for n in range(5)}  # n axes before an input's own
_op, _layer = (partial(enter, along_directions=True) for enter in (op, layer))


def _ranks(shape: tuple[Any, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(rank, leading axes) for ranks 1 to 4 of an array of this shape, in which `...` stands for the leading axes."""
    own = len(shape) - 1
    return ((own + n, _LEADING[n]) for n in range(max(0, 1 - own), 5 - own))


def _with(axes: tuple[int, ...], x: Any) -> Any:
    """A shape with `axes` in place of `...`; any other value unchanged."""
    if not isinstance(x, tuple) or ... not in x:
        return x
    at = x.index(...)
    return (*x[:at], *axes, *x[at + 1 :])


def _op_of_every_rank(name: str, *arguments: Any, **options: Any) -> None:
    for rank, axes in _ranks(arguments[0]):
        _op(f"{name} of rank {rank}", *(_with(axes, x) for x in arguments), **options)


def layer_of_every_rank(name: str, make: Callable[[], Any], *shapes: tuple[Any, ...]) -> None:
    """Enter a case for each rank of the first shape, in which `...` stands for the leading axes."""
    for rank, axes in _ranks(shapes[0]):
        _layer(f"{name} of rank {rank}", make, *(_with(axes, x) for x in shapes))


_op_of_every_rank("linear", (..., 4), (4, 3), (3,))
_op_of_every_rank("low_rank_linear", (..., 4), (4, 2), (2, 3))
_op_of_every_rank("softmax", (..., 4), temperature=1.5)
_op_of_every_rank("softmax along the first axis", (4, ...), axis=0)
_op_of_every_rank("layer_norm", (..., 4), gain(4), gain(4))
_op_of_every_rank("rms_norm", (..., 4), gain(4))
for _name in ("relu", "gelu", "silu", "tanh"):
    _op_of_every_rank(_name, (...,))
_op_of_every_rank("gated", (...,), (...,))
_op_of_every_rank("dropout", (...,), 0.4, rng=frozen)
_op_of_every_rank("split_heads", (..., 3, 4), 2)
_op_of_every_rank("merge_heads", (..., 2, 3, 2))
_op_of_every_rank("repeat_heads", (..., 2, 3, 2), 2)
_op_of_every_rank("rotary", (..., 3, 4), start=1, base=5e5)
for _rank, _axes in _ranks((...,)):
    _op(f"embedding of rank {_rank}", ids(6, *_axes), (6, 3))
for _rank, _axes in _ranks((..., 4)):
    _op(f"cross_entropy of rank {_rank}", (*_axes, 4), ids(4, *_axes))
    _op(f"weighted_cross_entropy of rank {_rank}", (*_axes, 4), ids(4, *_axes), gain(4))
_op_of_every_rank("mean_pool", (..., 3, 4))
_op_of_every_rank("rnn_cell", (..., 3), (..., 3), (3, 3))
_op_of_every_rank("lstm_cell", (..., 8), (..., 4), (2, 8))
_op_of_every_rank("gru_cell", (..., 6), (..., 2), (2, 6), (6,))
_op_of_every_rank("gru_cell_reset_first", (..., 6), (..., 2), (2, 6))
_op_of_every_rank("rotate", (..., 3, 6), (3, 2), (3, 2))
_op_of_every_rank("layer_norm_over_axes", (..., 4), gain(4), gain(4))
_op_of_every_rank("rms_norm_over_axes", (..., 4), gain(4))
_op_of_every_rank("gated_delta", (..., 4, 2), (..., 4, 2), (..., 4, 3), (..., 4, 2), (..., 4))
_op_of_every_rank("convolution", (..., 4, 2), (3, 2, 3), (3,))
_op_of_every_rank("additive_attention", (..., 3, 4), (..., 5, 4), (..., 5, 2), (4,))
_op_of_every_rank("top_k_gates", (..., 4))
_op_of_every_rank("load_balance", (..., 4))
_op_of_every_rank("local_attention", (..., 5, 4), (..., 5, 4), (..., 5, 2), radius=2)
_op_of_every_rank("flash_attention", (..., 3, 4), (..., 5, 4), (..., 5, 2), tile=2)
_op_of_every_rank("linear_attention", (..., 5, 4), (..., 5, 4), (..., 5, 2), block=2)
_op_of_every_rank("sink_attention", (..., 2, 3, 4), (..., 2, 5, 4), (..., 2, 5, 2), (2,))
_op_of_every_rank("attention", (..., 3, 4), (..., 5, 4), (..., 5, 6))


def _most(share: float, *shape: int) -> Draw:
    """A mask with about this share of True."""
    return lambda r: np.asarray(r.random(shape) < share)


_MASKS: list[Draw] = [
    lambda r: np.array(True),
    lambda r: np.array([True, False, True, True, False]),
    some_mask(3, 5),
    some_mask(7, 3, 5),
    some_mask(2, 7, 3, 5),
]
_QK = (2, 7, 3, 4), (2, 7, 5, 4)
_QKV = (2, 7, 5, 4), (2, 7, 5, 4), (2, 7, 5, 2)
for _n, _mask in enumerate(_MASKS):  # most masks are drawn before the inputs
    _about, _first = f"with a mask of rank {_n}", {"options_first": True}
    _op(f"attention {_about}", *_QK, (2, 7, 5, 6), mask=_mask, **_first)
    _op(f"additive_attention {_about}", *_QK, (2, 7, 5, 2), (4,), mask=_mask, **_first)
    _op(f"sink_attention {_about}", *_QK, (2, 7, 5, 2), (7,), mask=_mask, **_first)
    if _n < 4:
        _keys = _most(0.8, *(2, 7, 5)[3 - _n :])
        _op(f"flash_attention {_about}", *_QKV, mask=_keys, **_first)
        _op(f"linear_attention {_about}", *_QKV, mask=_keys, **_first)
        _op(f"mean_pool {_about}", (2, 3, 5, 4), _most(0.7, *(2, 3, 5)[3 - _n :]))
        _op(f"local_attention {_about}", *_QKV, mask=_keys, radius=2, **_first)

for _eps in (1e-12, 1e-6, 1e-2):
    _op(f"layer_norm with ε = {_eps}", (3, 4), (4,), (4,), eps=_eps)
    _op(f"rms_norm with ε = {_eps}", (3, 4), (4,), eps=_eps)
    _op(f"layer_norm_over_axes with ε = {_eps}", (3, 2, 4), gain((2, 4)), gain((2, 4)), eps=_eps)
    _op(f"rms_norm_over_axes with ε = {_eps}", (3, 2, 4), gain((2, 4)), eps=_eps)
    _layer(f"LayerNorm with ε = {_eps}", partial(layers.LayerNorm, 4, _eps), (3, 4))
    _layer(f"RMSNorm with ε = {_eps}", partial(layers.RMSNorm, 4, _eps), (3, 4))

_GELU: dict[str, Any] = {"activation": "gelu"}
layer_of_every_rank("Linear", lambda: layers.Linear(4, 3), (..., 4))
layer_of_every_rank("LayerNorm", lambda: layers.LayerNorm(4), (..., 4))
layer_of_every_rank("RMSNorm", lambda: layers.RMSNorm(4), (..., 4))
layer_of_every_rank("FeedForward", lambda: layers.FeedForward(4, 6, **_GELU), (..., 4))
layer_of_every_rank(
    "Residual around a feed-forward network",
    lambda: layers.Residual(layers.FeedForward(4, 6, **_GELU), layers.LayerNorm(4)),
    (..., 4),
)
layer_of_every_rank("SinusoidalPositions", lambda: layers.SinusoidalPositions(4), (..., 3, 4))
layer_of_every_rank("LearnedPositions", lambda: layers.LearnedPositions(5, 4), (..., 3, 4))
layer_of_every_rank("ScaledDotProduct", lambda: layers.ScaledDotProduct(0.7), (..., 3, 4), (..., 5, 4), (..., 5, 2))
layer_of_every_rank("MultiHeadAttention", lambda: layers.MultiHeadAttention(4, 2), (..., 3, 4))
layer_of_every_rank("EncoderLayer", lambda: layers.EncoderLayer(4, 2, 6, **_GELU), (..., 3, 4))
layer_of_every_rank("Encoder", lambda: layers.Encoder(1, 4, 2, 6, **_GELU), (..., 3, 4))
layer_of_every_rank("Checkpoint", lambda: layers.Checkpoint(layers.EncoderLayer(4, 2, 6, **_GELU)), (..., 3, 4))
for _rank, _axes in _ranks((...,)):
    _layer(f"Embedding of rank {_rank}", lambda: layers.Embedding(6, 3), ids(6, *_axes))
for _rank, _axes in _ranks((..., 3)):
    _layer(
        f"InputEmbedding of rank {_rank}",
        lambda: layers.InputEmbedding(layers.Embedding(6, 4), layers.LearnedPositions(5, 4)),
        ids(6, *_axes, 3),
    )
layer_of_every_rank("DecoderLayer", lambda: layers.DecoderLayer(4, 2, 6, **_GELU), (..., 3, 4), (..., 2, 4))
layer_of_every_rank("Decoder", lambda: layers.Decoder(1, 4, 2, 6, **_GELU), (..., 3, 4), (..., 2, 4))
