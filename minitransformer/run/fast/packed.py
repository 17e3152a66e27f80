"""Products with packed weights: rows are unpacked into the cache and multiplied there, by all threads.

For a few rows of x, as when a token is written, one loop unpacks a row and multiplies it at once (decoding.py). For
many, rows are unpacked in blocks, and BLAS multiplies.
"""

from __future__ import annotations

import numpy as np

from ...core.arrays.backend import Array
from ...ideas.published import packed as textbook
from .decoding import FEW, few_rows, form_of, loops_for, on_threads
from .row_blocks import blocks

TILE = 1 << 20  # numbers unpacked at once, 4 MiB


def packed_product(x: Array, weight: textbook.PackedWeight) -> Array:
    """See ideas/published/packed.py."""
    flat, n_out = x.reshape(-1, weight.width), len(weight.rows)
    loops = loops_for(flat)
    form = form_of(weight) if loops else None
    if form is None:
        return textbook.packed_product(x, weight)
    if len(flat) <= FEW:
        return few_rows(flat, form, n_out).reshape(*x.shape[:-1], n_out)
    y, whole = np.empty((len(flat), n_out), np.float32), textbook.packing.numbers_in(weight.rows, weight.kind)
    for part in blocks(n_out, whole, TILE):
        numbers = np.empty((part.stop - part.start, whole), np.float32)
        on_threads(numbers.size, loops.unpack, form[0], weight.rows[part], numbers, loops.counters(1))
        y[:, part] = flat @ numbers[:, : weight.width].T
    return y.reshape(*x.shape[:-1], n_out)
