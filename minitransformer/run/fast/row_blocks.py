"""Shared by the kernels: which calls they accept, and how rows are cut into blocks."""

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.ops.random_numbers import uniform
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


def class_of(part: Any) -> Any:
    """The class of a part; of a twin, that of its original."""
    return vars(type(part)).get("original", type(part))


_use_loops = True


def compiled(*arrays: Any, part: str = "loops") -> Any:
    """The module with this part of all loops, if it is compiled (compiler.py) and the arrays fit; otherwise None.

    They must be contiguous and float32.
    """
    for x in arrays:
        if x.dtype != _KINDS[0] or not x.flags.c_contiguous:
            return None
    return compiler.loops(part) if _use_loops else None


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


@functools.lru_cache(maxsize=64)
def _ones(n: int, dtype: Any) -> Any:
    return np.ones(n, dtype)


def keeps(rng: np.random.Generator, shape: tuple[int, ...], rate: float) -> Any:
    """Which elements dropout keeps: uniform(rng, shape) >= rate."""
    loops = compiled()
    if not loops:
        return uniform(rng, shape, like=_ones(1, _KINDS[0])) >= rate
    n = math.prod(shape)
    out = np.empty(n + n % 2, np.bool_)
    loops.keeps(rng.integers(2**64, dtype=np.uint64), np.float32(rate), out)
    return out[:n].reshape(shape)
