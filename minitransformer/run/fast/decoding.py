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

import itertools
import weakref
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...core.layers import Cache, DecoderLayer, EncoderLayer
from ...ideas.published import packed as textbook
from ..machines.threads import blas_threads, together
from .compiler import with_loops
from .row_blocks import blocks, class_of, compiled
from .weights import form_of

FEW = 8  # rows
LARGE, LEAST_SIDE = 1 << 18, 256  # least numbers in a matrix (more than a core's cache), and least rows and columns
SHARED = 1 << 20  # numbers to read that justify a second thread: they take 150 µs, and waking a thread takes 40
TILE = 1 << 20  # numbers unpacked at once, 4 MiB; each is read and written
_NO_BIAS = np.empty(0, np.float32)
_plans: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # by the cache of the first attention


def few_rows(loops: Any, x: Array, form: tuple[int, Array, Array], d_out: int) -> Array:
    """x W, with W as `form_of` returns it. x: (N, d_in), float32 and contiguous; d_out: the columns of W."""
    y = np.empty((len(x), d_out), np.float32)
    terms = np.empty((loops.PARTS if form[0] == loops.PLAIN else 1, *y.shape), np.float32)
    on_threads(x.shape[1] * d_out, loops.product, x, form, _NO_BIAS, terms, y, loops.counters(2))
    return y


def packed_product(x: Array, weight: textbook.PackedWeight) -> Array:
    """See ideas/published/packed.py. For many rows of x, BLAS multiplies what is unpacked in blocks."""
    flat, n_out = x.reshape(-1, weight.width), len(weight.rows)
    loops = compiled(flat, part="products")
    form = form_of(weight) if loops else None
    if form is None:
        return textbook.packed_product(x, weight)
    if len(flat) <= FEW:
        return few_rows(loops, flat, form, n_out).reshape(*x.shape[:-1], n_out)
    y, whole = np.empty((len(flat), n_out), np.float32), textbook.packing.numbers_in(weight.rows, weight.kind)
    for part in blocks(n_out, whole, TILE):
        numbers = np.empty((part.stop - part.start, whole), np.float32)
        on_threads(2 * numbers.size, loops.unpack, form[0], weight.rows[part], numbers, loops.counters(1))
        y[:, part] = flat @ numbers[:, : weight.width].T
    return y.reshape(*x.shape[:-1], n_out)


def new_token(module: Any, x: Array, *memory: Any, mask: Any = None, cache: Any = None, **how: Any) -> Array | None:
    """A layer, or a stack before its last norm, on one new token of each sequence; None if a part has no form.

    x, y: (N, 1, D). The other arguments are those of EncoderLayer and Encoder, or, with a memory, of DecoderLayer and
    Decoder.
    """
    if type(x) is not np.ndarray or x.ndim != 3 or x.shape[1] != 1 or not 0 < x.shape[0] <= FEW:
        return None
    usual = memory or type(how.pop("causal", False)) is bool
    masks = mask, how.pop("memory_mask", None) if memory else None
    given = [each is not None for each in how.values()]
    if cache is None or not usual or any(given) or any(each is None for each in memory):
        return None
    layers, kind = getattr(module, "layers", [module]), DecoderLayer if memory else EncoderLayer
    if type(cache) is Cache:
        own = cache.self_attention, cache.cross_attention
        caches = [*zip(*own[: 1 + len(memory)], strict=True)]
    else:
        caches = [cache if memory and type(cache) is tuple else (cache,)]
    loops, flat = compiled(np.ascontiguousarray(x), part="decoding"), list(itertools.chain(*caches))
    if not loops or len(layers) != len(caches) or len(flat) != len(caches) * (1 + len(memory)):
        return None
    from . import parts  # it reads classes from all of ideas/
    from .plan import Plan

    if not all(type(each) in parts.CACHES and each.length for each in flat):
        return None
    if not all(class_of(layer) is kind for layer in layers):
        return None
    plan, read = _plans.pop(flat[0], None), memory[0] if memory else None
    try:
        plan = plan if plan and plan.holds(x, layers, read) else Plan(loops, x, layers, read)
        plan.read(caches, read, masks)
    except parts.NoForm:  # what it has read so far is forgotten
        return None
    _plans[flat[0]], states = plan, plan.states
    states[0] = x[:, 0]
    counts = loops.counters(loops.PHASES * (len(states) - 1)).reshape(len(states) - 1, -1)
    on_threads(plan.numbers, loops.layer, states, plan.first, plan.rows, plan.lengths, counts)
    for own, (attention, *_) in zip(caches, plan.attentions, strict=True):
        parts.keep(own[0], *attention.state[3:5])
    return states[-1][:, None].copy()


def on_threads(numbers: int, loop: Any, *arguments: Any) -> None:
    """Run the loop, which reads this many numbers, on as many threads as BLAS has; on one thread if they are few."""
    together(loop, [arguments] * (min(blas_threads(), with_loops("decoding_loops").PARTS) if numbers >= SHARED else 1))
