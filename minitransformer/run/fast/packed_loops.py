# mypy: disable-error-code="no-untyped-def"
"""Compiled loops over packed weights: each row is unpacked into the cache, and multiplied from there.

ideas/published/packing.py explains the bytes; these loops are held to it. A row is unpacked once for all rows of x, so
memory is read as packed. Nearly every kind is unpacked by one step, on sixteen bytes side by side:

    w = d q + m        q = ((byte >> right & mask) ^ flip) | (other >> other_right & other_mask) << 4

where `other` are the bytes with the upper bits. A signed q is one that counts from 0, and m takes the rest: for eight
bits q ^ 128 = q + 128 and m = -128 d. Products of these few bits are exact, so the results are, to the last bit, those
of packing.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...ideas.published import packing
from .loops import CHECKED, compiled, f
from .phases import PARTS, parts_of, stretch
from .phases import counters as counters
from .weights import KINDS

_F32 = KINDS["F32"]
_BYTES = tuple(packing.KINDS[kind].n_bytes if kind in packing.KINDS else 4 for kind in KINDS)  # of a block
_NUMBERS = tuple(packing.KINDS[kind].numbers if kind in packing.KINDS else 1 for kind in KINDS)
_UP = f(2.0**112)
i = np.int32  # the compiler makes a Python integer one of 64 bits, and only half as many fit into a register


@intrinsic
def _step(_: Any, out, to, packed, at, right, mask, flip, other, other_right, other_mask, d, m):
    """The step above, at out[to : to + 16]; the bytes begin at packed[at] and packed[other]. The compiler makes no such
    step of a loop over sixteen bytes: it unrolls it first.
    """

    def generate(context, builder, signature, arguments):
        numbers, integers = ir.VectorType(ir.FloatType(), 16), ir.VectorType(ir.IntType(32), 16)
        data = [context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 2)]

        def all_lanes(value, kind):
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, one, ir.Constant(integers, [0] * 16))

        def sixteen(at, right, mask):
            place = builder.bitcast(builder.gep(data[1], [at]), ir.VectorType(ir.IntType(8), 16).as_pointer())
            found = builder.zext(builder.load(place, align=1), integers)
            return builder.and_(builder.lshr(found, all_lanes(right, integers)), all_lanes(mask, integers))

        q = builder.xor(sixteen(*arguments[3:6]), all_lanes(arguments[6], integers))
        upper = builder.shl(sixteen(*arguments[7:10]), ir.Constant(integers, [4] * 16))
        products = builder.fmul(builder.sitofp(builder.or_(q, upper), numbers), all_lanes(arguments[10], numbers))
        place = builder.bitcast(builder.gep(data[0], [arguments[1]]), numbers.as_pointer())
        builder.store(builder.fadd(products, all_lanes(arguments[11], numbers)), place, align=4)
        return context.get_dummy_value()

    long, short, number = types.int64, types.int32, types.float32
    taken = [out, long, packed, long, short, short, short, long, short, short, number, number]
    return types.none(*taken), generate


@compiled("nsz")
def _sixteen(out, to, packed, at, right, mask, flip, d, m, other, other_right, other_mask):
    if CHECKED and not (0 <= to <= out.size - 16 and min(at, other) >= 0 and max(at, other) <= packed.size - 16):
        raise IndexError("a block lies outside its row")
    _step(out, to, packed, at, i(right), i(mask), i(flip), other, i(other_right), i(other_mask), d, m)


@compiled()
def _float(bits):
    return i(bits).view(np.float32)


@compiled()
def _half(packed, at):
    """A float16, finite. Its exponent is 112 less than that of a float32; between this and its sign are three bits."""
    bits = i(np.int16(np.uint16(packed[at]) | np.uint16(packed[at + 1]) << np.uint16(8)))
    return _float(bits << i(13) & i(-0x70002000)) * _UP


@compiled("nsz")
def _q8_0(packed, out):
    for block in range(out.size // 32):
        at, to = 34 * block, 32 * block
        d = _half(packed, at)
        _sixteen(out, to, packed, at + 2, 0, 255, 128, d, f(-128.0) * d, at, 0, 0)
        _sixteen(out, to + 16, packed, at + 18, 0, 255, 128, d, f(-128.0) * d, at, 0, 0)


@compiled("nsz")
def _q4(packed, out, size):
    """Q4_0, in blocks of 18 bytes, or Q4_1, in blocks of 20."""
    for block in range(out.size // 32):
        at, to = size * block, 32 * block
        d = _half(packed, at)
        m = f(-8.0) * d if size == 18 else _half(packed, at + 2)
        _sixteen(out, to, packed, at + size - 16, 0, 15, 0, d, m, at, 0, 0)
        _sixteen(out, to + 16, packed, at + size - 16, 4, 15, 0, d, m, at, 0, 0)


@compiled("nsz")
def _q5_0(packed, out):
    for block in range(out.size // 32):
        at, to = 22 * block, 32 * block
        d = _half(packed, at)
        fifth = i(0)
        for j in range(4):
            fifth |= i(packed[at + 2 + j]) << i(8 * j)
        q, low, high = packed[at + 6 : at + 22], out[to : to + 16], out[to + 16 : to + 32]
        for j in range(16):
            low[j] = d * f((i(q[j]) & i(15) | (fifth >> i(j) & i(1)) << i(4)) - i(16))
            high[j] = d * f((i(q[j]) >> i(4) | (fifth >> i(j + 16) & i(1)) << i(4)) - i(16))


@compiled("nsz")
def _q4_k(packed, out):
    for block in range(out.size // 256):
        at = 144 * block
        d, least = _half(packed, at), _half(packed, at + 2)
        for group in range(8):
            a, b = i(packed[at + 4 + group % 4]), i(packed[at + 8 + group % 4])
            c = i(packed[at + 12 + group % 4])
            if group < 4:
                s, t = d * f(a & i(63)), least * f(b & i(63))
            else:
                s, t = d * f(c & i(15) | (a >> i(6)) << i(4)), least * f(c >> i(4) | (b >> i(6)) << i(4))
            first, to, right = at + 16 + 32 * (group // 2), 256 * block + 32 * group, 4 * (group % 2)
            _sixteen(out, to, packed, first, right, 15, 0, s, -t, at, 0, 0)
            _sixteen(out, to + 16, packed, first + 16, right, 15, 0, s, -t, at, 0, 0)


@compiled("nsz")
def _q6_k(packed, out):
    signed = packed.view(np.int8)
    for block in range(out.size // 256):
        at = 210 * block
        d = _half(packed, at + 208)
        for group in range(16):
            half, place = group // 8, group % 8  # of 128 numbers, and of 16 in them
            first = at + 64 * half + 16 * (place % 4)
            other = at + 128 + 32 * half + 16 * (place % 2)
            s = d * f(signed[at + 192 + group])
            to, right, other_right = 256 * block + 16 * group, 4 * (place // 4), 2 * (place // 2)
            _sixteen(out, to, packed, first, right, 15, 0, s, f(-32.0) * s, other, other_right, 3)


@compiled("nsz")
def _bf16(packed, out):
    for j in range(out.size):
        out[j] = _float((i(packed[2 * j]) | i(packed[2 * j + 1]) << i(8)) << i(16))


@compiled("nsz")
def unpack_row(kind, packed, out):
    """The numbers of one row."""
    if kind == 0:
        _q8_0(packed, out)
    elif kind == 1:
        _q4(packed, out, 18)
    elif kind == 2:
        _q4(packed, out, 20)
    elif kind == 3:
        _q5_0(packed, out)
    elif kind == 4:
        _q4_k(packed, out)
    elif kind == 5:
        _q6_k(packed, out)
    else:
        _bf16(packed, out)


@compiled("reassoc", "nsz")
def _multiply_row(x, row, y, r):
    for n in range(x.shape[0]):
        total, other = f(0.0), x[n]
        for j in range(other.size):
            total += row[j] * other[j]
        y[n, r] = total


@compiled()
def multiply_rows(kind, x, rows, first, last, y):
    """y[:, first:last] = x W[first:last]ᵀ. x: (N, width); rows: the packed rows of W; y: (N, rows)."""
    row = np.empty(rows.shape[1] // _BYTES[kind] * _NUMBERS[kind], np.float32)
    for r in range(first, last):
        if kind == _F32:
            _multiply_row(x, rows[r].view(np.float32), y, r)
        else:
            unpack_row(kind, rows[r], row)
            _multiply_row(x, row, y, r)


@compiled()
def unpack(kind, rows, out, counts):
    """The numbers of packed rows. out: (N, numbers)."""
    for part in parts_of(counts, 0, PARTS):
        first, last = stretch(rows.shape[0], part, PARTS)
        for r in range(first, last):
            unpack_row(kind, rows[r], out[r])
