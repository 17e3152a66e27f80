"""A residual connection around attention or a feed-forward network as one call of a compiled loop.

In a small model Python takes most of the time: an encoder layer has about twenty ops, each with its checks, arrays and
closures. Workers run in parallel, but wait for each other's Python code. sublayer_loops.py has the formulas of
core/layers/residual.py and of the ops, in the same order. It needs Numba, and OpenBLAS in NumPy.

The parts must have the usual classes. Where the loops would not do what the sub-layer does, the result is None, and the
ops do it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng
from ...core.arrays.boundary import check_gradient
from ...core.layers.cache import KeyValueCache, no_backward
from ..machines.threads import blas_threads, share_out
from .attention import mask_fits, mask_of
from .decoding import FEW, LARGE
from .padding import Rows
from .row_blocks import compiled, keeps, takes

# From this number of multiplications on, a sub-layer gets threads of our own. OpenBLAS's threads, which do the rest of
# a step, stay awake for about 20 ms after each product, and a smaller one would have to share the cores with them.
SHARED = 1 << 29


@dataclass(slots=True)
class _Call:
    """A residual connection that the loops take. The names are those of sublayer_loops.py."""

    loops: Any
    parameters: list[Any]  # weights, then their biases or None, then γ and β
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]  # zeros for none
    norm: tuple[Array, ...]
    eps: Any
    pre: bool
    shape: tuple[int, ...]  # of x and y
    n_parts: int = 1  # as many threads may share the work

    def empty(self, number: int, columns: int | None = None) -> list[Array]:
        """New arrays with a row for each vector of x."""
        columns = self.shape[-1] if columns is None else columns
        return [np.empty((math.prod(self.shape[:-1]), columns), np.float32) for _ in range(number)]

    def passing(self, x: Array) -> tuple[Array, ...]:
        """The source, the sum, y, n and the inverse. With pre-norm y is the sum, otherwise x is the source."""
        first, second, n = self.empty(3)
        inverse = np.empty(len(n), np.float32)
        return (first, second, second, n, inverse) if self.pre else (x, first, second, n, inverse)

    def share(self, multiplications: int) -> None:
        """Choose how many threads share the work."""
        self.n_parts = min(blas_threads(), math.prod(self.shape[:-1])) if multiplications >= SHARED else 1

    def run(self, loop: Any, n_phases: int, *arguments: Any) -> None:
        """Run a loop on n_parts threads."""
        loops, n = self.loops, self.n_parts
        _enter(n, loop, loops.ready(), n, self.pre, *arguments, loops.counters(n_phases))

    def run_backward(self, loop: Any, n_phases: int, common: tuple[Any, ...], *arguments: Any) -> None:
        """Run a loop that adds to the parameters' gradients. common: what both loops take."""
        n = len(self.weights)
        targets = tuple(map(_target, self.parameters, (*self.weights, *self.biases, *self.norm)))
        self.run(loop, n_phases, *common, targets[:n], targets[n:-2], targets[-2:], *arguments)
        for p, target in zip(self.parameters, targets, strict=True):
            if p is not None and target is not p.grad:
                p.grad += target

    def room(self, dy: Array, kept: Array, most: int) -> tuple[Array, ...]:
        """dtotal, dupdate and the sums of columns and of the norm. most: the columns of the widest gradient."""
        dtotal = dy if self.pre else np.empty_like(dy)
        sums, norm_sums = np.empty((self.n_parts, most)), np.empty((self.n_parts, 2, dy.shape[1]))
        return dtotal, np.empty_like(dy) if kept.size else dtotal, sums, norm_sums


def residual_attention(
    layer: Any,
    x: Array,
    memory: Array | None = None,
    *,
    rng: Rng | None = None,
    mask: Array | None = None,
    causal: bool = False,
    cache: Any = None,
    rows: tuple[Rows, Rows] | None = None,
    **how: Any,
) -> tuple[Array, Pullback] | None:
    """See Residual in core/layers/residual.py. With a cache there is no backward. how: for the ops alone.

    rows: of x and of the memory, if both consist of the rows of real tokens, (N, D); see padding.py.
    """
    heads, own, read = layer.sublayer, memory is None, x if memory is None else memory
    if how.pop("positions", None) is not None or how or type(causal) is not bool or (causal and not own):
        return None
    if cache is not None and not (type(cache) is KeyValueCache and cache.memory is None and own and rng is None):
        return None
    maps, width, n_heads = (heads.query, heads.key, heads.value, heads.output), heads.d_model, heads.n_heads
    call = _called(layer, maps, [(width, width)] * 4, (x, read), (heads.mix.dropout, layer.dropout), rng)
    if call is None or type(n_heads) is not int or n_heads < 1 or width % n_heads:
        return None
    (*batch, n_new), (*read_batch, n_read) = (a.shape for a in rows) if rows else (a.shape[:-1] for a in (x, read))
    if batch != read_batch:
        return None
    length = 0 if cache is None else cache.length
    scores = (*batch, n_heads, n_new, length + n_read)
    if type(mask) is np.ndarray and 2 < mask.ndim <= x.ndim:
        mask = mask[..., None, :, :]  # the same for every head, as in core/layers/attention.py
    caches = _room_in(cache, _heads_of(x, n_heads)) if mask_fits(mask, scores) else None
    if caches is None:
        return None
    call.share(x.size * (4 * width + 2 * scores[-1]))
    seen = mask_of((1,) * (4 - len(scores)) + scores, mask)
    n_sequences, x_shape, read_shape = math.prod(batch), x.shape, read.shape
    kept_weights, raised_weights = _kept(rng, (n_sequences, *scores[-3:]), heads.mix.dropout)
    kept, raised = _kept_rows(rng, (*batch, n_new, width), layer.dropout, rows and rows[0])
    starts = [a.starts for a in rows] if rows else [np.arange(n_sequences + 1) * n for n in (n_new, n_read)]

    loops, pre = call.loops, call.pre
    x, rows_read = _as_rows(x), None if memory is None else _as_rows(memory)
    source, total, y, n, inverse = call.passing(x)
    q, merged = call.empty(2)
    k, v = np.empty((2, math.prod(read_shape[:-1]), width), np.float32)
    totals, shifts = np.empty((2, n_sequences, n_heads, n_new), np.float32)
    factors = (np.float32(1.0 / math.sqrt(width // n_heads)), raised_weights, raised)
    saved = (n, inverse, q, k, v, merged, totals, shifts)
    sizes, masks = (n_heads, length, *starts), (seen, kept_weights, kept)
    common = (causal, sizes, factors, call.weights, call.norm, masks, saved)
    read = source if rows_read is None else rows_read
    call.run(loops.attention, 3, *common, call.biases, call.eps, caches, x, source, read, total, y)
    if cache is not None:
        cache.length += n_new
        return y.reshape(x_shape), no_backward
    kept_source = None if pre else source  # pre-norm makes its source again, so it keeps no x

    def backward(dy: Array) -> Any:
        check_gradient("Residual", dy, x_shape, np.dtype(np.float32), np)
        dy = _as_rows(dy)
        dtotal, dupdate, *sums = call.room(dy, kept, width)
        dmerged, dx, dq = call.empty(3)
        dk, dv = np.empty((2, *k.shape), np.float32)
        ds, source = (dmerged, dmerged) if kept_source is None else (dx, kept_source)
        memory, dmemory = (source, ds) if rows_read is None else (rows_read, np.empty_like(k))
        room = (dtotal, dupdate, dmerged, dq, dk, dv, *sums)
        call.run_backward(loops.attention_backward, 4, common, own, room, source, memory, dy, ds, dmemory, dx)
        return dx.reshape(x_shape) if own else (dx.reshape(x_shape), dmemory.reshape(read_shape))

    return y.reshape(x_shape), backward


def residual_feed_forward(
    layer: Any, x: Array, *, rng: Rng | None = None, rows: tuple[Rows, Rows] | None = None
) -> tuple[Array, Pullback] | None:
    """See Residual in core/layers/residual.py. rows: as in residual_attention."""
    maps = (layer.sublayer.inner, layer.sublayer.output)
    if x.ndim < 2 or maps[0].weight.value.ndim != 2:
        return None
    width, n_hidden = x.shape[-1], maps[0].weight.value.shape[1]
    call = _called(layer, maps, [(width, n_hidden), (n_hidden, width)], (x,), (layer.dropout,), rng)
    curve = None if call is None else call.loops.CURVES.get(layer.sublayer.activation)
    if call is None or curve is None:
        return None
    call.share(x.size * 2 * n_hidden)

    loops, pre, shape = call.loops, call.pre, x.shape
    x = _as_rows(x)
    kept, raised = _kept_rows(rng, (*rows[0].shape, width) if rows else shape, layer.dropout, rows and rows[0])
    source, total, y, n, inverse = call.passing(x)
    h, active = call.empty(2, n_hidden)
    common = (curve, raised, call.weights, call.norm, kept, (n, inverse, h))
    call.run(loops.feed_forward, 1, *common, call.biases, call.eps, x, source, active, total, y)
    kept_source = None if pre else source

    def backward(dy: Array) -> Array:
        check_gradient("Residual", dy, shape, np.dtype(np.float32), np)
        dy = _as_rows(dy)
        dtotal, dupdate, *sums = call.room(dy, kept, max(width, n_hidden))
        (dx, again), (dh, active) = call.empty(2), call.empty(2, n_hidden)
        ds, source = (again, again) if kept_source is None else (dx, kept_source)
        room = (dtotal, dupdate, dh, active, *sums)
        call.run_backward(loops.feed_forward_backward, 2, common, room, source, dy, ds, dx)
        return dx.reshape(shape)

    return y.reshape(shape), backward


def _called(
    layer: Any,
    maps: tuple[Any, ...],
    shapes: list[tuple[int, int]],
    read: tuple[Array, ...],
    rates: tuple[Any, ...],
    rng: Any,
) -> _Call | None:
    """The call, if the ops would refuse nothing and the loops can read all. shapes: of the weights; read: x, memory."""
    parameters, norm, x = parameters_of(layer.norm, maps), layer.norm, read[0]
    values = tuple(
        np.zeros(columns, np.float32) if p is None else p.value
        for p, columns in zip(parameters, [0] * len(maps) + [n for _, n in shapes] + [0, 0], strict=True)
    )
    loops = compiled(*values, part="sublayers") if takes(*read, *values) else None
    if not loops or any(a.ndim < 2 for a in read):
        return None
    width = x.shape[-1]
    right = [*shapes, *((n,) for _, n in shapes), (width,), (width,)]  # the loops would read past the end of others
    if not all(value.flags.carray for value in values) or [a.shape for a in values] != right:
        return None
    if any(a.shape[-1] != shapes[0][0] for a in read) or not _can_drop(rates, rng):
        return None
    if not (type(norm.eps) in (int, float) and 0.0 < norm.eps < math.inf):
        return None
    if x.size <= FEW * width and values[0].size >= LARGE:  # reading the weights takes most of the time: see decoding.py
        return None
    n = len(maps)
    own = tuple(vector.copy() for vector in values[-2:])  # backward makes the norm's output again, with these γ and β
    pre = layer.order == "pre"
    return _Call(loops, parameters, values[:n], values[n:-2], own, np.float32(norm.eps), pre, x.shape)


def parameters_of(norm: Any, maps: tuple[Any, ...]) -> list[Any]:
    """The Parameters of a residual connection: weights, their biases or None, and γ and β of the norm."""
    return [*(m.weight for m in maps), *(m.bias for m in maps), norm.gamma, norm.beta]


def _can_drop(rates: tuple[Any, ...], rng: Any) -> bool:
    """Whether dropout would take these rates and this generator."""
    fit = all(type(rate) in (int, float) and 0.0 <= rate < 1.0 for rate in rates)
    return fit and isinstance(rng, np.random.Generator | None)


def _room_in(cache: Any, new: Array) -> tuple[Array, Array] | None:
    """A cache's buffers, with room for these keys or values; empty without a cache, None if they do not fit."""
    if cache is None:
        return (np.empty((0,) * 4, np.float32),) * 2
    if new.ndim != 4:
        return None
    try:
        buffers: tuple[Array, Array] = cache.make_room(new)
    except ValueError:  # the op says what is wrong
        return None
    return buffers if all(compiled(b, part="sublayers") and b.flags.carray for b in buffers) else None


def _kept(rng: Rng | None, shape: tuple[int, ...], rate: float) -> tuple[Array, Any]:
    """What dropout keeps, and the factor of that. Without dropout the array is empty and the factor 1."""
    if rng is None or not rate:
        return np.empty((0,) * len(shape), np.bool_), np.float32(1.0)
    return keeps(rng, shape, rate), np.float32(1.0 / (1.0 - rate))


def _kept_rows(rng: Rng | None, shape: tuple[int, ...], rate: float, rows: Rows | None) -> tuple[Array, Any]:
    """The same with a row for each vector of x. shape: of x with its padding."""
    kept, raised = _kept(rng, shape, rate)
    return rows.packed(kept) if rows and kept.size else kept.reshape(-1, shape[-1]), raised


def _target(parameter: Any, value: Array) -> Array:
    """The array to which the loops add a gradient: the Parameter's own, or zeros if the loops cannot use that."""
    grad = None if parameter is None else parameter.grad
    fits = type(grad) is np.ndarray and grad.dtype == value.dtype and grad.shape == value.shape and grad.flags.carray
    return grad if fits else np.zeros_like(value)


def _heads_of(x: Array, n_heads: int) -> Array:
    """(..., T, D) as (..., H, T, d)."""
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)


def _as_rows(x: Array) -> Array:
    """The array as (N, D), contiguous and writeable: for other arrays Numba would compile the loops again."""
    return np.require(x.reshape(-1, x.shape[-1]), requirements=["C", "A", "W"])


def _enter(n_parts: int, loop: Any, *arguments: Any) -> None:
    """Run the loop on this many threads."""
    share_out(lambda _: loop(*arguments), range(n_parts))
