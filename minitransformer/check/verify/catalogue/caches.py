"""Cases that read with a cache or with padding: the output must equal that of one pass over each sequence alone.

A call with a cache has no pullback. So f(x) reads x piece by piece and returns the pullback of the pass over all of it:
if the two differed anywhere, finite differences would show it. The values are compared as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import layers, models
from ....core.arrays.backend import Array, Pullback, array_module, device_of, to_device
from .case import Random, Setup, call, case, ordinary

_PIECES = [(0, 2), (2, 3), (3, 5)]


def read_in_pieces(
    name: str,
    make: Callable[[], Any],
    *shapes: tuple[int, ...],
    cache: Callable[[], Any] = layers.KeyValueCache,
    along_directions: bool = False,
    whole: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Enter a case of a layer or stack that reads five tokens in three pieces. shapes: of x and perhaps of a memory.

    whole: the options of the pass over all tokens, if they are not `options`.
    """
    at_once = options if whole is None else whole

    def build(r: Random) -> Setup:
        layer = ordinary(make(), r)

        def piece_by_piece(x: Array, *memory: Array) -> tuple[Array, Pullback]:
            kept = cache()
            parts = [layer(x[:, start:stop], *memory, cache=kept, **options)[0] for start, stop in _PIECES]
            there = {
                name: to_device(o, device_of(x).name) if isinstance(o, np.ndarray) else o for name, o in at_once.items()
            }
            return array_module(x).concatenate(parts, axis=1), layer(x, *memory, **there)[1]

        setup = call(r, piece_by_piece, *shapes, module=layer)
        return Setup(setup.f, setup.inputs, {}, layer, lambda *inputs: layer(*inputs, **at_once)[0], False)

    case("layer", name, build, along_directions)


X, _MEMORY = (2, 5, 8), (2, 3, 8)
_SIZES: dict[str, Any] = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_ff": 6, "norm_order": "pre"}
read_in_pieces("MultiHeadAttention with a cache", lambda: layers.MultiHeadAttention(8, 4), X, causal=True)
read_in_pieces(
    "MultiHeadAttention with a cache, across to a memory", lambda: layers.MultiHeadAttention(8, 4), X, _MEMORY
)
_STACK: dict[str, Any] = {"cache": lambda: layers.Cache(2), "along_directions": True}
read_in_pieces("Encoder with a cache", lambda: layers.Encoder(**_SIZES), X, **_STACK, causal=True)
read_in_pieces("Decoder with a cache", lambda: layers.Decoder(**_SIZES), X, _MEMORY, **_STACK)


def small(kind: Callable[..., Any] = models.LanguageModelConfig, **options: Any) -> Callable[[Random], Any]:
    """A small language model. kind: the class of its config."""
    sizes: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6, "max_length": 6, "n_layers": 1, "dropout": 0.0}
    return lambda r: ordinary(models.LanguageModel(kind(7, **(sizes | options))), r)


IDS = np.array([[1, 5, 5, 2, 0], [1, 4, 0, 1, 6]])
REAL = np.array([[False, False, True, True, True], [True] * 5])  # padded on the left


def each_alone(model: Callable[..., Any], ids: Array) -> Array:
    """The output for the real tokens of each sequence by itself; NaN for padding, where any number is right."""
    rows = [model(row[None, real])[0][0] for row, real in zip(ids, REAL, strict=True)]
    return np.stack([np.pad(y, ((len(ids[0]) - len(y), 0), (0, 0)), constant_values=np.nan) for y in rows])


def with_cache(make: Callable[[Random], Any]) -> Callable[[Random], Setup]:
    """A language model that reads with a cache, piece by piece."""

    def build(r: Random) -> Setup:
        model = make(r)

        def piece_by_piece(ids: Array) -> tuple[Array, Pullback]:
            kept = model.new_cache()
            parts = [model(ids[:, start:stop], cache=kept)[0] for start, stop in _PIECES]
            return array_module(parts[0]).concatenate(parts, axis=1), model(ids)[1]

        return Setup(piece_by_piece, (IDS,), {}, model, lambda ids: model(ids)[0], False)

    return build


def padded(make: Callable[[Random], Any]) -> Callable[[Random], Setup]:
    """A language model that reads sequences padded on the left."""

    def build(r: Random) -> Setup:
        model = make(r)
        options = {"mask": REAL, "positions": np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])}
        return Setup(model, (IDS,), options, model, lambda ids, **_: each_alone(model, ids), False)

    return build


case("model", "LanguageModel with a cache", with_cache(small()))
case("model", "LanguageModel padded on the left", padded(small()))
