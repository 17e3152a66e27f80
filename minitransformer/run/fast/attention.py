"""Attention in blocks of queries. The weights are neither normalised nor kept.

Let E = exp(scores), let total be its row sums, and weights = E / total. Dividing T_q · T_k weights is expensive, but
dividing the T_q rows of the output is cheap. So only the rows are divided:

    output   = (E v) / total
    doutput' = doutput / total                             row by row
    dv       = Eᵀ doutput'
    dscores  = E * (doutput' vᵀ - sum_c doutput'_c output_c)

because sum_l dweights_l weights_l, the softmax's row sum in core/ops/attention.py, equals sum_c doutput_c output_c: a
sum over d_v instead of T_k terms (Dao et al. 2022, "FlashAttention", section 3.1). This saves one more pass over the
scores. If attention is causal, a block of queries computes only the keys that one of them may see.

Backward recomputes E from q and k, so for long sequences the memory grows with T, not with T².

Where Numba is installed, compiled loops do all this (attention_loops.py); this file has the form in NumPy. That form
saves time where a causal mask lets it skip keys, and memory for long sequences. So a short call runs as written.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng
from ...core.arrays.masks import causal_mask
from ..machines.threads import blas_threads, share_out
from .row_blocks import BLOCK, compiled, keeps, row_sums, takes

SHORT = 128  # keys: up to so many, or half as many if causal, the form in NumPy is slower than the op as written
_MANY = 1 << 18  # scores from which more threads pay

Place = tuple[slice, slice, slice, int]  # a block: its sequences, heads and queries, and how many keys it sees


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
    form = _in_loops if compiled(np.empty(0, q.dtype), part="attention") and _loops() else _in_blocks
    if form is _in_blocks and t_k <= (SHORT // 2 if causal else SHORT):
        return None
    if not isinstance(rng, np.random.Generator | None) or type(dropout) not in (int, float) or not 0 <= dropout < 1:
        return None
    generator = rng if dropout else None

    q4, k4, v4, shapes = *map(_four_axes, (q, k, v)), (q.shape, k.shape, v.shape)
    mask4 = None if mask is None else mask_of((*q.shape[:-1], t_k), mask)
    kept = None if generator is None else keeps(generator, (*q4.shape[:-1], t_k), dropout)
    raised = 1.0 if generator is None else 1.0 / (1.0 - dropout)  # the factor of the weights that dropout keeps
    output4, backward4 = form(q4, k4, v4, mask4, causal, factor, kept, raised)

    def backward(doutput: Array) -> tuple[Array, ...]:
        gradients = backward4(_four_axes(doutput))
        return tuple(x.reshape(shape) for x, shape in zip(gradients, shapes, strict=True))

    output = output4.copy(order="K")  # backward reads its own copy: the caller may write to output
    return output.reshape(*q.shape[:-1], v.shape[-1]), backward


def _in_loops(
    q4: Array, k4: Array, v4: Array, mask4: Array | None, causal: bool, scale: float, kept: Array | None, raised: float
) -> tuple[Array, Pullback]:
    """The compiled form. kept: True where dropout keeps a weight, (batch, heads, T_q, T_k); raised: their factor."""
    loops, t_k = _loops(), k4.shape[-2]
    matrices = tuple(map(_as_matrices, (q4, k4, v4)))
    output4 = _heads_like(q4, v4.shape[-1])
    totals, subtracted = np.empty(q4.shape[:-1], np.float32), np.empty(q4.shape[:-1], np.float32)
    given = (*matrices, or_nothing(mask4), or_nothing(kept), bool(causal), np.float32(scale), np.float32(raised))
    made = (output4, totals, subtracted)
    n = q4.shape[0] * q4.shape[1]

    def run(loop: Any, *more: Array) -> None:
        cuts = range(n + 1) if totals.size * t_k >= _MANY and blas_threads() > 1 else (0, n)
        share_out(lambda part: loop(loops.ready(), part, *given, *made, *more), list(itertools.pairwise(cuts)))

    run(loops.attend)

    def backward(dout4: Array) -> tuple[Array, ...]:
        dq, dk, dv = (_heads_like(x, x.shape[-1]) for x in matrices)
        run(loops.attend_backward, _as_matrices(dout4), dq, dk, dv)
        return dq, dk, dv

    return output4, backward


def _in_blocks(
    q4: Array, k4: Array, v4: Array, mask4: Array | None, causal: bool, scale: float, kept: Array | None, raised: float
) -> tuple[Array, Pullback]:
    """The NumPy form, with the same arguments."""
    t_q, t_k = q4.shape[-2], k4.shape[-2]
    scaled_q = q4 * scale  # from here on q itself is not needed and can be freed
    hidden = None if mask4 is None else np.broadcast_to(~mask4, (*q4.shape[:-1], t_k))
    parts = [list(part) for part in _parts(scaled_q.shape, t_k, causal)]
    share = share_out if scaled_q[..., 0].size * t_k >= _MANY else _in_turn
    output4 = _heads_like(scaled_q, v4.shape[-1])
    totals = np.empty((*q4.shape[:-1], 1), q4.dtype)

    def exponentials(place: Place) -> tuple[Array, Array]:
        """exp(scores) of one block, zero for hidden keys, and the sum of each row."""
        batch, heads, queries, n_keys = place
        part_q = scaled_q[batch, heads, queries]
        e = np.empty((*part_q.shape[:-1], n_keys), part_q.dtype)  # contiguous for any layout of q, so rows is a view
        np.matmul(part_q, k4[batch, heads, :n_keys].swapaxes(-1, -2), out=e)
        rows = e.reshape(-1, n_keys)
        if hidden is not None:  # hidden scores may be NaN, so overwrite them instead of adding to them
            np.copyto(e, -np.inf, where=hidden[batch, heads, queries, :n_keys])
        if causal:
            n = queries.stop - queries.start
            np.copyto(e[..., n_keys - n :], -np.inf, where=_ahead(n))
        largest = e.max(axis=-1, keepdims=True)
        e -= np.where(largest == -np.inf, 0.0, largest)
        total = row_sums(np.exp(rows, out=rows))
        return e, total.reshape(*e.shape[:-1], 1)

    def attend(part: list[Place]) -> None:
        for place in part:
            batch, heads, queries, n_keys = place
            e, total = exponentials(place)
            totals[batch, heads, queries] = np.where(total == 0.0, 1.0, total)
            weights = e if kept is None else e * kept[batch, heads, queries, :n_keys]
            np.matmul(weights, v4[batch, heads, :n_keys], out=output4[batch, heads, queries])

    share(attend, parts)
    np.divide(output4, totals, out=output4)
    np.multiply(output4, raised, out=output4)

    def backward(dout4: Array) -> tuple[Array, ...]:
        dout = dout4 / totals
        along = np.einsum("bhtd,bhtd->bht", dout, output4)[..., None]
        np.multiply(dout, raised, out=dout)
        dq, dk, dv = (_heads_like(x, x.shape[-1]) for x in (scaled_q, k4, v4))

        def fill_gradients(part: list[Place]) -> None:
            for place in reversed(part):
                batch, heads, queries, n_keys = place
                last = queries.stop == t_q  # the last queries come first, and see all keys
                e = exponentials(place)[0]
                dout_block = dout[batch, heads, queries]
                dscores = dout_block @ v4[batch, heads, :n_keys].swapaxes(-1, -2)
                weights = e
                if kept is not None:
                    weights = e * kept[batch, heads, queries, :n_keys]
                    dscores *= kept[batch, heads, queries, :n_keys]
                _collect(weights.swapaxes(-1, -2), dout_block, dv[batch, heads, :n_keys], last)
                dscores -= along[batch, heads, queries]
                dscores *= e
                np.matmul(dscores, k4[batch, heads, :n_keys], out=dq[batch, heads, queries])
                _collect(dscores.swapaxes(-1, -2), scaled_q[batch, heads, queries], dk[batch, heads, :n_keys], last)

        share(fill_gradients, parts)
        np.multiply(dq, scale, out=dq)
        return dq, dk, dv

    return output4, backward


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


@functools.cache
def _loops() -> Any:
    """The module attention_loops if Numba is installed and NumPy has a matrix product for it; otherwise None."""
    from . import attention_loops

    return attention_loops if attention_loops.ready() else None


def _as_matrices(x4: Array) -> Array:
    """The array in a layout that BLAS accepts: adjacent numbers in each row, and no overlapping rows."""
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


@functools.lru_cache(maxsize=32)
def _ahead(n: int) -> Array:
    """(n, n): True for the keys after each query."""
    return np.triu(np.ones((n, n), np.bool_), k=1)


def _parts(shape: tuple[int, ...], n_keys: int, causal: bool) -> Iterator[Iterator[Place]]:
    """Blocks of about BLOCK · 4 scores, in parts that share no sequence and no head.

    A block is several sequences, or some heads of one sequence, or some queries of one head. It has at least 64
    queries, because with fewer rows a matrix product is slow, and at least 128 if one row fills much of the cache.
    Causal blocks have no more queries than that, because each block computes all keys that its last query sees.
    """
    n_batch, n_heads, n_queries, _ = shape
    fewest = 64 if n_keys < 2048 else 128
    n_rows = min(n_queries, fewest if causal else max(fewest, BLOCK * 4 // n_keys))
    step = min(n_heads, max(1, BLOCK * 4 // (n_rows * n_keys)))
    n_sequences = max(1, BLOCK * 4 // (n_queries * n_keys * n_heads))

    def places(batch: slice, heads: slice) -> Iterator[Place]:
        for start in range(0, n_queries, n_rows):
            stop = min(start + n_rows, n_queries)
            yield batch, heads, slice(start, stop), n_keys - n_queries + stop if causal else n_keys

    for b in range(0, n_batch, n_sequences):
        for h in range(0, n_heads, step):
            yield places(slice(b, min(b + n_sequences, n_batch)), slice(h, min(h + step, n_heads)))


def _in_turn(work: Callable[[list[Place]], None], parts: list[list[Place]]) -> None:
    for part in parts:
        work(part)


def _collect(a: Array, b: Array, target: Array, first: bool) -> None:
    """Write the product a b to target the first time, and add it afterwards."""
    if first:
        np.matmul(a, b, out=target)
    else:
        target += a @ b
