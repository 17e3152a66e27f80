"""Products with packed weights: rows are unpacked into the cache and multiplied there, by all threads.

For a few rows of x, as when a token is written, one loop unpacks a row and multiplies it at once. For many, rows are
unpacked in blocks, and BLAS multiplies.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...ideas.published import packed as textbook
from ..machines.threads import blas_threads, together
from .row_blocks import blocks, compiled

FEW, TILE = 8, 1 << 20  # rows of x; numbers unpacked at once, 4 MiB
SHARED = 1 << 19  # numbers that justify a second thread


def packed_product(x: Array, weight: textbook.PackedWeight) -> Array:
    """See ideas/published/packed.py."""
    if not (compiled(x) and (loops := _loops())) or weight.kind not in loops.KINDS:
        return textbook.packed_product(x, weight)
    rows, kind, n_out = weight.rows, loops.KINDS[weight.kind], len(weight.rows)
    whole = textbook.packing.numbers_in(rows, weight.kind)
    flat = x.reshape(-1, weight.width)
    if whole > weight.width:
        flat = np.pad(flat, ((0, 0), (0, whole - weight.width)))
    y = np.empty((len(flat), n_out), np.float32)
    if len(flat) <= FEW:
        _shared(n_out * whole, loops.product, kind, flat, rows, y, loops.counters(1))
        return y.reshape(*x.shape[:-1], n_out)
    for part in blocks(n_out, whole, TILE):
        numbers = np.empty((part.stop - part.start, whole), np.float32)
        _shared(numbers.size, loops.unpack, kind, rows[part], numbers, loops.counters(1))
        y[:, part] = flat @ numbers.T
    return y.reshape(*x.shape[:-1], n_out)


def _shared(numbers: int, loop: Any, *arguments: Any) -> None:
    together(loop, [arguments] * (min(blas_threads(), 8) if numbers >= SHARED else 1))


@functools.cache
def _loops() -> Any:
    from . import packed_loops

    return packed_loops
