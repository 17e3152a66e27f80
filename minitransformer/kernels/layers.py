"""A whole encoder layer as one call of a compiled loop, where NumPy has OpenBLAS and Numba is installed.

In a small model most of the time is Python: some twenty ops in a layer, each with its checks, its arrays and its
closures; and workers, which run side by side, wait for each other's Python. The formulas are those of layers/blocks.py
and of the ops, in the same order; layer_loops.py has them.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..backend import Array, Pullback, uniform
from ..boundary import check_gradient
from ..forms import kernel
from .attention import KEPT_KEYS, mask_fits, mask_of, or_nothing
from .blocks import compiled, takes
from .threads import blas_threads, share_out

SHARED = 1 << 26  # multiplications in a layer's products that are worth a second thread


@kernel
def encoder_layer(
    x: Array, layer: Any, mask: Array | None, causal: bool, cache: Any, rng: np.random.Generator | None
) -> tuple[Array, Pullback] | None:
    """See EncoderLayer in layers/blocks.py. layer: one whose parts are all of the usual classes.

    With a cache there is no backward: calling it is an error that the layer raises.
    """
    attention, feed_forward = layer.self_attention.sublayer, layer.feed_forward.sublayer
    maps = (attention.query, attention.key, attention.value, attention.output, feed_forward.inner, feed_forward.output)
    norms = (layer.self_attention.norm, layer.feed_forward.norm)
    weights = tuple(one.weight.value for one in maps)
    biases = tuple(_no_bias(one) if one.bias is None else one.bias.value for one in maps)
    vectors = tuple(p.value for one in norms for p in (one.gamma, one.beta))
    given = (*weights, *biases, *vectors)
    loops = _loops() if takes(x, *given) and compiled(*given) and all(a.flags.carray for a in given) else None
    if not loops or feed_forward.activation not in loops.CURVES or x.ndim < 2 or weights[4].ndim != 2:
        return None
    (n_new, width), n_hidden, n_heads = x.shape[-2:], weights[4].shape[1], attention.n_heads
    shapes: list[tuple[int, ...]] = [(width, width)] * 4 + [(width, n_hidden), (n_hidden, width)]
    shapes += [(width,)] * 4 + [(n_hidden,)] + [(width,)] * 5
    if [a.shape for a in given] != shapes or width % n_heads:  # the loops read past a shorter array's end
        return None
    length = 0 if cache is None else cache.length
    scores = (*x.shape[:-2], n_heads, n_new, length + n_new)
    seen = mask[..., None, :, :] if type(mask) is np.ndarray and 2 < mask.ndim <= x.ndim else mask
    rates = (attention.dropout, layer.self_attention.dropout, layer.feed_forward.dropout)
    if not mask_fits(seen, scores) or not isinstance(rng, np.random.Generator | None):
        return None
    if any(type(rate) is not float or not 0.0 <= rate < 1.0 for rate in rates):
        return None
    buffers = (np.empty((0,) * 4, np.float32),) * 2
    if cache is not None:
        if x.ndim != 3 or rng is not None or not _room_in(cache, (*scores[:2], width // n_heads)):
            return None
        buffers = cache.make_room(x.reshape(*x.shape[:2], n_heads, -1).swapaxes(1, 2))

    x_shape, n_sequences = x.shape, math.prod(x.shape[:-2])
    n_rows = n_sequences * n_new
    x = _as_rows(x)
    drops = [
        uniform(rng, shape, like=x) >= rate if rng is not None and rate else None
        for shape, rate in zip((scores, x_shape, x_shape), rates, strict=True)
    ]
    masks = (
        or_nothing(None if seen is None else mask_of(scores, seen)),
        or_nothing(None if drops[0] is None else drops[0].reshape(n_sequences, *scores[-3:])),
        *(np.empty((0, 0), np.bool_) if drop is None else drop.reshape(n_rows, width) for drop in drops[1:]),
    )
    raised = (1.0 if drop is None else 1.0 / (1.0 - rate) for drop, rate in zip(drops, rates, strict=True))
    factors = tuple(np.float32(factor) for factor in (1.0 / math.sqrt(width // n_heads), *raised))
    pre = layer.self_attention.order == "pre"
    kinds, sizes = (pre, bool(causal), loops.CURVES[feed_forward.activation]), (n_sequences, n_heads, length)
    n_parts = min(blas_threads(), n_rows) if n_rows * sum(w.size for w in weights) >= SHARED else 1

    def rows(number: int, columns: int = width) -> list[Array]:
        return [np.empty((n_rows, columns), np.float32) for _ in range(number)]

    q, k, v, merged, n1, n2, source2, y = rows(8)
    h, active = rows(2, n_hidden)
    source1, out1 = rows(2) if pre else (x, source2)
    total1, total2 = (out1, y) if pre else rows(1) * 2
    inverse1, inverse2 = np.empty((2, n_rows), np.float32)
    totals, shifts = np.empty((2, n_sequences, n_heads, n_new), np.float32)
    is_stored = cache is None and drops[0] is None and scores[-1] <= KEPT_KEYS
    stored = np.empty((*totals.shape, scores[-1]) if is_stored else (0,) * 4, np.float32)
    kept = (source1, n1, inverse1, q, k, v, merged, source2, n2, inverse2, h, totals, shifts, stored)
    passing = (total1, out1, active, total2, y)
    common = (loops.ready(), n_parts, kinds, sizes, factors, weights, vectors, masks, kept)
    counts = loops.counters(3)
    eps = tuple(np.float32(one.eps) for one in norms)
    _share_out(n_parts, loops.forward, *common, biases, eps, buffers, x, passing, counts)
    if cache is not None:
        cache.length += n_new
    del passing, total1, total2, active, out1, biases, buffers  # backward needs none of them

    def backward(dy: Array) -> Array:
        check_gradient("encoder_layer", dy, x_shape, x.dtype, np)
        dtotal2 = _as_rows(dy) if pre else rows(1)[0]
        (dout1, dx, dq, dk, dv, dsource), (dh, active) = rows(6), rows(2, n_hidden)
        dtotal1 = dout1 if pre else rows(1)[0]
        dupdate1, dupdate2 = (
            d if drop is None else np.empty_like(d) for d, drop in zip((dtotal1, dtotal2), drops[1:], strict=True)
        )
        sums, norm_sums = np.empty((n_parts, max(width, n_hidden))), np.zeros((n_parts, 4, width))
        room = (dtotal2, dupdate2, dh, active, dsource, dout1, dtotal1, dupdate1, dq, dk, dv, sums, norm_sums)
        learned = [*(one.weight for one in maps), *(one.bias for one in maps)]
        learned += [p for one in norms for p in (one.gamma, one.beta)]
        targets = [_target(p, a) for p, a in zip(learned, given, strict=True)]
        gradients = tuple(targets[:6]), tuple(targets[6:12]), tuple(targets[12:])
        _share_out(n_parts, loops.backward, *common, *gradients, room, _as_rows(dy), dx, loops.counters(4))
        for p, target in zip(learned, targets, strict=True):
            if p is not None and target is not p.grad:
                p.grad += target
        return dx.reshape(x_shape)

    return y.reshape(x_shape), backward


def _no_bias(layer: Any) -> Array:
    return np.zeros(layer.weight.value.shape[-1:], layer.weight.value.dtype)


def _target(parameter: Any, value: Array) -> Array:
    """Where the loops add a gradient: to the parameter's own, or to zeros where they cannot or there is no parameter."""
    grad = None if parameter is None else parameter.grad
    fits = type(grad) is np.ndarray and grad.dtype == value.dtype and grad.shape == value.shape and grad.flags.carray
    return grad if fits else np.zeros_like(value)


def _as_rows(x: Array) -> Array:
    """(N, D), such that the loops need no machine code but one: contiguous, and to write to."""
    return np.require(x.reshape(-1, x.shape[-1]), requirements="CAW")


def _room_in(cache: Any, shape: tuple[int, ...]) -> bool:
    """Whether a cache is of self-attention, and empty or for so many (sequences, heads, d)."""
    if cache.memory is not None or not cache.length:
        return cache.memory is None
    return all(b.shape[:2] + b.shape[3:] == shape and compiled(b) and b.flags.carray for b in cache.buffers())


def _share_out(n_parts: int, loop: Any, *arguments: Any) -> None:
    share_out(lambda _: loop(*arguments), range(n_parts))


@functools.cache
def _loops() -> Any:
    """The module layer_loops where NumPy has a matrix product for it, else None; only where Numba is installed."""
    from . import layer_loops

    return layer_loops if layer_loops.ready() else None
