# mypy: disable-error-code="no-untyped-def"
"""A residual connection with the sub-layer inside it in compiled loops, forward and backward: the work of sublayers.py.

Between matrix products NumPy holds Python's lock, and in a small layer this takes most of the time. Here a sub-layer is
one call, which one or more threads enter (phases.py). A part of the work is some of the rows, or some of the heads. The
names are those of core/layers/residual.py; the input of the sub-layer f is its `source`:

    pre-norm:   source = norm(x),  y = x + f(source)
    post-norm:  source = x,        y = norm(x + f(source))

NumPy needs separate passes for additions. BLAS adds to an existing array within the product: the output starts as the
bias, or as the bias plus x, and the gradients of the weights are added in place.

Arguments of several loops: pre: whether pre-norm; norm: (γ, β); inverse: 1 / √(variance + ε) of each row, n: the rows
before γ and β; kept: what dropout keeps of the update, raised: its factor; total: the sum in front of a norm. An empty
array means absent.
"""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .attention_loops import attend, attend_backward
from .attention_loops import ready as ready
from .blas import AS_IT_IS, FLIPPED, multiply
from .loops import CURVES as CURVES
from .loops import activate, compiled, copy, f, layer_norm, layer_norm_backward
from .phases import counters as counters
from .phases import parts_of, stretch

QUERY, KEY, VALUE, OUTPUT = range(4)  # the weights of attention
INNER, OUTER = range(2)  # of a feed-forward network


@compiled("reassoc", "nsz")
def _linear(gemm, x, weight, bias, y):
    """y = x weight + bias."""
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = bias[j]
    multiply(gemm, AS_IT_IS, AS_IT_IS, f(1.0), x, weight, f(1.0), y)


@compiled("reassoc", "nsz")
def _add_column_sums(d, first, last, total, gradient):
    """gradient[first:last] += the sums of these columns of d. total is float64, because float32 would lose digits."""
    some = total[: last - first]
    some[:] = 0.0
    for i in range(d.shape[0]):
        row = d[i][first:last]
        for j in range(some.size):
            some[j] += row[j]
    for j in range(some.size):
        gradient[first + j] += f(some[j])


@compiled()
def _normed(n, norm, first, last, y):
    """Recompute these columns of a norm's output; only n is kept."""
    for i in range(n.shape[0]):
        for j in range(first, last):
            y[i, j] = n[i, j] * norm[0][j] + norm[1][j]


@compiled("reassoc", "nsz")
def _update(gemm, pre, a, b, inner, weight, bias, kept, raised, x, total, norm, eps, n, y, inverse):
    """Rows a to b of total = x + dropout(inner weight + bias), and of y, its norm. With pre-norm y is total."""
    _linear(gemm, inner[a:b], weight, bias, total[a:b])
    for i in range(a, b):
        for j in range(x.shape[1]):
            total[i, j] = x[i, j] + (total[i, j] * raised if not kept.size or kept[i, j] else f(0.0))
    if not pre:
        layer_norm(total[a:b], norm[0], norm[1], eps, n[a:b], y[a:b], inverse[a:b])


@compiled("reassoc", "nsz")
def _update_backward(gemm, pre, a, b, dy, norm, n, inverse, sums, dtotal, kept, raised, dupdate, weight, dinner):
    """Rows a to b of dtotal, dupdate and dinner. With pre-norm dtotal is dy; without dropout dupdate is dtotal."""
    sums[:] = 0.0
    if not pre:
        layer_norm_backward(dy[a:b], n[a:b], norm[0], inverse[a:b], dtotal[a:b], sums[0], sums[1])
    for i in range(a, b if kept.size else a):
        for j in range(dy.shape[1]):
            dupdate[i, j] = dtotal[i, j] * raised if kept[i, j] else f(0.0)
    multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dupdate[a:b], weight, f(0.0), dinner[a:b])


@compiled("reassoc", "nsz")
def _source_backward(a, b, dsource, norm, n, inverse, sums, dtotal, dx):
    """Rows a to b of dx with pre-norm."""
    layer_norm_backward(dsource[a:b], n[a:b], norm[0], inverse[a:b], dx[a:b], sums[0], sums[1])
    for i in range(a, b):
        for j in range(dx.shape[1]):
            dx[i, j] += dtotal[i, j]


@compiled("reassoc", "nsz")
def _add_to_norm(columns, sums, dnorm):
    """The gradients of some numbers of γ and β, from the sums over the rows of each part."""
    for i in range(2):
        for j in range(columns[0], columns[1]):
            total = 0.0
            for other in range(sums.shape[0]):
                total += sums[other, i, j]
            dnorm[i][j] += f(total)


@compiled()
def _heads(rows, starts, b, n_heads):
    """The rows of sequence b, (T, D), as (1, H, T, d). Numba compiles `transpose` for four seconds."""
    some = rows[starts[b] : starts[b + 1]]
    length, d, row = some.shape[0], rows.shape[1] // n_heads, rows.strides[0]
    return as_strided(some, (1, n_heads, length, d), (length * row, d * 4, row, 4))


@compiled()
def _sequences(part, n_parts, n_sequences, n_heads):
    """The sequences in which a part of all heads lies, and the part: the heads counted over all sequences."""
    first, last = stretch(n_sequences * n_heads, part, n_parts)
    return range(first // n_heads, (last + n_heads - 1) // n_heads), first, last


@compiled()
def _of_sequence(flags, b):
    """The mask of sequence b, or the one for all; empty if absent."""
    return flags[b : b + 1] if flags.shape[0] > 1 else flags


@compiled()
def _remember(rows, first, buffer, length):
    """Copy rows, from index `first` on, to a cache's buffer, after its first `length` tokens."""
    n_sequences, n_heads, _, d = buffer.shape
    n_new = rows.shape[0] // n_sequences
    for i in range(first[0], first[1]):
        b, t = i // n_new, i % n_new
        copy(rows[i].reshape(n_heads, d), buffer[b, :, length + t])


@compiled("reassoc", "nsz")
def attention(
    gemm, n_parts, pre, causal, sizes, factors, weights, norm, masks, saved, biases, eps, caches, x, source, memory,
    total, y, counts,
):  # fmt: skip
    """Fill y, and the arrays saved for backward. x: (N, D); memory: (N_k, D), the source itself in self-attention.

    sizes: (heads, tokens in the cache, starts of x, starts of the memory), where starts are the first row of each
    sequence and the number of rows; factors: (of the scores, of the weights that dropout keeps, of the updates that it
    keeps); masks: of attention, of the weights and of the updates that dropout keeps.
    """
    n_heads, length, starts, read_starts = sizes
    n_sequences = starts.size - 1
    scale, raised_weights, raised = factors
    mask, kept_weights, kept = masks
    n, inverse, q, k, v, merged, totals, shifts = saved

    for part in parts_of(counts, 0, n_parts):  # some rows
        a, b = stretch(x.shape[0], part, n_parts)
        rows = stretch(memory.shape[0], part, n_parts)
        if pre:
            layer_norm(x[a:b], norm[0], norm[1], eps, n[a:b], source[a:b], inverse[a:b])
        _linear(gemm, source[a:b], weights[QUERY], biases[QUERY], q[a:b])
        _linear(gemm, memory[rows[0] : rows[1]], weights[KEY], biases[KEY], k[rows[0] : rows[1]])
        _linear(gemm, memory[rows[0] : rows[1]], weights[VALUE], biases[VALUE], v[rows[0] : rows[1]])
        if caches[0].size:
            _remember(k, rows, caches[0], length)
            _remember(v, rows, caches[1], length)

    for part in parts_of(counts, 1, n_parts):  # some heads
        sequences, first, last = _sequences(part, n_parts, n_sequences, n_heads)
        for b in sequences:
            keys, values = _heads(k, read_starts, b, n_heads), _heads(v, read_starts, b, n_heads)
            if caches[0].size:
                n_keys = length + starts[b + 1] - starts[b]
                keys, values = caches[0][b : b + 1, :, :n_keys], caches[1][b : b + 1, :, :n_keys]
            attend(
                gemm, (max(first - b * n_heads, 0), min(last - b * n_heads, n_heads)), _heads(q, starts, b, n_heads),
                keys, values, _of_sequence(mask, b), _of_sequence(kept_weights, b), causal, scale, raised_weights,
                _heads(merged, starts, b, n_heads), totals[b : b + 1], shifts[b : b + 1],
            )  # fmt: skip

    for part in parts_of(counts, 2, n_parts):  # some rows
        a, b = stretch(x.shape[0], part, n_parts)
        _update(
            gemm, pre, a, b, merged, weights[OUTPUT], biases[OUTPUT], kept, raised, x, total, norm, eps, n, y, inverse
        )  # fmt: skip


@compiled("reassoc", "nsz")
def attention_backward(
    gemm, n_parts, pre, causal, sizes, factors, weights, norm, masks, saved, dweights, dbiases, dnorm, own, room,
    source, memory, dy, ds, dmemory, dx, counts,
):  # fmt: skip
    """Fill dx and dmemory, and add to the gradients of the weights, of the biases and of the norm.

    own: whether self-attention, where memory is the source and dmemory is ds; ds: the gradient of the source, which is
    dx with post-norm; source: with pre-norm it is made again here. room: arrays for intermediate results.
    """
    n_heads, _, starts, read_starts = sizes
    n_sequences = starts.size - 1
    scale, raised_weights, raised = factors
    mask, kept_weights, kept = masks
    n, inverse, q, k, v, merged, totals, shifts = saved
    dtotal, dupdate, dmerged, dq, dk, dv, sums, norm_sums = room

    for part in parts_of(counts, 0, n_parts):  # some rows
        a, b = stretch(dy.shape[0], part, n_parts)
        _update_backward(
            gemm, pre, a, b, dy, norm, n, inverse, norm_sums[part], dtotal, kept, raised, dupdate, weights[OUTPUT],
            dmerged,
        )  # fmt: skip

    for part in parts_of(counts, 1, n_parts):  # some heads
        sequences, first, last = _sequences(part, n_parts, n_sequences, n_heads)
        for b in sequences:
            attend_backward(
                gemm, (max(first - b * n_heads, 0), min(last - b * n_heads, n_heads)), _heads(q, starts, b, n_heads),
                _heads(k, read_starts, b, n_heads), _heads(v, read_starts, b, n_heads), _of_sequence(mask, b),
                _of_sequence(kept_weights, b), causal, scale, raised_weights, _heads(merged, starts, b, n_heads),
                totals[b : b + 1], shifts[b : b + 1], _heads(dmerged, starts, b, n_heads),
                _heads(dq, starts, b, n_heads), _heads(dk, read_starts, b, n_heads),
                _heads(dv, read_starts, b, n_heads),
            )  # fmt: skip

    for part in parts_of(counts, 2, n_parts):  # some rows
        a, b = stretch(dy.shape[0], part, n_parts)
        c, d = stretch(memory.shape[0], part, n_parts)
        if not pre:
            copy(dtotal[a:b], ds[a:b])
        multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dq[a:b], weights[QUERY], f(not pre), ds[a:b])
        multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dk[c:d], weights[KEY], f(own), dmemory[c:d])
        multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dv[c:d], weights[VALUE], f(1.0), dmemory[c:d])
        if pre:
            _source_backward(a, b, ds, norm, n, inverse, norm_sums[part], dtotal, dx)

    for part in parts_of(counts, 3, n_parts):  # some rows of each weight, some numbers of each bias and of the norm
        columns = stretch(dy.shape[1], part, n_parts)
        a, b = columns
        if pre:
            _normed(n, norm, a, b, source)
        given, gradients = (source, memory, memory, merged), (dq, dk, dv, dupdate)
        for i in range(4):
            multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), given[i][:, a:b], gradients[i], f(1.0), dweights[i][a:b])
            _add_column_sums(gradients[i], a, b, sums[part], dbiases[i])
        _add_to_norm(columns, norm_sums, dnorm)


@compiled("reassoc", "nsz")
def feed_forward(
    gemm, n_parts, pre, curve, raised, weights, norm, kept, saved, biases, eps, x, source, active, total, y, counts
):
    """Fill y, and the arrays saved for backward. x: (N, D); curve: which activation."""
    n, inverse, h = saved
    slope = np.empty(h.shape[1], np.float32)
    for part in parts_of(counts, 0, n_parts):  # some rows
        a, b = stretch(x.shape[0], part, n_parts)
        if pre:
            layer_norm(x[a:b], norm[0], norm[1], eps, n[a:b], source[a:b], inverse[a:b])
        _linear(gemm, source[a:b], weights[INNER], biases[INNER], h[a:b])
        for i in range(a, b):
            activate(curve, h[i], active[i], slope)
        _update(
            gemm, pre, a, b, active, weights[OUTER], biases[OUTER], kept, raised, x, total, norm, eps, n, y, inverse
        )  # fmt: skip


@compiled("reassoc", "nsz")
def feed_forward_backward(
    gemm, n_parts, pre, curve, raised, weights, norm, kept, saved, dweights, dbiases, dnorm, room, source, dy, ds, dx,
    counts,
):  # fmt: skip
    """Fill dx, and add to the gradients of the weights, of the biases and of the norm. As in attention_backward."""
    n, inverse, h = saved
    dtotal, dupdate, dh, active, sums, norm_sums = room
    slope = np.empty(h.shape[1], np.float32)

    for part in parts_of(counts, 0, n_parts):  # some rows
        a, b = stretch(dy.shape[0], part, n_parts)
        _update_backward(
            gemm, pre, a, b, dy, norm, n, inverse, norm_sums[part], dtotal, kept, raised, dupdate, weights[OUTER], dh
        )  # fmt: skip
        for i in range(a, b):
            activate(curve, h[i], active[i], slope)
            for j in range(slope.size):
                dh[i, j] *= slope[j]
        if not pre:
            copy(dtotal[a:b], ds[a:b])
        multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dh[a:b], weights[INNER], f(not pre), ds[a:b])
        if pre:
            _source_backward(a, b, ds, norm, n, inverse, norm_sums[part], dtotal, dx)

    for part in parts_of(counts, 1, n_parts):  # some rows of each weight, some numbers of each bias and of the norm
        columns = stretch(dy.shape[1], part, n_parts)
        a, b = columns
        c, d = stretch(h.shape[1], part, n_parts)
        if pre:
            _normed(n, norm, a, b, source)
        multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), source[:, a:b], dh, f(1.0), dweights[INNER][a:b])
        multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), active[:, c:d], dupdate, f(1.0), dweights[OUTER][c:d])
        _add_column_sums(dh, c, d, sums[part], dbiases[INNER])
        _add_column_sums(dupdate, a, b, sums[part], dbiases[OUTER])
        _add_to_norm(columns, norm_sums, dnorm)
