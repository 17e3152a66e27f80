# mypy: disable-error-code="no-untyped-def"
"""Loops that Numba compiles to machine code, for what NumPy can only do in many passes over the same numbers.

A loop reads each number once, does all there is to do with it while it is in a register, and writes each result once.
Where Numba is installed (the extra "fast") the other kernels call these in place of their NumPy lines; the formulas
are explained there. A loop is compiled when it is first called with arrays of a dtype, which takes a second, and the
machine code is kept on the disk. All arrays must be contiguous.

The compiler takes eight or sixteen numbers at a time only where it may: sums may be reordered ("reassoc"), and a
division by zero must give an infinity, as NumPy's does, and not an exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from .activations import TAIL

f = np.float32  # of a Python float the compiler would make a double, and half as many fit into a register


def compiled(*liberties: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: the loop, compiled. liberties: what the compiler may do to floating-point formulas."""

    def decorate(loop: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", *liberties}}
        try:
            return njit(cache=True, **options)(loop)
        except RuntimeError:  # the machine code can be written neither beside this file nor in the user's cache
            return njit(**options)(loop)

    return decorate


@compiled()
def adam(value, g, m, v, shrink, rate, beta1, beta2, rest1, rest2, bracket1, bracket2, eps):
    """rest_i is 1 - β_i and bracket_i is 1 - β_i^t, which a float32 β_i near 1 would not give."""
    for i in range(value.size):
        m[i] = beta1 * m[i] + rest1 * g[i]
        v[i] = beta2 * v[i] + rest2 * (g[i] * g[i])
        value[i] = shrink * value[i] - rate * (m[i] / bracket1) / (math.sqrt(v[i] / bracket2) + eps)


@compiled("reassoc", "nsz")
def layer_norm(x, gamma, beta, eps, normalized, y, inverse_std):
    n_rows, width = x.shape
    zero, one, share = x.dtype.type(0.0), x.dtype.type(1.0), x.dtype.type(1.0 / width)
    for i in range(n_rows):
        total = zero
        for j in range(width):
            total += x[i, j]
        mean = total * share
        total = zero
        for j in range(width):
            total += (x[i, j] - mean) * (x[i, j] - mean)
        inverse = one / math.sqrt(total * share + eps)
        inverse_std[i] = inverse
        for j in range(width):
            n = (x[i, j] - mean) * inverse
            normalized[i, j] = n
            y[i, j] = n * gamma[j] + beta[j]


@compiled("reassoc", "nsz")
def layer_norm_backward(dy, normalized, gamma, inverse_std, dx, dgamma, dbeta):
    """Adds to dgamma and dbeta, which are float64: over many rows float32 would lose digits."""
    n_rows, width = dy.shape
    zero, share = dy.dtype.type(0.0), dy.dtype.type(1.0 / width)
    for i in range(n_rows):
        shift, stretch = zero, zero
        for j in range(width):
            dn = dy[i, j] * gamma[j]
            shift += dn
            stretch += dn * normalized[i, j]
            dgamma[j] += dy[i, j] * normalized[i, j]
            dbeta[j] += dy[i, j]
        shift *= share
        stretch *= share
        for j in range(width):
            dx[i, j] = inverse_std[i] * (dy[i, j] * gamma[j] - shift - normalized[i, j] * stretch)


# exp(x) = 2^n exp(r), with n the whole number nearest to x / ln 2, so that |r| is at most ln 2 / 2 and eight terms of
# the series suffice. ln 2 comes in two parts, the first so short that n times it is exact (Cody and Waite 1980,
# "Software Manual for the Elementary Functions", chapter 6). 2^n is the number with n + 127 in its exponent's bits.
_LN2 = f(0.693359375)
_LN2_REST = f(math.log(2.0) - 0.693359375)
_SERIES = tuple(f(1.0 / math.factorial(k)) for k in range(8))


@compiled()
def exp(x):
    """exp of a float32 from -87 to 88, with an error below one unit in the last place; NaN of NaN."""
    n = np.floor(x * f(1.0 / math.log(2.0)) + f(0.5))
    r = (x - n * _LN2) - n * _LN2_REST
    series = _SERIES[7]
    for k in range(6, -1, -1):
        series = series * r + _SERIES[k]
    return series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled("reassoc", "nsz")
def exponentials(scores, totals):
    """exp(scores) in place, 0 of anything below -87, and the sum of each row. scores: (N, T), none above 88."""
    n_rows, width = scores.shape
    for i in range(n_rows):
        total = f(0.0)
        for j in range(width):
            x = scores[i, j]
            e = exp(f(-87.0) if x < f(-87.0) else x)
            e = f(0.0) if x < f(-87.0) else e
            scores[i, j] = e
            total += e
        totals[i] = total


_SHARE, _CUBIC = f(math.sqrt(2.0 / math.pi)), f(math.sqrt(2.0 / math.pi) * 0.044715)


@compiled("nsz")
def gelu_tanh(x, y, slope):
    """½ (1 + tanh u) is the logistic function of 2u: one exponential and one division."""
    for i in range(x.size):
        a = x[i]
        near = f(-10.0) if a < f(-10.0) else a  # beyond, the cumulative is 0 or 1; NaN stays NaN
        near = f(10.0) if near > f(10.0) else near
        u = (_SHARE + _CUBIC * (near * near)) * near
        u = f(-43.0) if u < f(-43.0) else u
        cumulative = f(1.0) / (f(1.0) + exp(f(-2.0) * u))
        cumulative = f(0.0) if a < f(-10.0) else cumulative
        du = _SHARE + f(3.0) * _CUBIC * (near * near)
        y[i] = a * cumulative
        slope[i] = cumulative + f(2.0) * near * du * (cumulative * (f(1.0) - cumulative))


_TAIL = tuple(f(coefficient) for coefficient in TAIL)


@compiled("nsz")
def gelu(x, y, slope):
    """With Φ from its tail, as _gelu_float32 in activations.py has it."""
    for i in range(x.size):
        a = x[i]
        z = abs(a)
        t = f(1.0) / (f(1.0) + f(0.3) * z)
        tail = f(0.0)
        for k in range(len(_TAIL) - 1, -1, -1):
            tail = (tail + _TAIL[k]) * t
        square = a * a
        density = exp(f(-0.5) * (f(174.0) if square > f(174.0) else square))
        density = f(0.0) if square > f(174.0) else density
        tail *= density
        cumulative = f(1.0) - tail if a > f(0.0) else tail
        y[i] = a * cumulative
        slope[i] = cumulative + a * density * f(1.0 / math.sqrt(2.0 * math.pi))


@compiled("reassoc", "nsz")
def add_products(x, weight, first, last, y):
    """y += x weight[:, first:last]. x: (N, d_in); weight: (d_in, d_out); y: (N, last - first).

    Four rows of the weight at a time, which lie a quarter of it apart: so memory is read in four long stretches, and
    the processor fetches ahead. Side by side they would be many short ones.
    """
    quarter = weight.shape[0] // 4
    for i in range(quarter):
        a, b, c, d = weight[i], weight[i + quarter], weight[i + 2 * quarter], weight[i + 3 * quarter]
        a, b, c, d = a[first:last], b[first:last], c[first:last], d[first:last]
        for n in range(x.shape[0]):
            out, xa, xb, xc, xd = y[n], x[n, i], x[n, i + quarter], x[n, i + 2 * quarter], x[n, i + 3 * quarter]
            for j in range(out.size):
                out[j] += xa * a[j] + xb * b[j] + xc * c[j] + xd * d[j]
    for i in range(4 * quarter, weight.shape[0]):
        a = weight[i][first:last]
        for n in range(x.shape[0]):
            out, xa = y[n], x[n, i]
            for j in range(out.size):
                out[j] += xa * a[j]


@compiled("reassoc", "nsz")
def dots(x, table, first, last, y):
    """y[:, first:last] = x table[first:last]ᵀ. x: (N, width); table: (V, width); y: (N, V)."""
    for v in range(first, last):
        row = table[v]
        for n in range(x.shape[0]):
            total, other = f(0.0), x[n]
            for i in range(row.size):
                total += row[i] * other[i]
            y[n, v] = total


@compiled("reassoc", "nsz")
def attend(q, keys, values, length, scale, first, last, output):
    """Attention of one query in each head from first to last on the first `length` of the keys.

    q: (N, H·d); keys, values: (N, H, at least length, d or d_v); output: (N, (last - first)·d_v).
    """
    d, d_v = keys.shape[3], values.shape[3]
    rows, total = np.empty((1, length), np.float32), np.empty(1, np.float32)
    scores = rows[0]
    for n in range(q.shape[0]):
        for h in range(first, last):
            query, head_keys, head_values = q[n][h * d : (h + 1) * d], keys[n, h], values[n, h]
            out = output[n][(h - first) * d_v : (h - first + 1) * d_v]
            largest = f(-np.inf)
            for i in range(length):
                row, score = head_keys[i], f(0.0)
                for j in range(row.size):
                    score += row[j] * query[j]
                scores[i] = score * scale
                largest = max(largest, scores[i])
            if largest > f(-np.inf):  # else the query sees nothing, and each score stays -inf
                for i in range(length):
                    scores[i] -= largest
            exponentials(rows, total)
            out[:] = f(0.0)
            for i in range(length):
                row, e = head_values[i], scores[i]
                for j in range(row.size):
                    out[j] += e * row[j]
            if total[0] != f(0.0):
                out /= total[0]
