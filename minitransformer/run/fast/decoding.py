"""Decoding token by token: each sequence has one new row, and every weight of the model is read for it.

A product of a few rows with a large matrix takes as long as reading the matrix, because it uses each number only once
for each row. So the loops (decoding_loops.py) read in long stretches, and all threads read at the same time. One part
of the work takes some rows of a matrix and computes one term of a sum:

    x W = x[:, :k] W[:k] + x[:, k:] W[k:]

A layer is one call of a loop, with its norms and residual connections, so no Python runs between its products. It is
the loop of any attention and any feed-forward network: parts.py turns each part of the tree, such as a norm or a turn,
into numbers for it. A weight may be packed (ideas/published/packed.py): then each row is unpacked into the cache, and
multiplied from there.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...ideas.published.packed import PackedWeight
from ...ideas.published.packing import numbers_in
from ..machines.threads import blas_threads, together
from .row_blocks import compiled

FEW = 8  # rows
LARGE, LEAST_SIDE = 1 << 18, 256  # least numbers in a matrix (more than a core's cache), and least rows and columns
SHARED = 1 << 20  # numbers to read that justify a second thread: they take 150 µs, and waking a thread takes 40
_NO_NUMBERS, _NO_BIAS, _NO_ROWS = np.empty((0, 0), np.float32), np.empty(0, np.float32), np.empty((0, 0), np.uint8)
_NO_ROWS.flags.writeable = False  # as packed rows are: the loops are compiled for these


def product(x: Array, weight: Array) -> Array:
    """x W. x: (N, d_in); W: (d_in, d_out). BLAS computes it, unless x has few rows and W is large."""
    if x.shape[0] > FEW or weight.size < LARGE or min(weight.shape) < LEAST_SIDE:
        return x @ weight
    form = form_of(weight) if compiled(x) else None
    return few_rows(x, form, weight.shape[1]) if form else x @ weight


def form_of(weight: Any) -> tuple[int, Array, Array] | None:
    """A matrix W as the loops take it; None if they cannot. weight: an array, or a PackedWeight of rows of Wᵀ.

    Returns how the rows of Wᵀ are packed, W, and these rows: one of the two arrays is empty.
    """
    kinds = _loops().KINDS
    if isinstance(weight, PackedWeight):
        fits = weight.kind in kinds and weight.rows.flags.c_contiguous
        fits = fits and numbers_in(weight.rows, weight.kind) >= weight.width
        return (kinds[weight.kind], _NO_NUMBERS, weight.rows) if fits else None
    if type(weight) is not np.ndarray or weight.dtype != np.float32 or weight.ndim != 2:
        return None
    if weight.flags.carray:
        return _loops().PLAIN, weight, _NO_ROWS
    if weight.T.flags.carray:
        rows = weight.T.view(np.uint8)
        rows.flags.writeable = False
        return kinds["F32"], _NO_NUMBERS, rows
    return None


def few_rows(x: Array, form: tuple[int, Array, Array], d_out: int) -> Array:
    """x W, with W as `form_of` returns it. x: (N, d_in), float32 and contiguous; d_out: the columns of W."""
    loops, y = _loops(), np.empty((len(x), d_out), np.float32)
    terms = np.empty((loops.PARTS if form[0] == loops.PLAIN else 1, *y.shape), np.float32)
    on_threads(x.shape[1] * d_out, loops.product, x, form, _NO_BIAS, terms, y, loops.counters(2))
    return y


def cached_layer(x: Array, layer: Any, caches: Any, memory: Array | None = None, masks: Any = (None,)) -> Array | None:
    """An EncoderLayer or DecoderLayer on one new token of each sequence; None if a part has no form in the loop.

    x, y: (N, 1, D). caches, masks: one for each attention; those of a DecoderLayer are its own and that to the memory.
    """
    if type(x) is not np.ndarray or x.ndim != 3 or x.shape[1] != 1 or not 0 < x.shape[0] <= FEW:
        return None
    loops = loops_for(np.ascontiguousarray(x))
    if not loops or not caches[0].length:
        return None
    from . import parts  # it reads classes from all of ideas/

    residuals = [layer.self_attention] if len(caches) == 1 else [layer.self_attention, layer.cross_attention]
    attentions: list[tuple[Any, ...]] = []
    try:  # the attention to x last: it changes its cache
        network, numbers = parts.network(loops, x, layer.feed_forward)
        for i in reversed(range(len(caches))):
            attention, n = parts.attention(loops, x, residuals[i], caches[i], (None, memory)[i], masks[i])
            attentions, numbers = [attention, *attentions], numbers + n
    except parts.NoForm:
        return None
    states = np.empty((len(attentions) + 2, x.shape[0], x.shape[2]), np.float32)
    states[0] = x[:, 0]
    counts = loops.counters(loops.PHASES * (len(states) - 1)).reshape(len(states) - 1, -1)
    on_threads(numbers, loops.layer, states, tuple(attentions), network, counts)
    parts.keep(caches[0], *attentions[0][6:8])
    return states[-1][:, None]


def loops_for(*arrays: Array) -> Any:
    """The module decoding_loops, if Numba is installed and the arrays are contiguous and float32; otherwise None."""
    return _loops() if compiled(*arrays) else None


@functools.cache
def _loops() -> Any:
    from . import decoding_loops

    return decoding_loops


def on_threads(numbers: int, loop: Any, *arguments: Any) -> None:
    """Run the loop, which reads this many numbers, on as many threads as BLAS has; on one thread if they are few."""
    together(loop, [arguments] * (min(blas_threads(), _loops().PARTS) if numbers >= SHARED else 1))
