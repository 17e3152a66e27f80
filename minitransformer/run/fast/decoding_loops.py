# mypy: disable-error-code="no-untyped-def"
"""The compiled loops of decoding.py, which several threads enter at the same time: see phases.py."""

import itertools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

from .loops import CURVES as CURVES
from .loops import activate, compiled, exponentials, f
from .packed_loops import multiply_rows
from .packed_loops import unpack as unpack
from .phases import PARTS as PARTS
from .phases import counters as counters
from .phases import parts_of, stretch
from .weights import KINDS as KINDS
from .weights import PLAIN as PLAIN

PHASES = 6  # of the longer sub-layer


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
def multiply(x, weight, part, terms):
    """One part of x W, into terms: (PARTS, N, d_out). `collect` adds the parts up. weight: as in parts.py.

    A part takes some rows of W and computes one term of the sum; or, where W is stored as rows of Wᵀ, some of these
    rows, and writes their results into the first term.
    """
    kind, numbers, rows = weight
    if kind == PLAIN:
        first, last = stretch(numbers.shape[0], part, PARTS)
        set_products(x[:, first:last], numbers[first:last], terms[part])
    else:
        first, last = stretch(rows.shape[0], part, PARTS)
        multiply_rows(kind, x, rows, first, last, terms[0])


@compiled("reassoc", "nsz")
def collect(weight, bias, terms, n, first, last, y):
    """y = (x W + b)[n, first:last]. An empty bias is none."""
    for j in range(y.size):
        y[j] = bias[first + j] if bias.size else f(0.0)
    for part in range(PARTS if weight[0] == PLAIN else 1):
        term = terms[part, n][first:last]
        for j in range(y.size):
            y[j] += term[j]


@compiled("reassoc", "nsz")
def product(x, weight, bias, terms, y, counts):
    """y = x W + b. x: (N, d_in); y: (N, d_out); terms: as in `multiply`."""
    for part in parts_of(counts, 0, PARTS):
        multiply(x, weight, part, terms)
    for _ in parts_of(counts, 1, 1):
        for n in range(y.shape[0]):
            collect(weight, bias, terms, n, 0, y.shape[1], y[n])


@compiled("reassoc", "nsz")
def normalize(norm, x, y):
    """The norm of one vector; y may be x. norm: as in parts.py."""
    is_there, is_centred, offset, eps, gamma, beta = norm
    mean, total, share = f(0.0), f(0.0), f(1.0) / f(x.size)
    if not is_there:
        for j in range(x.size):
            y[j] = x[j]
        return
    if is_centred:
        for j in range(x.size):
            mean += x[j]
        mean *= share
    for j in range(x.size):
        total += (x[j] - mean) * (x[j] - mean)
    inverse = f(1.0) / math.sqrt(total * share + eps)
    for j in range(x.size):
        y[j] = (x[j] - mean) * inverse * (offset + gamma[j])
    for j in range(beta.size):
        y[j] += beta[j]


@compiled("reassoc", "nsz")
def turn(x, cos, sin, position, interleaved):
    """Rotate the first pairs of one vector in place, as in ideas/after/rotate.py. cos, sin: (positions, pairs)."""
    n_pairs = cos.shape[1]
    step, apart = (2, 1) if interleaved else (1, n_pairs)
    for i in range(n_pairs):
        a, b, c, s = x[i * step], x[i * step + apart], cos[position, i], sin[position, i]
        x[i * step] = a * c - b * s
        x[i * step + apart] = a * s + b * c


@compiled("reassoc", "nsz")
def attend(query, keys, values, mix, bias, row, output):
    """Attention of one query in one head. query, output: (d,); keys, values: (T or more, d); row: (T,), for scores.

    mix: scale; cap, or 0; the query sees the first `always` keys and the last `width`, or all if that is 0. bias: (T,),
    or empty.
    """
    scale, cap, always, width = mix
    first = row.size - width if width else 0
    largest = f(-np.inf)
    for i in range(row.size):
        key, score = keys[i], f(0.0)
        for j in range(query.size):
            score += key[j] * query[j]
        score *= scale
        if cap > f(0.0):
            score = cap * math.tanh(score / cap)
        if bias.size:
            score += bias[i]
        row[i] = f(-np.inf) if always <= i < first else score
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
def begin(x, norm, inner, counts):
    """The first phase of a sub-layer: inner = norm(x)."""
    for _ in parts_of(counts, 0, 1):
        for n in range(x.shape[0]):
            normalize(norm, x[n], inner[n])


@compiled("reassoc", "nsz")
def finish(active, weight, bias, x, norms, terms, y, counts, phase):
    """The last two phases: y = norm(x + norm(active weight + bias)), and either norm may be none."""
    for part in parts_of(counts, phase, PARTS):
        multiply(active, weight, part, terms)

    for _ in parts_of(counts, phase + 1, 1):
        for n in range(x.shape[0]):
            collect(weight, bias, terms, n, 0, y.shape[1], y[n])
            normalize(norms[1], y[n], y[n])
            for j in range(y.shape[1]):
                y[n, j] += x[n, j]
            normalize(norms[2], y[n], y[n])


@compiled("reassoc", "nsz")
def attention(x, given, length, y, counts):
    """Attention with its norms and the residual connection, for one token of each sequence. x, y: (N, D).

    given: what parts.py returns for it, and for its cache. weights, biases: of queries, keys, values, output. turns: of
    the queries and of the keys: a norm, cosines and sines, whether pairs are neighbours. keys, values: (N, G, length or
    more, d), whose last ones are written if is_new. If is_late, keys are kept as they were before their turn. bias: (N
    or 1, H or 1, length), or empty.
    """
    (norms, weights, biases, is_new, room), (turns, mix, bias, keys, values, is_late, turned, scores) = given
    inner, q, merged, terms_q, terms_k, terms_v, terms = room
    (norm_q, cos_q, sin_q, interleaved), (norm_k, cos_k, sin_k, _) = turns
    n_rows, n_shared, _, d = keys.shape
    n_heads, last = q.shape[1] // d, length - 1
    begin(x, norms[0], inner, counts)

    for part in parts_of(counts, 1, PARTS):  # q, k and v
        multiply(inner, weights[0], part, terms_q)
        if is_new:
            multiply(inner, weights[1], part, terms_k)
            multiply(inner, weights[2], part, terms_v)

    for part in parts_of(counts, 2, PARTS):  # each unit is a head of queries, or one of keys and values
        begun, ended = stretch(n_rows * (n_heads + n_shared), part, PARTS)
        for unit in range(begun, ended):
            n, h = unit // (n_heads + n_shared), unit % (n_heads + n_shared)
            if h < n_heads:
                query = q[n, h * d : (h + 1) * d]
                collect(weights[0], biases[0], terms_q, n, h * d, (h + 1) * d, query)
                normalize(norm_q, query, query)
                turn(query, cos_q, sin_q, last, interleaved)
            elif is_new:
                g = h - n_heads
                key = keys[n, g, last]
                collect(weights[1], biases[1], terms_k, n, g * d, (g + 1) * d, key)
                collect(weights[2], biases[2], terms_v, n, g * d, (g + 1) * d, values[n, g, last])
                if not is_late:
                    normalize(norm_k, key, key)
                    turn(key, cos_k, sin_k, last, interleaved)
                for i in range(length if is_late else 0):
                    normalize(norm_k, keys[n, g, i], turned[n, g, i])
                    turn(turned[n, g, i], cos_k, sin_k, i, interleaved)

    for part in parts_of(counts, 3, PARTS):
        begun, ended = stretch(n_rows * n_heads, part, PARTS)
        for unit in range(begun, ended):
            n, h = unit // n_heads, unit % n_heads
            g, here = h * n_shared // n_heads, slice(h * d, (h + 1) * d)
            added = bias[n % bias.shape[0], h % bias.shape[1]]
            seen = turned[n, g] if is_late else keys[n, g]
            attend(q[n, here], seen, values[n, g], mix, added, scores[part, :length], merged[n, here])
    finish(merged, weights[3], biases[3], x, norms, terms, y, counts, 4)


@compiled("reassoc", "nsz")
def network(x, given, y, counts):
    """A feed-forward network with its norms and the residual connection. x, y: (N, D).

    given: as parts.py returns it. weights, biases: of gate, inner and output map; of a network without gates the first
    one is not used.
    """
    norms, weights, biases, gated, curve, room = given
    inner, terms_g, terms_h, terms, h, gate, active, slope = room
    begin(x, norms[0], inner, counts)

    for part in parts_of(counts, 1, PARTS):
        if gated:
            multiply(inner, weights[0], part, terms_g)
        multiply(inner, weights[1], part, terms_h)

    for part in parts_of(counts, 2, PARTS):  # some hidden units
        first, last = stretch(h.shape[1], part, PARTS)
        for n in range(x.shape[0]):
            units, out, here = h[n, first:last], active[n, first:last], slope[n, first:last]
            collect(weights[1], biases[1], terms_h, n, first, last, units)
            if gated:
                collect(weights[0], biases[0], terms_g, n, first, last, gate[n, first:last])
                activate(curve, gate[n, first:last], out, here)
                for j in range(out.size):
                    out[j] *= units[j]
            else:
                activate(curve, units, out, here)
    finish(active, weights[2], biases[2], x, norms, terms, y, counts, 3)


@intrinsic
def _like(_: Any, first, numbers, i):
    """The tuple whose numbers row i has (`numbers_of` in parts.py), of the type of the first one."""

    def generate(context, builder, signature, arguments):
        rows = context.make_array(signature.args[1])(context, builder, arguments[1])
        begin = builder.mul(arguments[2], builder.extract_value(rows.shape, 1))
        places = itertools.count()

        def number():
            at = builder.add(begin, ir.Constant(ir.IntType(64), next(places)))
            return builder.load(builder.gep(rows.data, [at]))

        def made(kind):
            if isinstance(kind, types.BaseTuple):
                return context.make_tuple(builder, kind, [made(each) for each in kind])
            if isinstance(kind, types.Array):
                array, size = context.make_array(kind)(context, builder), kind.dtype.bitwidth // 8
                data, *shape = (number() for _ in range(1 + kind.ndim))
                strides = [ir.Constant(ir.IntType(64), size)]
                for length in shape[:0:-1]:
                    strides.insert(0, builder.mul(strides[0], length))
                data = builder.inttoptr(data, array.data.type)
                arrayobj.populate_array(array, data, shape, strides, ir.Constant(ir.IntType(64), size), None)
                return array._getvalue()
            whole, wanted = number(), context.get_value_type(kind)
            if kind == types.float32:
                return builder.bitcast(builder.trunc(whole, ir.IntType(32)), wanted)
            return builder.trunc(whole, wanted) if wanted.width < 64 else whole

        return made(signature.args[0])

    return first(first, numbers, types.int64), generate


@compiled("reassoc", "nsz")
def layer(states, first, rows, lengths, counts):
    """Layers, one after the other: each is one attention after the other, then a feed-forward network.

    states: what each of them gets, and the last result; first: what parts.py returns for the first layer; rows: the
    numbers of all (parts.py); lengths: how many keys each attention sees. A thread returns from each when the threads
    have written its whole result. In one call, no thread waits for Python between two of them.
    """
    at = 0
    for i in range(rows.shape[0]):
        attentions, last = _like(first, rows, i)
        for j in range(len(attentions)):
            attention(states[at], attentions[j], lengths[i, j], states[at + 1], counts[at])
            at += 1
        network(states[at], last, states[at + 1], counts[at])
        at += 1
