"""Decoding token by token: each sequence has one new row, and every weight of the model is read for it.

A product of a few rows with a large matrix takes as long as reading the matrix, because it uses each number only once
for each row. So the loops (decoding_loops.py) read in long stretches, and all threads read at the same time. One part
of the work takes some rows of a matrix and computes one term of a sum:

    x W = x[:, :k] W[:k] + x[:, k:] W[k:]

Another kind of part takes some heads, or some hidden units, with their rows of the output matrix. It too computes one
term (Shoeybi et al. 2019, "Megatron-LM", section 3). A whole layer is one call of its loop, so no Python runs between
its products.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ..machines.threads import blas_threads, together
from .row_blocks import Learned, compiled, takes

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


def cached_layer(x: Array, layer: Any, learned: Learned, cache: Any) -> Array | None:
    """A pre-norm EncoderLayer on one new token of each sequence; see encoder_layer in layers.py. x, y: (N, 1, D)."""
    if layer.self_attention.order != "pre" or not cache.length:
        return None
    if x.ndim != 3 or x.shape[1] != 1 or x.shape[0] > FEW:
        return None
    (n, _, width), n_heads, buffers = x.shape, layer.self_attention.sublayer.n_heads, cache.buffers()
    loops = _loops_for(*buffers) if takes(x, *buffers) else None
    activation = layer.feed_forward.sublayer.activation
    if not loops or activation not in loops.CURVES:
        return None
    if any(b.shape != (n, n_heads, b.shape[-2], width // n_heads) for b in buffers):
        return None
    weights, norms, n_hidden = learned.weights, learned.norms, learned.n_hidden

    keys, values = cache.make_room(x.reshape(n, n_heads, 1, -1))
    length = cache.length + 1
    room: list[tuple[int, ...]] = (
        [(loops.PARTS, n, width)] * 4 + [(loops.PARTS, n, n_hidden)] + [(n, width)] * 4 + [(n, n_hidden)] * 3
    )
    room += [(loops.PARTS, length), (n,)]
    y = np.empty((n, width), np.float32)
    _share_out(
        sum(weight.size for weight in weights) + 2 * n * length * width,
        loops.layer,
        np.ascontiguousarray(x[:, 0]),
        norms[::2],
        norms[1::2],
        learned.eps,
        weights,
        learned.biases,
        loops.CURVES[activation],
        keys,
        values,
        cache.length,
        tuple(np.empty(shape, np.float32) for shape in room),
        y,
        loops.counters(7),
    )
    cache.length = length
    return y[:, None]


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
