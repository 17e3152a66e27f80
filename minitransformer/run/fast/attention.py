"""Attention without its T² weights: the compiled loops of attention_loops.py, with the formulas; else NumPy in blocks.

The loops keep no weights, and compute them again in backward: so for long sequences the memory grows with T, not with
T². Without Numba, blocks of queries run as written. That saves time where a causal mask lets a block skip keys, and
memory where backward runs the blocks of a long call again. All other calls without Numba run as written as a whole.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...core import ops as textbook
from ...core.arrays.backend import Array, Pullback, Rng
from ...core.arrays.masks import causal_mask
from ..machines.threads import blas_threads, share_out
from .row_blocks import compiled, keeps, takes

ROWS = 64  # queries of a block in NumPy: with fewer a matrix product is slow
LONG = 1 << 22  # scores of a head from which backward runs the blocks again
_MANY = 1 << 18  # scores from which more threads pay
NOTHING = np.empty((0,) * 4, np.bool_)  # a mask that is absent: a compiled loop cannot take None


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
    """See core/ops/attention.py; scores with a bias are left to it."""
    if bias is not None or type(causal) is not bool:
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
    generator, loops = rng if dropout else None, compiled(np.empty(0, q.dtype), part="attention")
    if not loops:
        pays = t_q * t_k > LONG or (causal and t_q > ROWS)
        return _in_blocks(q, k, v, mask, causal, factor) if pays and generator is None else None

    (q4, k4, v4), shapes = (_as_matrices(_four_axes(x)) for x in (q, k, v)), (q.shape, k.shape, v.shape)
    mask4 = mask_of((*q.shape[:-1], t_k), mask)
    kept = keeps(generator, (*q4.shape[:-1], t_k), dropout) if generator else NOTHING
    raised = 1.0 / (1.0 - dropout) if generator else 1.0  # the factor of the weights that dropout keeps
    output4 = _heads_like(q4, v.shape[-1])
    totals, shifts = np.empty((2, *q4.shape[:-1]), q.dtype)
    given = (q4, k4, v4, mask4, kept, causal, *map(q.dtype.type, (factor, raised)), output4, totals, shifts)

    def run(loop: Any, *more: Array) -> None:
        n = totals.size // t_q  # heads
        n_parts = min(n, 4 * blas_threads()) if totals.size * t_k >= _MANY and blas_threads() > 1 else 1
        cuts = [n * i // n_parts for i in range(n_parts + 1)]
        share_out(lambda heads: loop(loops.ready(), heads, *given, *more), list(itertools.pairwise(cuts)))

    run(loops.attend)

    def backward(doutput: Array) -> tuple[Array, ...]:
        gradients = [_heads_like(x, x.shape[-1]) for x in (q4, k4, v4)]
        run(loops.attend_backward, _as_matrices(_four_axes(doutput)), *gradients)
        return tuple(dx.reshape(shape) for dx, shape in zip(gradients, shapes, strict=True))

    output = output4.copy(order="K")  # backward reads its own copy: the caller may write to output
    return output.reshape(*q.shape[:-1], v.shape[-1]), backward


def _in_blocks(q: Array, k: Array, v: Array, mask: Array | None, causal: bool, scale: float) -> tuple[Array, Pullback]:
    """The op as written on some queries after the other, and on the keys that one of them may see."""
    t_q, t_k = q.shape[-2], k.shape[-2]
    seen = None if mask is None else np.broadcast_to(mask.copy(), np.broadcast_shapes(mask.shape, (t_q, t_k)))
    blocks = [slice(start, min(start + ROWS, t_q)) for start in range(0, t_q, ROWS)]
    outputs, pullbacks = [], []

    def attend(rows: slice) -> tuple[Array, Pullback]:
        """Of some queries. The pullback returns the keys, and the gradients of the queries and of these."""
        keys = slice(t_k - t_q + rows.stop if causal else t_k)
        given = q[..., rows, :], k[..., keys, :], v[..., keys, :], None if seen is None else seen[..., rows, keys]
        y, pullback = textbook.attention(*given, causal, scale)
        return y, lambda dy: (keys, *pullback(dy))

    for rows in blocks:
        y, pullback = attend(rows)
        outputs.append(y)
        pullbacks.append(pullback if t_q * t_k <= LONG else lambda dy, rows=rows: attend(rows)[1](dy))

    def backward(dy: Array) -> tuple[Array, ...]:
        dq, dk, dv = (np.zeros(x.shape, x.dtype) for x in (q, k, v))
        for rows, pullback in zip(blocks, pullbacks, strict=True):
            keys, dq[..., rows, :], dk_some, dv_some = pullback(dy[..., rows, :])
            dk[..., keys, :] += dk_some
            dv[..., keys, :] += dv_some
        return dq, dk, dv

    return np.concatenate(outputs, axis=-2), backward


def mask_fits(mask: Array | None, shape: tuple[int, ...], kind: type[Any] = np.ndarray) -> bool:
    """Whether the mask is None, or a boolean array that broadcasts to this shape, as `ops.attention` requires."""
    if mask is None:
        return True
    if type(mask) is not kind or mask.dtype != np.bool_ or mask.ndim > len(shape) or not mask.size:
        return False
    return all(m in (1, n) for m, n in zip(reversed(mask.shape), reversed(shape), strict=False))


def _four_axes(x: Array) -> Array:
    """(..., T, d) as (batch, heads, T, d), without a copy for up to four axes."""
    return x[(None,) * (3 - x.ndim)][:, None] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])


def _as_matrices(x4: Array) -> Array:
    """The array in a layout that BLAS accepts: adjacent numbers in each row, and no overlapping rows."""
    row, number = x4.strides[-2] // x4.itemsize, x4.strides[-1] // x4.itemsize
    fits = number == 1 and row >= x4.shape[-1] and not any(step % x4.itemsize for step in x4.strides)
    return x4 if fits and x4.flags.aligned else x4.copy()


def _heads_like(x4: Array, width: int) -> Array:
    """An empty (batch, heads, T, width), stored as (batch, T, heads, width), so merging the heads copies nothing."""
    n_batch, n_heads, length, _ = x4.shape
    return np.empty((n_batch, length, n_heads, width), x4.dtype).swapaxes(1, 2)


def mask_of(shape: tuple[int, ...], mask: Array | None) -> Array:
    """A contiguous copy of a mask, (1 or batch, 1 or heads, 1 or T_q, T_k). It is a copy because backward reads it."""
    if mask is None:
        return NOTHING
    n = len(shape)
    mask = mask.reshape((1,) * (n - mask.ndim) + mask.shape)
    leading = shape[:-3] if n > 4 else mask.shape[:-3]  # if several axes become one, each must have its full size
    return np.array(_four_axes(np.broadcast_to(mask, (*leading, *mask.shape[-3:-1], shape[-1]))), order="C")
