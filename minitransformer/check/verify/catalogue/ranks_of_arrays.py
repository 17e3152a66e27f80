"""Every number of axes (rank) of an input or mask of an op or layer, and values of ε on both sides of the default.

A backward pass may be right for a batch and yet wrong for a single sequence, or for one more axis: `dy.sum(axis=0)` is
an example. The other cases look at every entry, so these are checked in one direction for each array.

An op declares where its arrays have leading axes. So its first case becomes one for each rank, and for each rank of its
mask.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ....core import layers
from ....core.arrays.backend import Array
from .case import CASES, Case, Draw, Random, Setup, case, ids, known_ops, layer, op, some_mask

_LEADING = {n: (2, 3, 2, 6)[4 - n :] for n in range(5)}  # n axes before an input's own
_op, _layer = (partial(enter, along_directions=True) for enter in (op, layer))


def leading(shape: tuple[Any, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(rank, leading axes) for ranks 1 to 4 of an array of this shape, in which `...` stands for the leading axes."""
    own = len(shape) - 1
    return ((own + n, _LEADING[n]) for n in range(max(0, 1 - own), 5 - own))


def layer_of_every_rank(name: str, make: Callable[[], Any], *shapes: tuple[Any, ...]) -> None:
    """Enter a case for each rank of the first shape, in which `...` stands for the leading axes."""
    for rank, axes in leading(shapes[0]):
        _layer(f"{name} of rank {rank}", make, *((*axes, *own) for _, *own in shapes))


def of_every_op() -> None:
    """Enter a case for each rank of the inputs and of the mask of each op that has a case and declares leading axes."""
    first = {each.covers: each for each in reversed(CASES.values()) if each.kind == "op"}
    for name, declared in ((name, known_ops()[name].declaration) for name in known_ops() if name in first):  # type: ignore[attr-defined]
        own = [a.axes for a in declared.shaped if a.axes[:1] == ("...",)]
        for rank, axes in leading(own[0]) if own else ():
            case("op", f"{name} of rank {rank}", partial(_with_axes, first[name], declared, axes), True)
        for mask in (a for a in declared.broadcasting if a.kind == "booleans"):
            for n in range(len(axes) + len(mask.axes)):
                build = partial(_with_axes, first[name], declared, axes, mask=mask, rank=n)
                case("op", f"{name} with a mask of rank {n}", build, True)


def _with_axes(first: Case, declared: Any, axes: tuple[int, ...], r: Random, mask: Any = None, rank: int = 0) -> Setup:
    """A case with other leading axes: numbers of the same kind, and no mask, or one of this rank."""
    setup = first.build(r)
    given = dict(zip(declared.names, setup.inputs, strict=False)) | setup.options
    lengths: dict[str, int] = {}
    for a in (*declared.shaped, *declared.broadcasting):
        own, x = len(a.axes) - 1, given.get(a.name)
        if a.kind == "booleans":
            given[a.name] = None
        elif x is not None and a.axes[:1] == ("...",):
            shape = x.shape[x.ndim - own :]
            lengths |= dict(zip(a.axes[1:], shape, strict=False))
            given[a.name] = x if x.ndim == own and a.broadcasts else _alike(x, (*axes, *shape), r)
    if mask is not None:
        whole = (*axes, *(lengths[axis] for axis in mask.axes[1:]))
        shape, of_pairs = whole[len(whole) - rank :], min(rank, len(mask.axes) - 1) == 2
        given[mask.name] = (some_mask if of_pairs else _most)(*shape)(r)
    inputs = tuple(given.pop(name) for name in declared.names[: len(setup.inputs)])
    return dataclasses.replace(setup, inputs=inputs, options=given)


def _alike(x: Array, shape: tuple[int, ...], r: Random) -> Array:
    """Numbers of this shape that are of the same kind as those of x: integers that occur in it, floats near others."""
    if x.dtype.kind != "f":
        return np.asarray(r.choice(x[x >= 0], shape))
    return np.asarray(r.choice(x.ravel(), shape) * r.uniform(0.5, 1.5, shape))


def _most(*shape: int) -> Draw:
    """A mask of which most is True, and the first entry of each row."""
    return lambda r: (r.random(shape) < 0.7) | (np.arange(shape[-1]) == 0) if shape else np.array(True)


for _rank, _axes in leading((4, ...)):
    _op(f"softmax along the first axis of rank {_rank}", (4, *_axes), axis=0)
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
layer_of_every_rank("Recompute", lambda: layers.Recompute(layers.EncoderLayer(4, 2, 6, **_GELU)), (..., 3, 4))
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
