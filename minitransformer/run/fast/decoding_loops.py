# mypy: disable-error-code="no-untyped-def"
"""The compiled loops of decoding.py, which several threads enter at the same time: see phases.py."""

from __future__ import annotations

import numpy as np

from .loops import CURVES as CURVES
from .loops import activate, compiled, exponentials, f, layer_norm
from .phases import counters as counters
from .phases import done, stretch, take, wait

PARTS = 8  # parts of a shared phase


@compiled("reassoc", "nsz")
def set_products(x, weight, y):
    """y = x weight. x: (N, d_in); weight: (d_in, d_out); y: (N, d_out).

    It takes four rows of the weight at a time, a quarter of the weight apart. So it reads memory in four long
    stretches, and the processor can fetch ahead. Adjacent rows would give many short stretches.
    """
    y[:] = f(0.0)
    quarter = weight.shape[0] // 4
    for i in range(quarter):
        a, b, c, d = weight[i], weight[i + quarter], weight[i + 2 * quarter], weight[i + 3 * quarter]
        for n in range(x.shape[0]):
            out, xa, xb, xc, xd = y[n], x[n, i], x[n, i + quarter], x[n, i + 2 * quarter], x[n, i + 3 * quarter]
            for j in range(out.size):
                out[j] += xa * a[j] + xb * b[j] + xc * c[j] + xd * d[j]
    for i in range(4 * quarter, weight.shape[0]):
        a = weight[i]
        for n in range(x.shape[0]):
            out, xa = y[n], x[n, i]
            for j in range(out.size):
                out[j] += xa * a[j]


@compiled("reassoc", "nsz")
def add_up(terms, n, first, last, y):
    """y += the sum of terms[:, n, first:last] over all parts."""
    for part in range(terms.shape[0]):
        term = terms[part, n][first:last]
        for j in range(y.size):
            y[j] += term[j]


@compiled("reassoc", "nsz")
def product(x, weight, terms, y, counts):
    """y = x weight. Each part takes some rows of the weight. terms: (PARTS, N, d_out)."""
    part = take(counts, 0)
    while part < PARTS:
        first, last = stretch(x.shape[1], part, PARTS)
        set_products(x[:, first:last], weight[first:last], terms[part])
        done(counts, 0)
        part = take(counts, 0)
    wait(counts, 0, PARTS)
    if take(counts, 1) == 0:
        y[:] = f(0.0)
        for n in range(y.shape[0]):
            add_up(terms, n, 0, y.shape[1], y[n])


@compiled("reassoc", "nsz")
def transposed_product(x, table, y, counts):
    """y = x tableᵀ. Each part takes some rows of the table. x: (N, width); table: (V, width); y: (N, V)."""
    part = take(counts, 0)
    while part < PARTS:
        first, last = stretch(table.shape[0], part, PARTS)
        for v in range(first, last):
            row = table[v]
            for n in range(x.shape[0]):
                total, other = f(0.0), x[n]
                for i in range(row.size):
                    total += row[i] * other[i]
                y[n, v] = total
        part = take(counts, 0)


@compiled("reassoc", "nsz")
def attend(query, keys, values, scale, row, output):
    """Attention of one query in one head. query, output: (d,); keys, values: (T or more, d); row: (T,), for scores."""
    largest = f(-np.inf)
    for i in range(row.size):
        key, score = keys[i], f(0.0)
        for j in range(query.size):
            score += key[j] * query[j]
        row[i] = score * scale
        largest = max(largest, row[i])
    total = exponentials(row, largest if largest > f(-np.inf) else f(0.0))  # otherwise all scores are, and stay, -inf
    output[:] = f(0.0)
    for i in range(row.size):
        value, e = values[i], row[i]
        for j in range(output.size):
            output[j] += e * value[j]
    if total != f(0.0):
        for j in range(output.size):
            output[j] /= total


@compiled("reassoc", "nsz")
def layer(x, gammas, betas, eps, weights, biases, curve, keys, values, length, room, y, counts):
    """A pre-norm encoder layer on one new token of each sequence: see cached_layer in decoding.py.

    x, y: (N, D); weights: four of the attention (queries, keys, values, output) and two of the feed-forward network;
    keys, values: (N, H, more than length, D / H), which receive the new ones; room: arrays for intermediate results.
    """
    terms_q, terms_k, terms_v, terms, terms_h, inner, q, merged, middle, h, active, slope = room[:12]
    scores, row_totals = room[12:]
    n_rows, width, n_heads, d = x.shape[0], x.shape[1], keys.shape[1], keys.shape[3]
    scale = f(1.0) / f(np.sqrt(d))

    if take(counts, 0) == 0:
        layer_norm(x, gammas[0], betas[0], eps[0], middle, inner, row_totals)
        done(counts, 0)
    wait(counts, 0, 1)

    part = take(counts, 1)
    while part < PARTS:  # q, k and v
        first, last = stretch(width, part, PARTS)
        set_products(inner[:, first:last], weights[0][first:last], terms_q[part])
        set_products(inner[:, first:last], weights[1][first:last], terms_k[part])
        set_products(inner[:, first:last], weights[2][first:last], terms_v[part])
        done(counts, 1)
        part = take(counts, 1)
    wait(counts, 1, PARTS)

    part = take(counts, 2)
    while part < PARTS:  # some heads, and their contribution to the output
        first_head, last_head = stretch(n_heads, part, PARTS)
        first, last = first_head * d, last_head * d
        for n in range(n_rows):
            for head in range(first_head, last_head):
                here, there = head * d, (head + 1) * d
                query, key, value = q[n][here:there], keys[n, head, length], values[n, head, length]
                query[:], key[:], value[:] = biases[0][here:there], biases[1][here:there], biases[2][here:there]
                add_up(terms_q, n, here, there, query)
                add_up(terms_k, n, here, there, key)
                add_up(terms_v, n, here, there, value)
                attend(query, keys[n, head], values[n, head], scale, scores[part], merged[n][here:there])
        set_products(merged[:, first:last], weights[3][first:last], terms[part])
        done(counts, 2)
        part = take(counts, 2)
    wait(counts, 2, PARTS)

    if take(counts, 3) == 0:
        for n in range(n_rows):
            for j in range(width):
                middle[n, j] = x[n, j] + biases[3][j]
            add_up(terms, n, 0, width, middle[n])
        layer_norm(middle, gammas[1], betas[1], eps[1], merged, inner, row_totals)
        done(counts, 3)
    wait(counts, 3, 1)

    part = take(counts, 4)
    while part < PARTS:  # the hidden units
        first, last = stretch(width, part, PARTS)
        set_products(inner[:, first:last], weights[4][first:last], terms_h[part])
        done(counts, 4)
        part = take(counts, 4)
    wait(counts, 4, PARTS)

    part = take(counts, 5)
    while part < PARTS:  # some hidden units, and their contribution to the output
        first, last = stretch(h.shape[1], part, PARTS)
        for n in range(n_rows):
            h[n][first:last] = biases[4][first:last]
            add_up(terms_h, n, first, last, h[n][first:last])
            activate(curve, h[n][first:last], active[n][first:last], slope[n][first:last])
        set_products(active[:, first:last], weights[5][first:last], terms[part])
        done(counts, 5)
        part = take(counts, 5)
    wait(counts, 5, PARTS)

    if take(counts, 6) == 0:
        for n in range(n_rows):
            for j in range(width):
                y[n, j] = middle[n, j] + biases[5][j]
            add_up(terms, n, 0, width, y[n])
