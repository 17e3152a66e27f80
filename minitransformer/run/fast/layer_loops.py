# mypy: disable-error-code="no-untyped-def"
"""A whole encoder layer in compiled loops, forward and backward: the work of layers.py.

Between matrix products NumPy holds Python's lock, and in a small layer this takes most of the time. Here a layer is one
call, which one or more threads enter (phases.py). A part of the work is some of the rows, or some of the heads. The
names are those of core/layers/blocks.py and core/layers/residual.py; the input of a sub-layer is its `source`:

    pre-norm:   source = norm(x),  out = x + f(source)
    post-norm:  source = x,        out = norm(x + f(source))

NumPy needs separate passes for additions. BLAS adds to an existing array within the product: the output starts as the
bias, or as the bias plus x, and the gradients of the weights are added in place.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .attention_loops import attend, attend_backward
from .attention_loops import ready as ready
from .blas import AS_IT_IS, FLIPPED, multiply
from .loops import CURVES as CURVES
from .loops import activate, compiled, copy, f, layer_norm, layer_norm_backward
from .phases import counters as counters
from .phases import parts_of, stretch

QUERY, KEY, VALUE, OUTPUT, INNER, OUTER = range(6)  # the weights


@compiled("reassoc", "nsz")
def _linear(gemm, x, weight, bias, y):
    """y = x weight + bias."""
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = bias[j]
    multiply(gemm, AS_IT_IS, AS_IT_IS, f(1.0), x, weight, f(1.0), y)


@compiled("reassoc", "nsz")
def _add_linear(gemm, source, weight, bias, kept, raised, x, y):
    """y = x + dropout(source weight + bias). kept: what dropout keeps, empty without dropout; raised: its factor."""
    if kept.size:
        _linear(gemm, source, weight, bias, y)
        for i in range(y.shape[0]):
            for j in range(y.shape[1]):
                y[i, j] = x[i, j] + (y[i, j] * raised if kept[i, j] else f(0.0))
    else:
        for i in range(y.shape[0]):
            for j in range(y.shape[1]):
                y[i, j] = x[i, j] + bias[j]
        multiply(gemm, AS_IT_IS, AS_IT_IS, f(1.0), source, weight, f(1.0), y)


@compiled("reassoc", "nsz")
def _dropped(d, kept, raised, dupdate):
    """The gradient before dropout. Without dropout, dupdate is d."""
    if kept.size:
        for i in range(d.shape[0]):
            for j in range(d.shape[1]):
                dupdate[i, j] = d[i, j] * raised if kept[i, j] else f(0.0)


@compiled("reassoc", "nsz")
def _add(x, y):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] += x[i, j]


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
def _normed(n, gamma, beta, first, last, y):
    """Recompute these columns of a norm's output; only n is kept."""
    for i in range(n.shape[0]):
        for j in range(first, last):
            y[i, j] = n[i, j] * gamma[j] + beta[j]


@compiled()
def _heads(rows, n_sequences, n_heads):
    """(N, D) as (B, H, T, d). Numba compiles `transpose` for four seconds."""
    length, d = rows.shape[0] // n_sequences, rows.shape[1] // n_heads
    row = rows.strides[0]
    return as_strided(rows, (n_sequences, n_heads, length, d), (length * row, d * 4, row, 4))


@compiled()
def _remember(rows, first, buffer, length):
    """Copy rows, from index `first` on, to a cache's buffer, after its first `length` tokens."""
    n_sequences, n_heads, _, d = buffer.shape
    n_new = rows.shape[0] // n_sequences
    for i in range(first[0], first[1]):
        b, t = i // n_new, i % n_new
        copy(rows[i].reshape(n_heads, d), buffer[b, :, length + t])


@compiled("reassoc", "nsz")
def layer(gemm, n_parts, kinds, sizes, factors, weights, norms, masks, saved, biases, eps, caches, x, passing, counts):
    """Fill y, and the arrays saved for backward.

    kinds: (whether pre-norm, whether causal, which activation); sizes: (sequences, heads, tokens in the cache);
    factors: (of the scores, of the weights that dropout keeps, of the outputs that it keeps); norms: (γ, β) of both;
    masks: of attention, then of the weights and outputs that dropout keeps; x: (N, D). An empty array means absent.
    """
    pre, causal, curve = kinds
    n_sequences, n_heads, length = sizes
    scale, raised_weights, raised1, raised2 = factors
    gamma1, beta1, gamma2, beta2 = norms
    mask, kept_weights, kept1, kept2 = masks
    n1, inverse1, q, k, v, merged, n2, inverse2, h, totals, shifts = saved
    source1, total1, out1, source2, active, total2, y = passing
    n_rows = x.shape[0]

    for part in parts_of(counts, 0, n_parts):  # some rows
        rows = stretch(n_rows, part, n_parts)
        a, b = rows
        if pre:
            layer_norm(x[a:b], gamma1, beta1, eps[0], n1[a:b], source1[a:b], inverse1[a:b])
        _linear(gemm, source1[a:b], weights[QUERY], biases[QUERY], q[a:b])
        _linear(gemm, source1[a:b], weights[KEY], biases[KEY], k[a:b])
        _linear(gemm, source1[a:b], weights[VALUE], biases[VALUE], v[a:b])
        if caches[0].size:
            _remember(k, rows, caches[0], length)
            _remember(v, rows, caches[1], length)

    keys, values = _heads(k, n_sequences, n_heads), _heads(v, n_sequences, n_heads)
    if caches[0].size:
        n_keys = length + n_rows // n_sequences
        keys, values = caches[0][:, :, :n_keys], caches[1][:, :, :n_keys]
    for part in parts_of(counts, 1, n_parts):  # some heads
        attend(
            gemm, stretch(n_sequences * n_heads, part, n_parts), _heads(q, n_sequences, n_heads), keys, values, mask,
            kept_weights, causal, scale, raised_weights, _heads(merged, n_sequences, n_heads), totals, shifts,
        )  # fmt: skip

    slope = np.empty(h.shape[1], np.float32)
    for part in parts_of(counts, 2, n_parts):  # some rows
        a, b = stretch(n_rows, part, n_parts)
        _add_linear(gemm, merged[a:b], weights[OUTPUT], biases[OUTPUT], kept1[a:b], raised1, x[a:b], total1[a:b])
        if pre:
            layer_norm(out1[a:b], gamma2, beta2, eps[1], n2[a:b], source2[a:b], inverse2[a:b])
        else:
            layer_norm(total1[a:b], gamma1, beta1, eps[0], n1[a:b], out1[a:b], inverse1[a:b])
        _linear(gemm, source2[a:b], weights[INNER], biases[INNER], h[a:b])
        for i in range(a, b):
            activate(curve, h[i], active[i], slope)
        _add_linear(gemm, active[a:b], weights[OUTER], biases[OUTER], kept2[a:b], raised2, out1[a:b], total2[a:b])
        if not pre:
            layer_norm(total2[a:b], gamma2, beta2, eps[1], n2[a:b], y[a:b], inverse2[a:b])


@compiled("reassoc", "nsz")
def layer_backward(
    gemm,
    n_parts,
    kinds,
    sizes,
    factors,
    weights,
    norms,
    masks,
    saved,
    gradients,
    dbiases,
    dnorms,
    room,
    source,
    dy,
    dx,
    counts,
):
    """Fill dx, and add to the gradients of the weights, of the biases and of the norms.

    room: arrays for intermediate results; source: x with post-norm; with pre-norm it is not read.
    """
    pre, causal, _ = kinds
    n_sequences, n_heads, _ = sizes
    scale, raised_weights, _, _ = factors
    mask, kept_weights, _, _ = masks
    _, _, q, k, v, merged, _, _, h, totals, shifts = saved
    _, _, _, _, dsource, _, _, _, dq, dk, dv, _, norm_sums = room
    n_rows, width = dy.shape

    for part in parts_of(counts, 0, n_parts):  # some rows
        rows = stretch(n_rows, part, n_parts)
        _to_the_heads(gemm, rows, kinds, factors, weights, norms, masks, saved, room, norm_sums[part], dy)

    for part in parts_of(counts, 1, n_parts):  # some heads
        attend_backward(
            gemm, stretch(n_sequences * n_heads, part, n_parts), _heads(q, n_sequences, n_heads),
            _heads(k, n_sequences, n_heads), _heads(v, n_sequences, n_heads), mask, kept_weights, causal, scale,
            raised_weights, _heads(merged, n_sequences, n_heads), totals, shifts,
            _heads(dsource, n_sequences, n_heads), _heads(dq, n_sequences, n_heads),
            _heads(dk, n_sequences, n_heads), _heads(dv, n_sequences, n_heads),
        )  # fmt: skip

    for part in parts_of(counts, 2, n_parts):  # some rows
        _to_the_input(gemm, stretch(n_rows, part, n_parts), pre, weights, norms, saved, room, norm_sums[part], dx)

    for part in parts_of(counts, 3, n_parts):  # some rows of each weight, some numbers of each bias and norm
        columns, units = stretch(width, part, n_parts), stretch(h.shape[1], part, n_parts)
        _add_to_weights(gemm, columns, units, pre, norms, saved, room, source, gradients)
        _add_to_biases(columns, units, room, part, dbiases)
        _add_to_norms(columns, norm_sums, dnorms)


@compiled("reassoc", "nsz")
def _to_the_heads(gemm, rows, kinds, factors, weights, norms, masks, saved, room, norm_sums, dy):
    """Of some rows, from dy through the feed-forward network to the merged heads, whose gradient fills dsource."""
    pre, _, curve = kinds
    _, _, raised1, raised2 = factors
    gamma1, _, gamma2, _ = norms
    _, _, kept1, kept2 = masks
    n1, inverse1, _, _, _, _, n2, inverse2, h, _, _ = saved
    dtotal2, dupdate2, dh, active, dsource, dout1, dtotal1, dupdate1, _, _, _, _, _ = room
    a, b = rows
    slope = np.empty(h.shape[1], np.float32)

    norm_sums[:] = 0.0
    if not pre:
        layer_norm_backward(dy[a:b], n2[a:b], gamma2, inverse2[a:b], dtotal2[a:b], norm_sums[2], norm_sums[3])
    _dropped(dtotal2[a:b], kept2[a:b], raised2, dupdate2[a:b])
    multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dupdate2[a:b], weights[OUTER], f(0.0), dh[a:b])
    for i in range(a, b):
        activate(curve, h[i], active[i], slope)
        for j in range(slope.size):
            dh[i, j] *= slope[j]
    if pre:
        multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dh[a:b], weights[INNER], f(0.0), dsource[a:b])
        layer_norm_backward(dsource[a:b], n2[a:b], gamma2, inverse2[a:b], dout1[a:b], norm_sums[2], norm_sums[3])
        _add(dtotal2[a:b], dout1[a:b])
    else:
        copy(dtotal2[a:b], dout1[a:b])
        multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dh[a:b], weights[INNER], f(1.0), dout1[a:b])
        layer_norm_backward(dout1[a:b], n1[a:b], gamma1, inverse1[a:b], dtotal1[a:b], norm_sums[0], norm_sums[1])
    _dropped(dtotal1[a:b], kept1[a:b], raised1, dupdate1[a:b])
    multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dupdate1[a:b], weights[OUTPUT], f(0.0), dsource[a:b])


@compiled("reassoc", "nsz")
def _to_the_input(gemm, rows, pre, weights, norms, saved, room, norm_sums, dx):
    """Of some rows, from dq, dk and dv to dx."""
    n1, inverse1 = saved[0], saved[1]
    _, _, _, _, dsource, _, dtotal1, _, dq, dk, dv, _, _ = room
    a, b = rows
    ds = dsource[a:b] if pre else dx[a:b]
    if not pre:
        copy(dtotal1[a:b], ds)
    multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dq[a:b], weights[QUERY], f(not pre), ds)
    multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dk[a:b], weights[KEY], f(1.0), ds)
    multiply(gemm, AS_IT_IS, FLIPPED, f(1.0), dv[a:b], weights[VALUE], f(1.0), ds)
    if pre:
        layer_norm_backward(ds, n1[a:b], norms[0], inverse1[a:b], dx[a:b], norm_sums[0], norm_sums[1])
        _add(dtotal1[a:b], dx[a:b])


@compiled("reassoc", "nsz")
def _add_to_weights(gemm, columns, units, pre, norms, saved, room, source, gradients):
    """The gradients of some rows of each weight: xᵀ dy, where x is recomputed if only its norm's n was kept."""
    gamma1, beta1, gamma2, beta2 = norms
    n1, _, _, _, _, merged, n2, _, _, _, _ = saved
    _, dupdate2, dh, active, dsource, _, _, dupdate1, dq, dk, dv, _, _ = room
    a, b = columns
    c, d = units
    source1 = source
    if pre:
        source1 = dsource  # dsource is free now
        _normed(n1, gamma1, beta1, a, b, source1)
    multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), source1[:, a:b], dq, f(1.0), gradients[QUERY][a:b])
    multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), source1[:, a:b], dk, f(1.0), gradients[KEY][a:b])
    multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), source1[:, a:b], dv, f(1.0), gradients[VALUE][a:b])
    multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), merged[:, a:b], dupdate1, f(1.0), gradients[OUTPUT][a:b])
    source2 = dsource
    if pre:
        _normed(n2, gamma2, beta2, a, b, source2)
    else:
        _normed(n1, gamma1, beta1, a, b, source2)
    multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), source2[:, a:b], dh, f(1.0), gradients[INNER][a:b])
    multiply(gemm, FLIPPED, AS_IT_IS, f(1.0), active[:, c:d], dupdate2, f(1.0), gradients[OUTER][c:d])


@compiled("reassoc", "nsz")
def _add_to_biases(columns, units, room, part, dbiases):
    """The gradients of some numbers of each bias: the sums of a column."""
    _, dupdate2, dh, _, _, _, _, dupdate1, dq, dk, dv, sums, _ = room
    a, b = columns
    _add_column_sums(dq, a, b, sums[part], dbiases[QUERY])
    _add_column_sums(dk, a, b, sums[part], dbiases[KEY])
    _add_column_sums(dv, a, b, sums[part], dbiases[VALUE])
    _add_column_sums(dupdate1, a, b, sums[part], dbiases[OUTPUT])
    _add_column_sums(dh, units[0], units[1], sums[part], dbiases[INNER])
    _add_column_sums(dupdate2, a, b, sums[part], dbiases[OUTER])


@compiled("reassoc", "nsz")
def _add_to_norms(columns, norm_sums, dnorms):
    """The gradients of some numbers of each γ and β, from the sums over the rows of each part."""
    for i in range(4):
        for j in range(columns[0], columns[1]):
            total = 0.0
            for other in range(norm_sums.shape[0]):
                total += norm_sums[other, i, j]
            dnorms[i][j] += f(total)
