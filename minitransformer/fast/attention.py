"""Attention in blocks of queries. The weights are not normalised, and large ones are not kept.

Write E = exp(scores), 1/total for the inverse of its row sums, and weights = E / total. To divide T_q · T_k weights is
expensive, and to divide the T_q rows of the output is cheap. So only the rows are divided:

    output   = (E v) / total
    doutput' = doutput / total                             row by row
    dv       = Eᵀ doutput'
    dscores  = E * (doutput' vᵀ - sum_c doutput'_c output_c)

because sum_l dweights_l weights_l, the softmax's row sum in ops/attention.py, equals sum_c doutput_c output_c: a sum
over d_v instead of T_k terms (Dao et al. 2022, "FlashAttention", section 3.1). This saves one more pass over the
scores. If attention is causal, a block of queries computes only the keys that one of them may see.

Up to KEPT_KEYS keys, E is kept for backward. Beyond that it is recomputed from q and k, so for long sequences the
memory grows with T, not with T².

All this is done in compiled loops, attention_loops.py. Without them the op runs as written, but a long causal call
block by block: each block of queries with the keys that it may see. Then the weights of these are kept.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback, uniform
from ..arrays.masks import causal_mask
from ..ops.attention import attention as written
from ..training.threads import blas_threads, share_out
from .blocks import compiled, takes

KEPT_KEYS = 64
_MANY = 1 << 18  # scores that are worth threads of their own
LONG = 192  # keys: with fewer, the blocks in NumPy are not 1.3 times as fast as the op as written
ROWS = 64  # queries of such a block: with fewer a matrix product is slow, and more of them could skip fewer keys


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
    bias: Array | None = None,
) -> tuple[Array, Pullback] | None:
    """See ops/attention.py; scores with a bias are left to it."""
    if bias is not None:
        return None
    if not takes(q, k, v) or not q.ndim == k.ndim == v.ndim >= 2:
        return None
    if not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and k.shape[-2] == v.shape[-2] and q.shape[-1] == k.shape[-1]):
        return None
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    t_q, t_k = q.shape[-2], k.shape[-2]
    if type(factor) not in (int, float) or not math.isfinite(factor) or not mask_fits(mask, (*q.shape[:-1], t_k)):
        return None
    if causal and t_q > t_k:  # the first queries see nothing; causal blocks cannot handle that
        seen = causal_mask(t_q, t_k, "numpy")
        return attention(q, k, v, seen if mask is None else mask & seen, False, factor, dropout, rng)
    if not isinstance(rng, np.random.Generator | None) or type(dropout) not in (int, float) or not 0 <= dropout < 1:
        return None
    generator = rng if dropout else None
    in_loops = compiled(np.empty(0, q.dtype)) and _loops()
    if not in_loops and (not causal or t_k < LONG or generator is not None):
        return None

    q4, k4, v4, shapes = *map(_four_axes, (q, k, v)), (q.shape, k.shape, v.shape)
    mask4 = None if mask is None else mask_of((*q.shape[:-1], t_k), mask)
    if in_loops:
        kept = None if generator is None else uniform(generator, (*q4.shape[:-1], t_k), like=q) >= dropout
        raised = 1.0 if generator is None else 1.0 / (1.0 - dropout)  # what dropout scales the rest up by
        output4, backward4 = _in_loops(q4, k4, v4, mask4, causal, factor, kept, raised)
    else:
        output4, backward4 = _in_blocks(q4, k4, v4, mask4, factor)

    def backward(doutput: Array) -> tuple[Array, ...]:
        gradients = backward4(_four_axes(doutput))
        return tuple(x.reshape(shape) for x, shape in zip(gradients, shapes, strict=True))

    return output4.reshape(*q.shape[:-1], v.shape[-1]), backward


def _in_loops(
    q4: Array, k4: Array, v4: Array, mask4: Array | None, causal: bool, scale: float, kept: Array | None, raised: float
) -> tuple[Array, Pullback]:
    """The compiled form. kept: True where dropout keeps a weight, (batch, heads, T_q, T_k); raised: their factor."""
    loops, t_k = _loops(), k4.shape[-2]
    matrices = tuple(map(_as_matrices, (q4, k4, v4)))
    output4 = _heads_like(q4, v4.shape[-1])
    totals, subtracted = np.empty(q4.shape[:-1], np.float32), np.empty(q4.shape[:-1], np.float32)
    stored = np.empty((*q4.shape[:-1], t_k) if t_k <= KEPT_KEYS and kept is None else (0,) * 4, np.float32)
    given = (*matrices, or_nothing(mask4), or_nothing(kept), bool(causal), np.float32(scale), np.float32(raised))
    made = (output4, totals, subtracted, stored)
    n = q4.shape[0] * q4.shape[1]

    def run(loop: Any, *more: Array) -> None:
        cuts = range(n + 1) if totals.size * t_k >= _MANY and blas_threads() > 1 else (0, n)
        share_out(lambda part: loop(loops.ready(), part, *given, *made, *more), list(itertools.pairwise(cuts)))

    run(loops.attend)

    def backward(dout4: Array) -> tuple[Array, ...]:
        dq, dk, dv = (_heads_like(x, x.shape[-1]) for x in matrices)
        run(loops.attend_backward, _as_matrices(dout4), dq, dk, dv)
        return dq, dk, dv

    return output4.copy(order="K"), backward  # backward reads its own copy: the caller may write to output


def _in_blocks(q4: Array, k4: Array, v4: Array, mask4: Array | None, scale: float) -> tuple[Array, Pullback]:
    """The form in NumPy, causal. Each thread takes some of the sequences."""
    n_batch, (t_q, t_k) = len(q4), (q4.shape[-2], k4.shape[-2])
    n = min(n_batch, blas_threads())
    parts = [slice(n_batch * i // n, n_batch * (i + 1) // n) for i in range(n)]
    seen = None if mask4 is None else np.broadcast_to(mask4, (*q4.shape[:-1], t_k))
    ends = [min(start + ROWS, t_q) for start in range(0, t_q, ROWS)]
    places = [(slice(start, end), slice(t_k - t_q + end)) for start, end in zip([0, *ends], ends, strict=False)]
    output4 = _heads_like(q4, v4.shape[-1])
    pullbacks: dict[tuple[int, int], Pullback] = {}

    def attend(part: slice) -> None:
        for rows, keys in places:
            given = (q4[part, :, rows], k4[part, :, keys], v4[part, :, keys])
            mask = None if seen is None else seen[part, :, rows, keys]
            y, pullbacks[part.start, rows.start] = written(*given, mask, causal=True, scale=scale)
            output4[part, :, rows] = y

    share_out(attend, parts)

    def backward(dout4: Array) -> tuple[Array, ...]:
        dq, dk, dv = (_heads_like(x, x.shape[-1]) for x in (q4, k4, v4))

        def collect(part: slice) -> None:
            dk[part], dv[part] = 0.0, 0.0
            for rows, keys in places:
                dq[part, :, rows], dk_part, dv_part = pullbacks[part.start, rows.start](dout4[part, :, rows])
                dk[part, :, keys] += dk_part
                dv[part, :, keys] += dv_part

        share_out(collect, parts)
        return dq, dk, dv

    return output4, backward


def mask_fits(mask: Array | None, shape: tuple[int, ...]) -> bool:
    """Whether a mask is missing, or a boolean array that broadcasts to this shape, as `ops.attention` asks."""
    if mask is None:
        return True
    if type(mask) is not np.ndarray or mask.dtype != np.bool_ or mask.ndim > len(shape) or not mask.size:
        return False
    return all(m in (1, n) for m, n in zip(reversed(mask.shape), reversed(shape), strict=False))


def _four_axes(x: Array) -> Array:
    """(..., T, d) as (batch, heads, T, d), without a copy for up to four axes."""
    return x[(None,) * (3 - x.ndim)][:, None] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])


@functools.cache
def _loops() -> Any:
    """The module attention_loops if Numba is installed and NumPy has a matrix product for it; otherwise None."""
    from . import attention_loops

    return attention_loops if attention_loops.ready() else None


def _as_matrices(x4: Array) -> Array:
    """The array in a layout that BLAS accepts: the numbers of a row are adjacent, and rows do not overlap."""
    row, number = x4.strides[-2] // x4.itemsize, x4.strides[-1] // x4.itemsize
    fits = number == 1 and row >= x4.shape[-1] and not any(step % x4.itemsize for step in x4.strides)
    return x4 if fits and x4.flags.aligned else x4.copy()


def or_nothing(x4: Array | None) -> Array:
    """The array, or an empty one: a compiled loop cannot take None."""
    return np.empty((0,) * 4, np.bool_) if x4 is None else x4


def _heads_like(x4: Array, width: int) -> Array:
    """An empty (batch, heads, T, width), stored as (batch, T, heads, width), so merging the heads copies nothing."""
    n_batch, n_heads, length, _ = x4.shape
    return np.empty((n_batch, length, n_heads, width), x4.dtype).swapaxes(1, 2)


def mask_of(shape: tuple[int, ...], mask: Array) -> Array:
    """A contiguous copy of a mask, (1 or batch, 1 or heads, 1 or T_q, T_k). It is a copy because backward reads it."""
    n = len(shape)
    mask = mask.reshape((1,) * (n - mask.ndim) + mask.shape)
    leading = shape[:-3] if n > 4 else mask.shape[:-3]  # if several axes become one, each must have its full size
    return np.array(_four_axes(np.broadcast_to(mask, (*leading, *mask.shape[-3:-1], shape[-1]))), order="C")
