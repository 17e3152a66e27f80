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


def leading(shape: tuple[Any, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(rank, leading axes) for ranks 1 to 4 of an array of this shape, in which `...` stands for the leading axes."""
    own = len(shape) - 1
    return ((own + n, _LEADING[n]) for n in range(max(0, 1 - own), 5 - own))


def _with(axes: tuple[int, ...], x: Any) -> Any:
    """A shape with `axes` in place of `...`; any other value unchanged."""
    if not isinstance(x, tuple) or ... not in x:
        return x
    at = x.index(...)
    return (*x[:at], *axes, *x[at + 1 :])


def op_of_every_rank(name: str, *arguments: Any, **options: Any) -> None:
    """Enter a case for each rank of the first argument, in which `...` stands for the leading axes."""
    for rank, axes in leading(arguments[0]):
        _op(f"{name} of rank {rank}", *(_with(axes, x) for x in arguments), **options)


def layer_of_every_rank(name: str, make: Callable[[], Any], *shapes: tuple[Any, ...]) -> None:
    """Enter a case for each rank of the first shape, in which `...` stands for the leading axes."""
    for rank, axes in leading(shapes[0]):
        _layer(f"{name} of rank {rank}", make, *(_with(axes, x) for x in shapes))


op_of_every_rank("linear", (..., 4), (4, 3), (3,))
op_of_every_rank("softmax", (..., 4), temperature=1.5)
op_of_every_rank("softmax along the first axis", (4, ...), axis=0)
op_of_every_rank("layer_norm", (..., 4), gain(4), gain(4))
op_of_every_rank("rms_norm", (..., 4), gain(4))
for _name in ("relu", "gelu", "silu", "tanh"):
    op_of_every_rank(_name, (...,))
op_of_every_rank("dropout", (...,), 0.4, rng=frozen)
op_of_every_rank("split_heads", (..., 3, 4), 2)
op_of_every_rank("merge_heads", (..., 2, 3, 2))
for _rank, _axes in leading((...,)):
    _op(f"embedding of rank {_rank}", ids(6, *_axes), (6, 3))
for _rank, _axes in leading((..., 4)):
    _op(f"cross_entropy of rank {_rank}", (*_axes, 4), ids(4, *_axes))
op_of_every_rank("mean_pool", (..., 3, 4))
op_of_every_rank("attention", (..., 3, 4), (..., 5, 4), (..., 5, 6))


def most(share: float, *shape: int) -> Draw:
    """A mask with about this share of True."""
    return lambda r: np.asarray(r.random(shape) < share)


MASKS: list[Draw] = [
    lambda r: np.array(True),
    lambda r: np.array([True, False, True, True, False]),
    some_mask(3, 5),
    some_mask(7, 3, 5),
    some_mask(2, 7, 3, 5),
]
_QK = (2, 7, 3, 4), (2, 7, 5, 4)
for _n, _mask in enumerate(MASKS):  # most masks are drawn before the inputs
    _about, _first = f"with a mask of rank {_n}", {"options_first": True}
    _op(f"attention {_about}", *_QK, (2, 7, 5, 6), mask=_mask, **_first)
    if _n < 4:
        _op(f"mean_pool {_about}", (2, 3, 5, 4), most(0.7, *(2, 3, 5)[3 - _n :]))

EPS = (1e-12, 1e-6, 1e-2)
for _eps in EPS:
    _op(f"layer_norm with ε = {_eps}", (3, 4), (4,), (4,), eps=_eps)
    _op(f"rms_norm with ε = {_eps}", (3, 4), (4,), eps=_eps)
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
for _rank, _axes in leading((...,)):
    _layer(f"Embedding of rank {_rank}", lambda: layers.Embedding(6, 3), ids(6, *_axes))
for _rank, _axes in leading((..., 3)):
    _layer(
        f"InputEmbedding of rank {_rank}",
        lambda: layers.InputEmbedding(layers.Embedding(6, 4), layers.LearnedPositions(5, 4)),
        ids(6, *_axes, 3),
    )
layer_of_every_rank("DecoderLayer", lambda: layers.DecoderLayer(4, 2, 6, **_GELU), (..., 3, 4), (..., 2, 4))
layer_of_every_rank("Decoder", lambda: layers.Decoder(1, 4, 2, 6, **_GELU), (..., 3, 4), (..., 2, 4))
