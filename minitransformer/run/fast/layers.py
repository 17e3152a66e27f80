"""A whole encoder layer as one call of a compiled loop, if NumPy has OpenBLAS and Numba is installed.

In a small model Python takes most of the time: a layer has about twenty ops, each with its checks, arrays and closures.
Workers run in parallel, but wait for each other's Python code. layer_loops.py has the formulas of core/layers/blocks.py
and of the ops, in the same order.

A call becomes a plan, or none where the loops would not do what the layer does. What a plan runs needs no more checks.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback
from ...core.arrays.boundary import check_gradient
from ...core.ops.dropout import uniform
from ..machines.threads import blas_threads, share_out
from .attention import mask_fits, mask_of, or_nothing
from .decoding import FEW, LARGE
from .row_blocks import compiled, takes

# From this number of multiplications on, a layer gets threads of our own. OpenBLAS's threads, which do the rest of a
# step, stay awake for about 20 ms after each product, and a smaller layer would have to share the cores with them.
SHARED = 1 << 30


def encoder_layer(
    x: Array, layer: Any, mask: Array | None, causal: bool, cache: Any, rng: np.random.Generator | None
) -> tuple[Array, Pullback | None] | None:
    """See EncoderLayer in core/layers/blocks.py. The parts of the layer must have the usual classes.

    With a cache there is no backward.
    """
    if type(causal) is not bool or (cache is not None and (cache.memory is not None or rng is not None)):
        return None
    plan = _plan(x, layer, mask, causal, cache, rng)
    return None if plan is None else _run(plan, x, cache, rng)


@dataclass(slots=True)
class _Plan:
    """A call that the loops take, without its numbers. The names are those of layer_loops.py."""

    loops: Any
    parameters: list[Any]  # see `parameters_of`
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]  # zeros for none
    norms: tuple[Array, ...]
    eps: tuple[Any, ...]  # of both norms
    shape: tuple[int, ...]  # of x and y
    scores: tuple[int, int, int, int]  # sequences, heads, queries, keys
    mask: Array  # a copy, because backward reads it; empty for none
    rates: tuple[float, float, float]  # of dropout: of the weights, and of both outputs
    kinds: tuple[bool, bool, int]  # whether pre-norm, whether causal, which activation
    n_parts: int  # as many threads may share the work

    def empty(self, number: int, columns: int | None = None) -> list[Array]:
        """New arrays with a row for each token of x."""
        columns = self.shape[-1] if columns is None else columns
        return [np.empty((self.scores[0] * self.scores[2], columns), np.float32) for _ in range(number)]


def _plan(
    x: Array, layer: Any, mask: Array | None, causal: bool, cache: Any, rng: np.random.Generator | None
) -> _Plan | None:
    parameters, attention, feed_forward = parameters_of(layer), layer.self_attention, layer.feed_forward
    values, eps = _learned(layer, parameters, x), (attention.norm.eps, feed_forward.norm.eps)
    loops = None if values is None else _loops()
    if not loops or values is None or feed_forward.sublayer.activation not in loops.CURVES:
        return None
    if not all(type(e) in (int, float) and 0.0 < e < math.inf for e in eps):
        return None
    weights = values[:6]
    *batch, n_new, width = x.shape
    n_rows, n_heads, n_keys = math.prod(x.shape[:-1]), attention.sublayer.n_heads, n_new
    if n_rows <= FEW and weights[4].size >= LARGE:  # reading the weights takes most of the time: see decoding.py
        return None
    if cache is not None:
        if not _can_grow(cache, _heads_of(x, n_heads)):
            return None
        n_keys += cache.length
    if type(mask) is np.ndarray and 2 < mask.ndim <= x.ndim:
        mask = mask[..., None, :, :]  # the same for every head, as in core/layers/attention.py
    scores = (*batch, n_heads, n_new, n_keys)
    rates = (attention.sublayer.mix.dropout, attention.dropout, feed_forward.dropout)
    if not mask_fits(mask, scores) or not _can_drop(rates, rng):
        return None
    multiplications = n_rows * (sum(weight.size for weight in weights) + 2 * n_keys * width)
    return _Plan(
        loops,
        parameters,
        weights,
        values[6:12],
        values[12:],
        tuple(map(np.float32, eps)),
        x.shape,
        (math.prod(batch), n_heads, n_new, n_keys),
        or_nothing(None if mask is None else mask_of((1,) * (4 - len(scores)) + scores, mask)),
        rates,
        (attention.order == "pre", causal, loops.CURVES[feed_forward.sublayer.activation]),
        min(blas_threads(), n_rows) if multiplications >= SHARED else 1,
    )


def parameters_of(layer: Any) -> list[Any]:
    """The Parameters of an EncoderLayer: six weights, their biases or None, γ and β of both norms."""
    a, f = layer.self_attention.sublayer, layer.feed_forward.sublayer
    maps = (a.query, a.key, a.value, a.output, f.inner, f.output)
    norms = (layer.self_attention.norm, layer.feed_forward.norm)
    return [*(m.weight for m in maps), *(m.bias for m in maps), *(p for n in norms for p in (n.gamma, n.beta))]


def _learned(layer: Any, parameters: list[Any], x: Array) -> tuple[Array, ...] | None:
    """The values, zeros for a missing bias; None if an op would refuse some, or one is not contiguous float32."""
    attention = layer.self_attention.sublayer
    values = tuple(
        np.zeros(parameters[i - 6].value.shape[-1:], x.dtype) if p is None else p.value
        for i, p in enumerate(parameters)
    )
    if not takes(x, *values) or not compiled(*values, part="layers") or x.ndim < 2 or attention.d_model != x.shape[-1]:
        return None
    if not all(value.flags.carray for value in values):
        return None
    return values if _shapes_fit(values, attention.d_model, attention.n_heads) else None


def _shapes_fit(values: tuple[Array, ...], width: int, n_heads: int) -> bool:
    """Whether the arrays have the shapes of such a layer. The loops would read past the end of a shorter array."""
    if type(n_heads) is not int or n_heads < 1 or width % n_heads:
        return False
    n_hidden = values[5].shape[0] if values[5].ndim else 0
    shapes: list[tuple[int, ...]] = [(width, width)] * 4 + [(width, n_hidden), (n_hidden, width)]
    return [a.shape for a in values] == shapes + [(width,)] * 4 + [(n_hidden,)] + [(width,)] * 5


def _can_drop(rates: tuple[Any, ...], rng: Any) -> bool:
    """Whether dropout would take these rates and this generator."""
    fit = all(type(rate) in (int, float) and 0.0 <= rate < 1.0 for rate in rates)
    return fit and isinstance(rng, np.random.Generator | None)


def _can_grow(cache: Any, new: Array) -> bool:
    """Whether a cache is empty, or keys and values of this shape fit after those it holds."""
    if new.ndim != 4:
        return False
    try:
        buffers = cache.buffers()
    except ValueError:  # it has none yet
        return True
    shape = new.shape[:2] + new.shape[3:]
    return all(b.shape[:2] + b.shape[3:] == shape and compiled(b, part="layers") and b.flags.carray for b in buffers)


def _run(plan: _Plan, x: Array, cache: Any, rng: np.random.Generator | None) -> tuple[Array, Pullback | None]:
    (pre, *_), loops, empty = plan.kinds, plan.loops, plan.empty
    n_sequences, n_heads, n_new, n_keys = plan.scores
    caches = (np.empty((0,) * 4, np.float32),) * 2 if cache is None else cache.make_room(_heads_of(x, n_heads))
    x, x_shape, x_dtype = _as_rows(x), x.shape, x.dtype
    kept, raised = _dropout(plan, rng)
    factors = tuple(np.float32(factor) for factor in (1.0 / math.sqrt(x.shape[1] // n_heads), *raised))

    q, k, v, merged, n1, n2, y, out1, between = empty(9)
    h, active = empty(2, plan.weights[4].shape[1])
    source1, source2 = (between, between) if pre else (x, out1)
    total1, total2 = (out1, y) if pre else (between, between)
    inverse1, inverse2 = np.empty((2, len(x)), np.float32)
    totals, shifts = np.empty((2, *plan.scores[:3]), np.float32)
    saved = (n1, inverse1, q, k, v, merged, n2, inverse2, h, totals, shifts)
    passing = (source1, total1, out1, source2, active, total2, y)
    norms = plan.norms
    if cache is None:  # backward recomputes the norms' outputs, so it needs the γ and β of this call
        norms = tuple(vector.copy() for vector in norms)
    sizes, masks = (n_sequences, n_heads, n_keys - n_new), (plan.mask, *kept)
    common = (loops.ready(), plan.n_parts, plan.kinds, sizes, factors, plan.weights, norms, masks, saved)
    _enter(plan.n_parts, loops.layer, *common, plan.biases, plan.eps, caches, x, passing, loops.counters(3))
    if cache is not None:
        cache.length += n_new
        return y.reshape(x_shape), None
    source = n1 if pre else x  # pre-norm recomputes its source, so it keeps no x

    def backward(dy: Array) -> Array:
        check_gradient("encoder_layer", dy, x_shape, x_dtype, np)
        return _run_backward(plan, common, kept, source, _as_rows(dy)).reshape(x_shape)

    return y.reshape(x_shape), backward


def _run_backward(plan: _Plan, common: tuple[Any, ...], kept: list[Array], source: Array, dy: Array) -> Array:
    """dx; and the parameters' gradients grow. common: what both loops take."""
    (pre, *_), loops, empty = plan.kinds, plan.loops, plan.empty
    dtotal2 = dy if pre else empty(1)[0]
    (dout1, dx, dq, dk, dv, dsource), (dh, active) = empty(6), empty(2, plan.weights[4].shape[1])
    dtotal1 = dout1 if pre else empty(1)[0]
    dupdate1, dupdate2 = (
        np.empty_like(d) if keep.size else d for d, keep in zip((dtotal1, dtotal2), kept[1:], strict=True)
    )
    n_parts, width = plan.n_parts, dx.shape[1]
    sums, norm_sums = np.empty((n_parts, max(width, plan.weights[4].shape[1]))), np.empty((n_parts, 4, width))
    room = (dtotal2, dupdate2, dh, active, dsource, dout1, dtotal1, dupdate1, dq, dk, dv, sums, norm_sums)
    targets = tuple(map(_target, plan.parameters, plan.weights + plan.biases + plan.norms))
    gradients = (targets[:6], targets[6:12], targets[12:])
    _enter(n_parts, loops.layer_backward, *common, *gradients, room, source, dy, dx, loops.counters(4))
    for p, target in zip(plan.parameters, targets, strict=True):
        if p is not None and target is not p.grad:
            p.grad += target
    return dx


def _dropout(plan: _Plan, rng: np.random.Generator | None) -> tuple[list[Array], list[float]]:
    """What dropout keeps of the weights and of both outputs, in the order of the ops, and the factors of that.

    Without dropout the array is empty and the factor 1.
    """
    rows = (plan.scores[0] * plan.scores[2], plan.shape[-1])
    kept, raised = [], []
    for shape, rate in zip((plan.scores, rows, rows), plan.rates, strict=True):
        if rng is None or not rate:
            kept.append(np.empty((0,) * len(shape), np.bool_))
            raised.append(1.0)
        else:
            kept.append(uniform(rng, shape, like=plan.mask) >= rate)
            raised.append(1.0 / (1.0 - rate))
    return kept, raised


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


@functools.cache
def _loops() -> Any:
    """The module layer_loops if Numba is installed and NumPy has a matrix product for it; otherwise None."""
    from . import layer_loops

    return layer_loops if layer_loops.ready() else None
