"""Decoding token by token: each sequence has one new row, and every weight of the model is read for it.

A product of a few rows with a large matrix takes as long as reading the matrix, because it uses each number only once
for each row. So the loops (decoding_loops.py) read in long stretches, and all threads read at the same time. One part
of the work takes some rows of a matrix and computes one term of a sum:

    x W = x[:, :k] W[:k] + x[:, k:] W[k:]

A sub-layer is one call of a loop, with its norms and the residual connection, so no Python runs between its products.
There are two loops, for any attention and for any feed-forward network: parts.py turns each part of the tree, such as
a norm or a turn, into numbers for them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ..machines.threads import blas_threads, together
from .row_blocks import compiled

FEW = 8  # rows
LARGE, LEAST_SIDE = 1 << 18, 256  # least numbers in a matrix (more than a core's cache), and least rows and columns
SHARED = 1 << 20  # numbers to read that justify a second thread: they take 150 µs, and waking a thread takes 40


def product(x: Array, weight: Array) -> Array:
    """x W. x: (N, d_in); W: (d_in, d_out). BLAS computes it, unless x has few rows and W is large."""
    if x.shape[0] > FEW or weight.size < LARGE or min(weight.shape) < LEAST_SIDE:
        return x @ weight
    y = np.empty((x.shape[0], weight.shape[1]), x.dtype)
    if loops := _loops_for(x, weight):
        terms = np.empty((loops.PARTS, *y.shape), np.float32)
        _share_out(weight.size, loops.product, x, weight, terms, y, loops.counters(2))
    elif loops := _loops_for(x, weight.T):
        _share_out(weight.size, loops.transposed_product, x, weight.T, y, loops.counters(1))
    else:
        np.matmul(x, weight, out=y)
    return y


def cached_layer(x: Array, layer: Any, caches: Any, memory: Array | None = None, masks: Any = (None,)) -> Array | None:
    """An EncoderLayer or DecoderLayer on one new token of each sequence; None if a part has no form in the loop.

    x, y: (N, 1, D). caches, masks: one for each attention; those of a DecoderLayer are its own and that to the memory.
    """
    if type(x) is not np.ndarray or x.ndim != 3 or x.shape[1] != 1 or not 0 < x.shape[0] <= FEW:
        return None
    loops = _loops_for(np.ascontiguousarray(x))
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
    steps = [*((loops.attention, given) for given in attentions), (loops.network, network)]
    _share_out(numbers, _in_order, steps, states, counts)
    parts.keep(caches[0], *attentions[0][6:8])
    return states[-1][:, None]


def _in_order(steps: list[Any], states: Array, counts: Array) -> None:
    """Each thread enters one loop after the other. A loop returns when the threads have written its whole result."""
    for i, (loop, given) in enumerate(steps):
        loop(states[i], *given, states[i + 1], counts[i])


def _loops_for(*arrays: Array) -> Any:
    """The module decoding_loops, if Numba is installed and the arrays are contiguous and float32; otherwise None."""
    return _loops() if compiled(*arrays) else None


@functools.cache
def _loops() -> Any:
    from . import decoding_loops

    return decoding_loops


def _share_out(numbers: int, loop: Any, *arguments: Any) -> None:
    """Run the loop, which reads this many numbers, on as many threads as BLAS has; on one thread if they are few."""
    together(loop, [arguments] * (min(blas_threads(), _loops().PARTS) if numbers >= SHARED else 1))
