"""Shared by the kernels: which calls they accept, and how rows are cut into blocks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from . import compiler

BLOCK = 1 << 15  # numbers: 128 KiB of float32, so that a few such arrays fit into a core's cache
_KINDS = (np.dtype(np.float32), np.dtype(np.float64))


def takes(*arrays: Any) -> bool:
    """Whether these are non-empty NumPy arrays, all float32 or all float64. The textbook ops handle the rest."""
    kind = arrays[0].dtype if type(arrays[0]) is np.ndarray else None
    if kind not in _KINDS:  # float32 in the other byte order is not among them
        return False
    for x in arrays:  # noqa: SIM110 - a loop takes half the time, and every op calls this
        if type(x) is not np.ndarray or x.dtype != kind or not x.size:
            return False
    return True


_use_loops = True


def compiled(*arrays: Any) -> Any:
    """The module loops if it is compiled (compiler.py) and the arrays are contiguous and float32; otherwise None."""
    for x in arrays:
        if x.dtype != _KINDS[0] or not x.flags.c_contiguous:
            return None
    return compiler.loops() if _use_loops else None


@contextlib.contextmanager
def numpy_only() -> Iterator[None]:
    """Inside this context no thread uses the compiled loops: for tests and benchmarks of the NumPy forms."""
    global _use_loops
    before, _use_loops = _use_loops, False
    try:
        yield
    finally:
        _use_loops = before


def blocks(n_rows: int, row_size: int, block: int = BLOCK) -> Iterator[slice]:
    """Slices that cut n_rows rows into blocks of about `block` numbers."""
    step = max(1, block // row_size)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def row_sums(rows: Any) -> Any:
    """The sum of each row of an array with two axes, as a product with ones: BLAS is faster than `sum`."""
    return rows @ _ones(rows.shape[1], rows.dtype)


def column_sums(rows: Any) -> Any:
    """The sum of each column, in the same way."""
    return _ones(rows.shape[0], rows.dtype) @ rows


@functools.lru_cache(maxsize=64)
def _ones(n: int, dtype: Any) -> Any:
    return np.ones(n, dtype)


@dataclass(slots=True)
class Learned:
    """What an EncoderLayer has learned: six weights, their biases, γ and β of both norms. Made by `learned_by`."""

    parameters: list[Any]  # None for a missing bias
    values: tuple[Array, ...]  # zeros for a missing bias
    eps: tuple[Any, ...]  # of both norms

    @property
    def weights(self) -> tuple[Array, ...]:
        """Of query, key, value, output, inner and outer map."""
        return self.values[:6]

    @property
    def biases(self) -> tuple[Array, ...]:
        """In the same order."""
        return self.values[6:12]

    @property
    def norms(self) -> tuple[Array, ...]:
        """γ, β, γ, β."""
        return self.values[12:]

    @property
    def n_hidden(self) -> int:
        """The width of the feed-forward network."""
        return self.values[10].size


def parameters_of(layer: Any) -> list[Any]:
    """The Parameters of an EncoderLayer: six weights, their biases or None, γ and β of both norms."""
    a, f = layer.self_attention.sublayer, layer.feed_forward.sublayer
    maps = (a.query, a.key, a.value, a.output, f.inner, f.output)
    norms = (layer.self_attention.norm, layer.feed_forward.norm)
    return [*(m.weight for m in maps), *(m.bias for m in maps), *(p for n in norms for p in (n.gamma, n.beta))]


def learned_by(layer: Any, x: Array) -> Learned | None:
    """What an EncoderLayer has learned; None if an op would refuse some of it, or it is not contiguous float32."""
    parameters, attention = parameters_of(layer), layer.self_attention.sublayer
    values = tuple(
        np.zeros(parameters[i - 6].value.shape[-1:], x.dtype) if p is None else p.value
        for i, p in enumerate(parameters)
    )
    eps = [layer.self_attention.norm.eps, layer.feed_forward.norm.eps]
    if not takes(x, *values) or not compiled(*values) or x.ndim < 2 or attention.d_model != x.shape[-1]:
        return None
    if not all(type(e) in (int, float) and 0.0 < e < np.inf for e in eps):
        return None
    fits = _shapes_fit(values, attention.d_model, attention.n_heads)
    return Learned(parameters, values, tuple(map(np.float32, eps))) if fits else None


def _shapes_fit(values: tuple[Array, ...], width: int, n_heads: int) -> bool:
    """Whether the arrays have the shapes of such a layer. The loops would read past the end of a shorter array."""
    if type(n_heads) is not int or n_heads < 1 or width % n_heads:
        return False
    n_hidden = values[5].shape[0] if values[5].ndim else 0
    shapes: list[tuple[int, ...]] = [(width, width)] * 4 + [(width, n_hidden), (n_hidden, width)]
    return [a.shape for a in values] == shapes + [(width,)] * 4 + [(n_hidden,)] + [(width,)] * 5
