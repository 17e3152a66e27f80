"""Attention on the GPU, with memory that grows with T; see attention.cu."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ..attention import mask_fits
from .launching import NOTHING, ceil_div, contiguous, kernels_of, takes

THREADS = 64  # threads per block
WIDTHS = 32, 64, 128  # of the rows of a tile; the kernels fill up with zeros


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: Rng | None = None,
    bias: Array | None = None,
) -> tuple[Array, Pullback] | None:
    """See core/ops/attention.py. Up to four axes, and heads of up to 128 numbers.

    The textbook op handles a single query, as in decoding with a cache (no T² to save), and scores with a bias.
    """
    if bias is not None:
        return None
    if not takes(q, k, v) or not 2 <= q.ndim == k.ndim == v.ndim <= 4 or q.shape[-2] == 1:
        return None
    if not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and k.shape[-2] == v.shape[-2] and q.shape[-1] == k.shape[-1]):
        return None
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    (t_q, d_k), (t_k, d_v) = q.shape[-2:], v.shape[-2:]
    if type(factor) not in (int, float) or not math.isfinite(factor) or max(d_k, d_v) > max(WIDTHS):
        return None
    if not mask_fits(mask, (*q.shape[:-1], t_k), type(q)):
        return None
    if not isinstance(rng, np.random.Generator | None) or type(dropout) not in (int, float) or not 0 <= dropout < 1:
        return None
    xp = array_module(q)
    width = next(n for n in WIDTHS if n >= max(d_k, d_v))
    forward, backward_queries, backward_keys = kernels_of("attention.cu", q, str(width))
    tile = 16 if width == 128 else 32  # rows of q or k for each block
    n_axes = q.ndim
    n_batch, n_heads = (1,) * (4 - n_axes) + q.shape[:-2]
    rate, seed = 0.0, NOTHING
    if rng is not None and dropout:
        rate, seed = float(dropout), rng.integers(2**64, dtype=np.uint64)  # as in backend.uniform
    shapes = (n_heads, t_q, t_k, d_k, d_v)
    options = (*_mask_and_strides(mask), int(causal), float(factor), rate, seed)

    def grid(length: int) -> tuple[int, int]:
        return n_batch * n_heads, ceil_div(length, tile)

    queries, keys, values = (contiguous(_length_first(x)) for x in (q, k, v))
    output = xp.empty((n_batch, t_q, n_heads, d_v), dtype=q.dtype)
    largest, inverse = (xp.empty((n_batch, n_heads, t_q), dtype="float32") for _ in range(2))
    forward(grid(t_q), (THREADS,), queries, keys, values, output, largest, inverse, *shapes, *options)

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dout = contiguous(_length_first(doutput))
        dq, dk, dv = (xp.empty(x.shape, dtype=x.dtype) for x in (queries, keys, values))
        along = xp.empty(largest.shape, dtype="float32")
        given, kept = (queries, keys, values), (largest, inverse)
        backward_queries(grid(t_q), (THREADS,), *given, output, *kept, dout, dq, along, *shapes, *options)
        backward_keys(grid(t_k), (THREADS,), *given, *kept, along, dout, dk, dv, *shapes, *options)
        return _heads_first(dq, n_axes), _heads_first(dk, n_axes), _heads_first(dv, n_axes)

    return _heads_first(output.copy(), n_axes), backward  # a copy, because the caller may write to it


def _length_first(x: Array) -> Array:
    """(..., heads, T, d) as (batch, T, heads, d), the memory layout of heads split from a linear map's output."""
    return x[(None,) * (4 - x.ndim)].swapaxes(1, 2)


def _heads_first(x: Array, n_axes: int) -> Array:
    """The inverse, without the first axes if there were fewer than four."""
    return x.swapaxes(1, 2)[(0,) * (4 - n_axes)]


def _mask_and_strides(mask: Array | None) -> tuple[Any, ...]:
    """The mask and its strides along batch, heads, queries and keys; a stride is 0 where all share one entry."""
    if mask is None:
        return (NOTHING, 0, 0, 0, 0)
    strides = [0 if n == 1 else stride for n, stride in zip(mask.shape, mask.strides, strict=True)]
    return (mask, *[0] * (4 - len(strides)), *strides)
