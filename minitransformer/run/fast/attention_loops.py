# mypy: disable-error-code="no-untyped-def"
"""Attention of whole heads in compiled loops, forward and backward, with NumPy's own matrix product inside.

Let E = exp(scores), let total be its row sums, and weights = E / total. Only rows are divided, by their total:

    output  = (E v) / total
    dscores = weights * (doutput vᵀ - sum_c doutput_c output_c)

because sum_l dweights_l weights_l, the softmax's row sum in core/ops/attention.py, equals sum_c doutput_c output_c: a
sum over d_v instead of T_k terms (Dao et al. 2022, "FlashAttention", section 3.1). If attention is causal, a block of
queries computes only the keys that one of them may see.

No Python runs between the steps. So no thread waits for Python's lock, and a tile of scores is masked, exponentiated
and summed in one pass. A tile has ROWS queries and TILE keys, so that it stays in the core's cache. The largest score
of a row is known only after the last tile. So when a larger score appears, the sums so far are scaled down (Milakov and
Gimelshein 2018, "Online normalizer calculation for softmax").
"""

import functools
import threading

import numpy as np
from numba import types

from .blas import AS_IT_IS, FLIPPED, matrix_product, multiply
from .loops import compiled, copy, exponentials, f

ROWS, TILE = 64, 512


@compiled()
def _hide(row, mask, b, h, i, first):
    """Hide scores of keys, from `first` on, as the mask says. An axis of length one serves all its indices."""
    some = mask[b if mask.shape[0] > 1 else 0, h if mask.shape[1] > 1 else 0, i if mask.shape[2] > 1 else 0]
    allowed = some[first : first + row.size]
    for j in range(row.size):
        row[j] = row[j] if allowed[j] else f(-np.inf)


@compiled("reassoc", "nsz")
def attend(gemm, parts, q, k, v, mask, kept, causal, scale, raised, output, totals, shifts):
    """Fill output, and for backward the sum of each row's exponentials and the number subtracted from its scores.

    parts: (first, last) of the heads, counted over all sequences; q: (B, H, T_q, d), and similarly k, v and output;
    mask: boolean, (1 or B, 1 or H, 1 or T_q, T_k); kept: (B, H, T_q, T_k), True where dropout keeps a weight. For the
    last two, empty means absent.
    """
    n_heads, t_q, t_k = q.shape[1], q.shape[2], k.shape[2]
    scores = np.empty(ROWS * TILE, np.float32)
    for item in range(parts[0], parts[1]):
        b, h = item // n_heads, item % n_heads
        for start in range(0, t_q, ROWS):
            stop = min(start + ROWS, t_q)
            n_keys = t_k - t_q + stop if causal else t_k
            out, total, shift = output[b, h, start:stop], totals[b, h, start:stop], shifts[b, h, start:stop]
            total[:], shift[:] = f(0.0), f(-np.inf)
            for first in range(0, n_keys, TILE):
                width = min(TILE, n_keys - first)
                e = scores[: (stop - start) * width].reshape(stop - start, width)
                multiply(gemm, AS_IT_IS, FLIPPED, scale, q[b, h, start:stop], k[b, h, first : first + width], f(0.0), e)
                for i in range(stop - start):
                    seen = min(width, t_k - t_q + start + i + 1 - first) if causal else width
                    row = e[i][: max(seen, 0)]
                    if mask.size:
                        _hide(row, mask, b, h, start + i, first)
                    largest = shift[i]
                    for j in range(row.size):
                        largest = max(largest, row[j])
                    if largest > shift[i]:
                        shrunk, shift[i] = np.exp(shift[i] - largest), largest
                        total[i] *= shrunk
                        if first:
                            for j in range(out.shape[1]):
                                out[i, j] *= shrunk
                    total[i] += exponentials(row, shift[i] if shift[i] > f(-np.inf) else f(0.0))
                    e[i][row.size :] = f(0.0)
                    if kept.size:
                        keep = kept[b, h, start + i][first : first + width]
                        for j in range(width):
                            e[i, j] = e[i, j] if keep[j] else f(0.0)
                multiply(gemm, AS_IT_IS, AS_IT_IS, f(1.0), e, v[b, h, first : first + width], f(first > 0), out)
            for i in range(stop - start):
                total[i] = f(1.0) if total[i] == f(0.0) else total[i]  # a query that sees nothing gets zeros
                shift[i] = f(0.0) if shift[i] == f(-np.inf) else shift[i]
                factor = raised / total[i]
                for j in range(out.shape[1]):
                    out[i, j] *= factor


@compiled("reassoc", "nsz")
def attend_backward(gemm, parts, q, k, v, mask, kept, causal, scale, raised, output, totals, shifts, dout, dq, dk, dv):
    """Fill dq, dk and dv. The weights are recomputed."""
    n_heads, t_q, t_k = q.shape[1], q.shape[2], k.shape[2]
    scores, gradients = np.empty(ROWS * TILE, np.float32), np.empty(ROWS * TILE, np.float32)
    # one head, with adjacent rows; in dk and dv the other heads' rows lie in between, a poor use of the cache
    dk_head, dv_head = np.empty(k.shape[2:], np.float32), np.empty(v.shape[2:], np.float32)
    for item in range(parts[0], parts[1]):
        b, h = item // n_heads, item % n_heads
        dk_head[:], dv_head[:] = f(0.0), f(0.0)
        for start in range(0, t_q, ROWS):
            stop = min(start + ROWS, t_q)
            n_keys = t_k - t_q + stop if causal else t_k
            dout_rows, q_rows, dq_rows = dout[b, h, start:stop], q[b, h, start:stop], dq[b, h, start:stop]
            for first in range(0, n_keys, TILE):
                width = min(TILE, n_keys - first)
                last = first + width
                e = scores[: (stop - start) * width].reshape(stop - start, width)
                ds = gradients[: (stop - start) * width].reshape(stop - start, width)
                multiply(gemm, AS_IT_IS, FLIPPED, scale, q_rows, k[b, h, first:last], f(0.0), e)
                multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dout_rows, v[b, h, first:last], f(0.0), ds)
                for i in range(stop - start):
                    row, drow = e[i], ds[i]
                    seen = min(width, t_k - t_q + start + i + 1 - first) if causal else width
                    some = row[: max(seen, 0)]
                    if mask.size:
                        _hide(some, mask, b, h, start + i, first)
                    exponentials(some, shifts[b, h, start + i])
                    row[some.size :] = f(0.0)
                    along, out_row, dout_row = f(0.0), output[b, h, start + i], dout_rows[i]
                    for j in range(out_row.size):
                        along += out_row[j] * dout_row[j]
                    share = f(1.0) / totals[b, h, start + i]
                    if kept.size:
                        keep = kept[b, h, start + i][first:last]
                        for j in range(width):
                            weight = row[j] * share
                            drow[j] = weight * ((drow[j] * raised if keep[j] else f(0.0)) - along)
                            row[j] = weight * raised if keep[j] else f(0.0)
                    else:
                        for j in range(width):
                            weight = row[j] * share
                            drow[j] = weight * (drow[j] - along)
                            row[j] = weight
                multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), e, dout_rows, f(1.0), dv_head[first:last])
                multiply(gemm, AS_IT_IS, AS_IT_IS, scale, ds, k[b, h, first:last], f(first > 0), dq_rows)
                multiply(gemm, FLIPPED, AS_IT_IS, scale, ds, q_rows, f(1.0), dk_head[first:last])
        copy(dk_head, dk[b, h])
        copy(dv_head, dv[b, h])


# ----------------------------------------------------------------------------------------------- ready to be called


def _arguments(backward: bool) -> tuple[types.Type, ...]:
    """The types of the loops' arguments. Arrays that are only read may have any layout."""
    given = types.Array(types.float32, 4, "A", readonly=True)
    filled = types.Array(types.float32, 4, "A")
    flags, rows = types.Array(types.boolean, 4, "C", readonly=True), types.Array(types.float32, 3, "C")
    product, part = types.Tuple((types.int64, types.boolean)), types.UniTuple(types.int64, 2)
    known = (product, part, given, given, given, flags, flags, types.boolean, types.float32, types.float32)
    made = (filled, rows, rows)
    return (*known, *made, given, filled, filled, filled) if backward else (*known, *made)


_lock = threading.Lock()


@functools.cache
def ready() -> tuple[int, bool] | None:
    """Compile each loop once for all layouts. Returns matrix_product()."""
    gemm = matrix_product()
    with _lock:
        for loop in (attend, attend_backward):
            if gemm and not loop.signatures:
                loop.compile(_arguments(backward=loop is attend_backward))
                loop.disable_compile()
    return gemm
