# mypy: disable-error-code="no-untyped-def"
"""Loops that Numba compiles to machine code, for work that takes NumPy many passes over the same numbers.

A loop reads each number once, does all its work while the number is in a register, and writes each result once. If
Numba is installed (the extra "fast"), the other kernels call these loops instead of their NumPy lines; the kernels
explain the formulas. A loop is compiled when it is first called with arrays of a dtype. That takes a second, and the
machine code is kept on the disk. All arrays must be contiguous.

Numba stores the machine code of a loop with a stamp, a hash of the loop's own file. But a loop also contains the
machine code of the loops that it calls, even from other files. So here the stamp is a hash of all SOURCES. Numba's
index names a file before the file is written. Two processes that compile at once may then choose the same name, and a
third would load the wrong code. So here each process and each stamp has its own names.

The compiler takes eight or sixteen numbers at a time only under two conditions: it may reorder sums ("reassoc"), and a
division by zero gives an infinity, as in NumPy, not an exception.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, njit

from .tail import TAIL

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("NUMBA_DISABLE_JIT tells Numba not to compile, and uncompiled loops are useless")

SOURCES = (  # the files whose code becomes machine code
    "attention_loops.py",
    "blas.py",
    "decoding_loops.py",
    "loops.py",
    "packed_loops.py",
    "phases.py",
    "sublayer_loops.py",
    "tail.py",
    "weights.py",
    "../../ideas/published/packing.py",
)
STAMP = hashlib.sha256(b"".join((Path(__file__).parent / name).read_bytes() for name in SOURCES)).hexdigest()

# With NUMBA_BOUNDSCHECK=1 Numba checks every index, and the loops check every array whose address they pass on.
CHECKED = bool(config.BOUNDSCHECK)  # type: ignore[attr-defined]

f = np.float32  # the compiler makes a Python float a double, and only half as many doubles fit into a register


def compiled(*liberties: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a loop. liberties: what the compiler may do to floating-point formulas."""

    def decorate(loop: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", *liberties}}
        try:
            made = njit(cache=True, **options)(loop)
        except RuntimeError:  # neither this folder nor the user's cache is writeable
            return njit(**options)(loop)
        files = made._cache._cache_file
        files._source_stamp = STAMP
        files._data_name_pattern = files._data_name_pattern.replace("{number", f"{STAMP[:8]}-{os.getpid()}.{{number")
        return made

    return decorate


def done() -> Path | None:
    """The file that holds STAMP when Numba's cache has all loops for this processor; None if there is no cache."""
    folder = adam._cache.cache_path
    machine = repr((sys.version, CHECKED, adam.targetctx.codegen().magic_tuple()))
    return Path(folder) / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.done" if folder else None


@compiled()
def copy(x, y):
    """y[:] = x. Numba compiles its own assignment for two seconds, because that contains the text of an error."""
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = x[i, j]


@compiled()
def adam(value, g, m, v, shrink, beta1, beta2, rest1, rest2, rate, grow, eps):
    """rest_i is 1 - β_i, rate is the learning rate over 1 - β_1^t, and grow is 1 / (1 - β_2^t). None of these may be
    computed in float32, which loses the significant digits for β_i near 1. A division takes longer than everything
    else, so there is only one.
    """
    for i in range(value.size):
        m[i] = beta1 * m[i] + rest1 * g[i]
        v[i] = beta2 * v[i] + rest2 * (g[i] * g[i])
        value[i] = shrink * value[i] - rate * m[i] / (math.sqrt(grow * v[i]) + eps)


@compiled("reassoc", "nsz")
def layer_norm(x, gamma, beta, eps, normalized, y, inverse_std):
    """`ops.layer_norm` of the rows of x. Writes normalized, y and inverse_std, which the backward pass needs."""
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


_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@compiled()
def keeps(seed, rate, out):
    """uniform >= rate, for the numbers of `uniform` in core/ops/random_numbers.py. out: an even number of them."""
    for i in range(out.size // 2):
        z = np.uint64(i + 1) * _STEP + seed
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        z ^= z >> np.uint64(31)
        out[2 * i] = f(np.uint32(z) >> np.uint32(8)) * f(2.0**-24) >= rate
        out[2 * i + 1] = f(np.uint32(z >> np.uint64(40))) * f(2.0**-24) >= rate


# exp(x) = 2^n exp(r), where n is the integer nearest to x / ln 2. So |r| is at most ln 2 / 2, and eight terms of the
# series suffice. ln 2 is split into two parts, the first so short that its product with n is exact (Cody and Waite
# 1980, "Software Manual for the Elementary Functions", chapter 6). 2^n has n + 127 in its exponent's bits.
_LN2 = f(0.693359375)
_LN2_REST = f(math.log(2.0) - 0.693359375)
_SERIES = tuple(f(1.0 / math.factorial(k)) for k in range(8))


@compiled()
def exp(x):
    """exp of a float32 from -87 to 88, with an error below one unit in the last place; NaN for NaN."""
    n = np.floor(x * f(1.0 / math.log(2.0)) + f(0.5))
    r = (x - n * _LN2) - n * _LN2_REST
    series = _SERIES[7]
    for k in range(6, -1, -1):
        series = series * r + _SERIES[k]
    return series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled("reassoc", "nsz")
def exponentials(row, shift):
    """exp(row - shift) in place, 0 for a difference below -87. Returns the sum. No difference may be above 88."""
    total = f(0.0)
    for j in range(row.size):
        x = row[j] - shift
        e = exp(f(-87.0) if x < f(-87.0) else x)
        e = f(0.0) if x < f(-87.0) else e
        row[j] = e
        total += e
    return total


_SHARE, _CUBIC = f(math.sqrt(2.0 / math.pi)), f(math.sqrt(2.0 / math.pi) * 0.044715)


@compiled("nsz")
def gelu_tanh(x, y, slope):
    """½ (1 + tanh u) is the logistic function of 2u: one exponential and one division."""
    for i in range(x.size):
        a = x[i]
        near = f(-10.0) if a < f(-10.0) else a  # beyond ±10 the cumulative distribution is 0 or 1; NaN stays NaN
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
    """With Φ from its tail, as in _gelu_float32 in activations.py."""
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


@compiled("nsz")
def silu(x, y, slope):
    """With the logistic function σ: x σ(x), and the slope σ + x σ (1 - σ). Below -87 σ is 0."""
    for i in range(x.size):
        a = x[i]
        near = f(-87.0) if a < f(-87.0) else a  # NaN stays NaN
        share = f(1.0) / (f(1.0) + exp(f(-1.0) * (f(87.0) if near > f(87.0) else near)))
        share = f(0.0) if a < f(-87.0) else share
        y[i] = a * share
        slope[i] = share + y[i] * (f(1.0) - share)


CURVES = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3}
_GELU, _GELU_TANH, _SILU = CURVES["gelu"], CURVES["gelu_tanh"], CURVES["silu"]


@compiled("reassoc", "nsz")
def activate(curve, h, y, slope):
    """f(h) and f'(h); curve selects f."""
    if curve == _GELU_TANH:
        gelu_tanh(h, y, slope)
    elif curve == _GELU:
        gelu(h, y, slope)
    elif curve == _SILU:
        silu(h, y, slope)
    else:
        for j in range(h.size):
            y[j] = h[j] if h[j] > f(0.0) or h[j] != h[j] else f(0.0)  # NaN stays NaN
            slope[j] = f(1.0) if h[j] > f(0.0) else f(0.0)
