"""Writing token after token: one new row for each sequence, and every weight of the model read for it.

A product of a few rows with a large matrix takes as long as reading the matrix, for each number of it is used only once
for each row. So the loops here read in long stretches, and all threads read at once. A thread takes some rows of a
matrix, and what it comes to is one term of a sum:

    x W = x[:, :k] W[:k] + x[:, k:] W[k:]

or it takes some heads, or some hidden units, and the rows of the output matrix that belong to them: what it comes to is
again one term (Shoeybi et al. 2019, "Megatron-LM", section 3). So the threads meet once in the feed-forward network,
and twice in attention, when the projections are done and at the end. The last bits depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend import Array
from ..forms import kernel
from .blocks import compiled, takes
from .threads import shares, together

FEW = 8  # rows
LARGE, LEAST_SIDE = 1 << 18, 256  # numbers of a matrix: more than stay in a core's cache, and in each row and column


def pays(x: Array, *weights: Array) -> bool:
    """Whether the products of x with such weights are better taken here than by BLAS."""
    return x.shape[0] <= FEW and all(w.size >= LARGE and min(w.shape) >= LEAST_SIDE for w in weights)


def products(x: Array, weights: Sequence[Array], loops: Any) -> list[Array]:
    """x W for each weight. x: (N, d_in); W: (d_in, d_out)."""

    def add(part: slice, sums: list[Array]) -> None:
        some = np.ascontiguousarray(x[:, part])
        for weight, total in zip(weights, sums, strict=True):
            loops.add_products(some, weight[part], 0, weight.shape[1], total)

    numbers = sum(weight.size for weight in weights)
    return _summed(add, shares(x.shape[1], numbers), [(x.shape[0], weight.shape[1]) for weight in weights])


def logits(x: Array, table: Array, loops: Any) -> Array:
    """x tableᵀ. x: (N, width); table: (V, width)."""
    y = np.empty((x.shape[0], table.shape[0]), np.float32)
    parts = shares(table.shape[0], table.size)
    together(lambda part: loops.dots(x, table, part.start, part.stop, y), [(part,) for part in parts])
    return y


def feed_forward(x: Array, inner: Any, w2: Array, curve: Any, loops: Any) -> tuple[Array, Array]:
    """Return h = x W_1 + b_1 and f(h) W_2. x: (N, d_model); inner, curve: see feed_forward.py."""
    w1 = inner.weight.value
    h = np.empty((x.shape[0], w1.shape[1]), np.float32)

    def add(units: slice, sums: list[Array]) -> None:
        hidden = np.zeros((x.shape[0], units.stop - units.start), np.float32)
        loops.add_products(x, w1, units.start, units.stop, hidden)
        if inner.bias is not None:
            hidden += inner.bias.value[units]
        active, slope = np.empty_like(hidden), np.empty_like(hidden)
        curve(hidden.reshape(-1), active.reshape(-1), slope.reshape(-1))
        loops.add_products(active, w2[units], 0, w2.shape[1], sums[0])
        h[:, units] = hidden

    (y,) = _summed(add, shares(w1.shape[1], w1.size + w2.size), [(x.shape[0], w2.shape[1])])
    return h, y


@kernel
def cached_attention(x: Array, layer: Any, cache: Any) -> Array | None:
    """Self-attention of one new token without a mask: see MultiHeadAttention in layers/attention.py. x: (N, 1, D)."""
    loops = _loops_for(x, layer, cache)
    if not loops:
        return None
    rows, wo = np.ascontiguousarray(x[:, 0]), layer.output.weight.value
    projections = (layer.query, layer.key, layer.value)
    q, k, v = map(_plus_bias, products(rows, [one.weight.value for one in projections], loops), projections)
    cache.extend(*(new.reshape(len(rows), layer.n_heads, 1, -1) for new in (k, v)))
    length, (keys, values) = cache.length, cache.buffers()
    d, d_v = keys.shape[-1], values.shape[-1]
    scale = np.float32(1.0 / math.sqrt(d))

    def add(heads: slice, sums: list[Array]) -> None:
        merged = np.empty((len(rows), (heads.stop - heads.start) * d_v), np.float32)
        loops.attend(q, keys, values, length, scale, heads.start, heads.stop, merged)
        loops.add_products(merged, wo[heads.start * d_v : heads.stop * d_v], 0, wo.shape[1], sums[0])

    numbers = wo.size + len(rows) * layer.n_heads * length * (d + d_v)
    (y,) = _summed(add, shares(layer.n_heads, numbers), [(len(rows), wo.shape[1])])
    return _plus_bias(y, layer.output)[:, None]


def _loops_for(x: Array, layer: Any, cache: Any) -> Any:
    """The compiled loops, if the call is for them. They read past the end of what is too short, so all shapes count."""
    projections = (layer.query, layer.key, layer.value)
    weights = [p.value for one in (*projections, layer.output) for p in (one.weight, one.bias) if p is not None]
    if x.ndim != 3 or x.shape[1] != 1 or x.shape[0] > FEW or layer.n_heads < 1 or not takes(x, *weights):
        return None
    if not all(fits(x.shape[-1:], one) for one in projections):
        return None
    q_width, k_width, v_width = (one.weight.value.shape[1:] for one in projections)
    if q_width != k_width or not fits(v_width, layer.output) or any(w[0] % layer.n_heads for w in (q_width, v_width)):
        return None
    return compiled(*weights, *(cache.buffers() if cache.length else ()))


def fits(width: tuple[int, ...], layer: Any) -> bool:
    """Whether a Linear layer's arrays have shapes that take rows of this width."""
    weight, bias = layer.weight.value, layer.bias
    return weight.ndim == 2 and weight.shape[:1] == width and (bias is None or bias.value.shape == weight.shape[1:])


def _summed(
    add: Callable[[slice, list[Array]], None], parts: list[slice], shapes: list[tuple[int, int]]
) -> list[Array]:
    """Have every part added to zeros of its own, and add these up."""
    sums = [[np.zeros(shape, np.float32) for shape in shapes] for _ in parts]
    together(add, list(zip(parts, sums, strict=True)))
    for others in sums[1:]:
        for total, other in zip(sums[0], others, strict=True):
            total += other
    return sums[0]


def _plus_bias(y: Array, layer: Any) -> Array:
    return y if layer.bias is None else np.add(y, layer.bias.value, out=y)
