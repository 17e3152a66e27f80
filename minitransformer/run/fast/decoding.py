"""Decoding token by token: each sequence has one new row, and every weight of the model is read for it.

A product of a few rows with a large matrix takes as long as reading the matrix, because it uses each number only once
for each row. So the loops (decoding_loops.py) read in long stretches, and all threads read at the same time. One part
of the work takes some rows of a matrix and computes one term of a sum:

    x W = x[:, :k] W[:k] + x[:, k:] W[k:]

A token goes through all layers in one call of a loop, with their norms and residual connections, so no Python runs
between its products. It is the loop of any attention and any feed-forward network: parts.py turns each part of the
tree, such as a norm or a turn, into numbers for it, and plan.py keeps these for the next token. A weight may be packed
(ideas/published/packed.py): then its numbers are unpacked into registers, and multiplied there.
"""

import functools
import weakref
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...ideas.published import packed as textbook
from ..machines.threads import blas_threads, together
from .row_blocks import blocks, compiled
from .weights import form_of

FEW = 8  # rows
LARGE, LEAST_SIDE = 1 << 18, 256  # least numbers in a matrix (more than a core's cache), and least rows and columns
SHARED = 1 << 20  # numbers to read that justify a second thread: they take 150 µs, and waking a thread takes 40
TILE = 1 << 20  # numbers unpacked at once, 4 MiB; each is read and written
_NO_BIAS = np.empty(0, np.float32)
_plans: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # by the cache of the first attention


def few_rows(x: Array, form: tuple[int, Array, Array], d_out: int) -> Array:
    """x W, with W as `form_of` returns it. x: (N, d_in), float32 and contiguous; d_out: the columns of W."""
    loops, y = _loops(), np.empty((len(x), d_out), np.float32)
    terms = np.empty((loops.PARTS if form[0] == loops.PLAIN else 1, *y.shape), np.float32)
    on_threads(x.shape[1] * d_out, loops.product, x, form, _NO_BIAS, terms, y, loops.counters(2))
    return y


def packed_product(x: Array, weight: textbook.PackedWeight) -> Array:
    """See ideas/published/packed.py. For many rows of x, BLAS multiplies what is unpacked in blocks."""
    flat, n_out = x.reshape(-1, weight.width), len(weight.rows)
    loops = loops_for(flat, part="products")
    form = form_of(weight) if loops else None
    if form is None:
        return textbook.packed_product(x, weight)
    if len(flat) <= FEW:
        return few_rows(flat, form, n_out).reshape(*x.shape[:-1], n_out)
    y, whole = np.empty((len(flat), n_out), np.float32), textbook.packing.numbers_in(weight.rows, weight.kind)
    for part in blocks(n_out, whole, TILE):
        numbers = np.empty((part.stop - part.start, whole), np.float32)
        on_threads(2 * numbers.size, loops.unpack, form[0], weight.rows[part], numbers, loops.counters(1))
        y[:, part] = flat @ numbers[:, : weight.width].T
    return y.reshape(*x.shape[:-1], n_out)


def cached_layer(
    x: Array, layer: Any, caches: Any, memory: Array | None = None, masks: Any = (None, None)
) -> Array | None:
    """`cached_layers` of one layer."""
    return cached_layers(x, [layer], [caches], memory, masks)


def cached_layers(
    x: Array, layers: Any, caches: Any, memory: Array | None = None, masks: Any = (None, None)
) -> Array | None:
    """EncoderLayers or DecoderLayers on one new token of each sequence; None if a part has no form in the loop.

    x, y: (N, 1, D). caches: of each layer, one for each attention; those of a DecoderLayer are its own and that to the
    memory. masks: one for each attention, the same for all layers.
    """
    if type(x) is not np.ndarray or x.ndim != 3 or x.shape[1] != 1 or not 0 < x.shape[0] <= FEW:
        return None
    loops = loops_for(np.ascontiguousarray(x))
    from . import parts  # it reads classes from all of ideas/
    from .plan import Plan

    flat = [cache for own in caches for cache in own]
    if not loops or not all(type(cache) in parts.CACHES and cache.length for cache in flat):
        return None
    plan, sizes = _plans.get(flat[0]), (x.shape, len(layers), len(caches[0]))
    plan = plan if plan and plan.sizes == sizes else Plan(*sizes)
    try:
        plan.read(loops, x, layers, caches, memory, masks)
    except parts.NoForm:
        return None
    _plans[flat[0]], states = plan, plan.states
    states[0] = x[:, 0]
    counts = loops.counters(loops.PHASES * (len(states) - 1)).reshape(len(states) - 1, -1)
    on_threads(plan.numbers, loops.layer, states, plan.first, plan.rows, plan.lengths, counts)
    for own, (attention, *_) in zip(caches, plan.sublayers, strict=True):
        parts.keep(own[0], *attention.given[6:8])
    return states[-1][:, None].copy()


def loops_for(*arrays: Array, part: str = "decoding") -> Any:
    """The module decoding_loops, if this part is compiled and the arrays are contiguous and float32; otherwise None."""
    return _loops() if compiled(*arrays, part=part) else None


@functools.cache
def _loops() -> Any:
    from . import decoding_loops

    return decoding_loops


def on_threads(numbers: int, loop: Any, *arguments: Any) -> None:
    """Run the loop, which reads this many numbers, on as many threads as BLAS has; on one thread if they are few."""
    together(loop, [arguments] * (min(blas_threads(), _loops().PARTS) if numbers >= SHARED else 1))
