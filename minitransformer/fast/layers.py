"""A whole encoder layer as one call of a compiled loop, if NumPy has OpenBLAS and Numba is installed.

In a small model Python takes most of the time: a layer has about twenty ops, each with its checks, arrays and closures.
Workers run in parallel, but wait for each other's Python code. layer_loops.py has the formulas of layers/blocks.py and
of the ops, in the same order.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback, uniform
from ..arrays.boundary import check_gradient
from ..machines.threads import blas_threads, share_out
from .attention import KEPT_KEYS, mask_fits, mask_of, or_nothing
from .blocks import compiled, eps_of, parameters_of, takes, values_fit, values_of
from .decoding import FEW, LARGE, cached_layer

# From this number of multiplications on, a layer gets threads of our own. OpenBLAS's threads, which do the rest of a
# step, stay awake for about 20 ms after each product, and a smaller layer would have to share the cores with them.
SHARED = 1 << 30


def encoder_layer(
    x: Array, layer: Any, mask: Array | None, causal: bool, cache: Any, rng: np.random.Generator | None
) -> tuple[Array, Pullback | None] | None:
    """See EncoderLayer in layers/blocks.py. The parts of the layer must have the usual classes.

    With a cache there is no backward.
    """
    if type(causal) is not bool or (cache is not None and (cache.memory is not None or rng is not None)):
        return None
    if cache is not None and mask is None and (y := cached_layer(x, layer, cache)) is not None:
        return y, None
    attention, feed_forward = layer.self_attention.sublayer, layer.feed_forward.sublayer
    learned = parameters_of(layer)
    given = values_of(learned)
    weights, biases, vectors = given[:6], given[6:12], given[12:]
    loops = _loops() if takes(x, *given) and compiled(*given) and all(a.flags.carray for a in given) else None
    if not loops or x.ndim < 2 or feed_forward.activation not in loops.CURVES:
        return None
    (n_new, width), n_heads = x.shape[-2:], attention.n_heads
    eps = eps_of(layer)
    if not values_fit(given, width, n_heads) or attention.d_model != width or eps is None:
        return None
    n_hidden, n_sequences = biases[4].size, math.prod(x.shape[:-2])
    n_rows = n_sequences * n_new
    if n_rows <= FEW and weights[4].size >= LARGE:  # then reading the weights takes most of the time: see decoding.py
        return None
    length = 0 if cache is None else cache.length
    scores = (*x.shape[:-2], n_heads, n_new, length + n_new)
    if type(mask) is np.ndarray and 2 < mask.ndim <= x.ndim:
        mask = mask[..., None, :, :]  # the same for every head, as in layers/attention.py
    rates = (attention.mix.dropout, layer.self_attention.dropout, layer.feed_forward.dropout)
    if not mask_fits(mask, scores) or not isinstance(rng, np.random.Generator | None):
        return None
    if not all(type(rate) in (int, float) and 0.0 <= rate < 1.0 for rate in rates):
        return None
    buffers = (np.empty((0,) * 4, np.float32),) * 2
    if cache is not None:
        new = x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)
        if new.ndim != 4 or not _can_grow(cache, new):
            return None
        buffers = cache.make_room(new)

    x_shape, x_dtype, x = x.shape, x.dtype, _as_rows(x)
    keeps = [  # drawn in the order of the ops
        uniform(rng, shape, like=x) >= rate if rng is not None and rate else None
        for shape, rate in zip((scores, x_shape, x_shape), rates, strict=True)
    ]
    raised = [1.0 if keep is None else 1.0 / (1.0 - rate) for keep, rate in zip(keeps, rates, strict=True)]
    masks = (
        or_nothing(None if mask is None else mask_of((1,) * (4 - len(scores)) + scores, mask)),
        or_nothing(None if keeps[0] is None else keeps[0].reshape(n_sequences, *scores[-3:])),
        *(np.empty((0, 0), np.bool_) if keep is None else keep.reshape(x.shape) for keep in keeps[1:]),
    )
    factors = tuple(np.float32(factor) for factor in (1.0 / math.sqrt(width // n_heads), *raised))
    pre = layer.self_attention.order == "pre"
    kinds = (pre, bool(causal), loops.CURVES[feed_forward.activation])
    multiplications = n_rows * sum(weight.size for weight in weights) + 2 * n_rows * scores[-1] * width
    n_parts = min(blas_threads(), n_rows) if multiplications >= SHARED else 1

    def empty(number: int, columns: int = width) -> list[Array]:
        return [np.empty((n_rows, columns), np.float32) for _ in range(number)]

    q, k, v, merged, n1, n2, y, out1, between = empty(9)
    h, active = empty(2, n_hidden)
    source1, source2 = (between, between) if pre else (x, out1)
    total1, total2 = (out1, y) if pre else (between, between)
    inverse1, inverse2 = np.empty((2, n_rows), np.float32)
    totals, shifts = np.empty((2, n_sequences, n_heads, n_new), np.float32)
    is_stored = cache is None and keeps[0] is None and scores[-1] <= KEPT_KEYS
    stored = np.empty((*totals.shape, scores[-1]) if is_stored else (0,) * 4, np.float32)
    saved = (n1, inverse1, q, k, v, merged, n2, inverse2, h, totals, shifts, stored)
    passing = (source1, total1, out1, source2, active, total2, y)
    if cache is None:  # backward recomputes the norms' outputs, so it needs the γ and β of this call
        vectors = tuple(vector.copy() for vector in vectors)
    common = (loops.ready(), n_parts, kinds, (n_sequences, n_heads, length), factors, weights, vectors, masks, saved)
    _enter(n_parts, loops.layer, *common, biases, eps, buffers, x, passing, loops.counters(3))
    y = y.reshape(x_shape)
    if cache is not None:
        cache.length += n_new
        return y, None
    source = n1 if pre else x  # pre-norm recomputes its source, so it keeps no x

    def backward(dy: Array) -> Array:
        check_gradient("encoder_layer", dy, x_shape, x_dtype, np)
        dtotal2 = _as_rows(dy) if pre else empty(1)[0]
        (dout1, dx, dq, dk, dv, dsource), (dh, active) = empty(6), empty(2, n_hidden)
        dtotal1 = dout1 if pre else empty(1)[0]
        dupdate1, dupdate2 = (
            d if keep is None else np.empty_like(d) for d, keep in zip((dtotal1, dtotal2), keeps[1:], strict=True)
        )
        sums, norm_sums = np.empty((n_parts, max(width, n_hidden))), np.empty((n_parts, 4, width))
        room = (dtotal2, dupdate2, dh, active, dsource, dout1, dtotal1, dupdate1, dq, dk, dv, sums, norm_sums)
        targets = tuple(_target(p, value) for p, value in zip(learned, given, strict=True))
        gradients = (targets[:6], targets[6:12], targets[12:])
        _enter(n_parts, loops.layer_backward, *common, *gradients, room, source, _as_rows(dy), dx, loops.counters(4))
        for p, target in zip(learned, targets, strict=True):
            if p is not None and target is not p.grad:
                p.grad += target
        return dx.reshape(x_shape)

    return y, backward


def _target(parameter: Any, value: Array) -> Array:
    """The array to which the loops add a gradient: the Parameter's own, or zeros if the loops cannot use that."""
    grad = None if parameter is None else parameter.grad
    fits = type(grad) is np.ndarray and grad.dtype == value.dtype and grad.shape == value.shape and grad.flags.carray
    return grad if fits else np.zeros_like(value)


def _as_rows(x: Array) -> Array:
    """The array as (N, D), contiguous and writeable: for other arrays Numba would compile the loops again."""
    return np.require(x.reshape(-1, x.shape[-1]), requirements=["C", "A", "W"])


def _can_grow(cache: Any, new: Array) -> bool:
    """Whether a cache is empty, or keys and values of this shape fit after those it holds."""
    try:
        buffers = cache.buffers()
    except ValueError:  # it has none yet
        return True
    shape = new.shape[:2] + new.shape[3:]
    return all(b.shape[:2] + b.shape[3:] == shape and compiled(b) and b.flags.carray for b in buffers)


def _enter(n_parts: int, loop: Any, *arguments: Any) -> None:
    """Run the loop on this many threads."""
    share_out(lambda _: loop(*arguments), range(n_parts))


@functools.cache
def _loops() -> Any:
    """The module layer_loops if Numba is installed and NumPy has a matrix product for it; otherwise None."""
    from . import layer_loops

    return layer_loops if layer_loops.ready() else None
