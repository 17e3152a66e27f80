# mypy: disable-error-code="no-untyped-def"
"""Compiled loops over packed weights: numbers are unpacked into registers, and multiplied there.

ideas/published/packing.py explains the bytes; these loops are held to it. Nearly every kind is unpacked by one step, on
sixteen bytes side by side:

    w = d q + m        q = ((byte >> right & mask) ^ flip) | (other >> other_right & other_mask) << 4

where `other` are the bytes with the upper bits. A signed q is one that counts from 0, and m takes the rest: for eight
bits q ^ 128 = q + 128 and m = -128 d. Products of these few bits are exact, so the numbers are, to the last bit, those
of packing.py. Only the order of a sum is the loop's own: 32 sums at a time, which are added up at the end of a row. For
several rows of x a row of weights is unpacked once: the first one multiplies it on the way, and leaves it in the cache.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, register_model

from ...ideas.published import packing
from .loops import CHECKED, compiled, f
from .phases import PARTS, parts_of, stretch
from .phases import counters as counters
from .weights import KINDS

_BF16 = KINDS["BF16"]
_BYTES = tuple(packing.KINDS[kind].n_bytes if kind in packing.KINDS else 4 for kind in KINDS)  # of a block
_NUMBERS = tuple(packing.KINDS[kind].numbers if kind in packing.KINDS else 1 for kind in KINDS)
_UP = f(2.0**112)
i = np.int32  # the compiler makes a Python integer one of 64 bits, and only half as many fit into a register


class _Lanes(types.Type):
    """Sixteen float32 in registers. The compiler makes none of a loop over sixteen bytes: it unrolls it first."""


_LANES, _FLOATS, _INTEGERS = _Lanes("lanes"), ir.VectorType(ir.FloatType(), 16), ir.VectorType(ir.IntType(32), 16)


@register_model(_Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _FLOATS)


def _place(context, builder, kind, array, at, wanted):
    """The address of array[at], as that of something else."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), wanted.as_pointer())


def _all(builder, value, wanted):
    """The same number in all lanes."""
    one = builder.insert_element(ir.Constant(wanted, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTEGERS, [0] * 16))


def _add_product(builder, a, b, c):
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


@intrinsic
def _numbers(_: Any, packed, at, right, mask, flip, d, m, without, other, other_right, other_mask):
    """The step above. without: a bit for each lane that gets no m."""

    def generate(context, builder, signature, arguments):
        packed, at, right, mask, flip, d, m, without, other, other_right, other_mask = arguments

        def bits(at, right, mask):
            place = _place(context, builder, signature.args[0], packed, at, ir.VectorType(ir.IntType(8), 16))
            found = builder.zext(builder.load(place, align=1), _INTEGERS)
            return builder.and_(builder.lshr(found, _all(builder, right, _INTEGERS)), _all(builder, mask, _INTEGERS))

        upper = builder.shl(bits(other, other_right, other_mask), ir.Constant(_INTEGERS, [4] * 16))
        q = builder.or_(builder.xor(bits(at, right, mask), _all(builder, flip, _INTEGERS)), upper)
        chosen = builder.bitcast(builder.trunc(without, ir.IntType(16)), ir.VectorType(ir.IntType(1), 16))
        m = builder.select(chosen, ir.Constant(_FLOATS, [0.0] * 16), _all(builder, m, _FLOATS))
        return _add_product(builder, builder.sitofp(q, _FLOATS), _all(builder, d, _FLOATS), m)

    long, short, number = types.int64, types.int32, types.float32
    return _LANES(packed, long, short, short, short, number, number, short, long, short, short), generate


@intrinsic
def _zeros(_: Any):
    return _LANES(), lambda *_: ir.Constant(_FLOATS, [0.0] * 16)


@intrinsic
def _plus(_: Any, total, lanes, x, at):
    """total + lanes x[at : at + 16]"""

    def generate(context, builder, signature, arguments):
        total, lanes, x, at = arguments
        place = _place(context, builder, signature.args[2], x, at, _FLOATS)
        return _add_product(builder, lanes, builder.load(place, align=4), total)

    return _LANES(_LANES, _LANES, x, types.int64), generate


@intrinsic
def _store(_: Any, lanes, out, at):
    def generate(context, builder, signature, arguments):
        builder.store(arguments[0], _place(context, builder, out, *arguments[1:], _FLOATS), align=4)
        return context.get_dummy_value()

    return types.none(_LANES, out, types.int64), generate


@intrinsic
def _sum(_: Any, a, b):
    """The sum of all numbers of both."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType(), _FLOATS])
        add = get_or_insert_function(builder.module, kind, "llvm.vector.reduce.fadd.v16f32")
        return builder.call(add, [ir.Constant(ir.FloatType(), 0.0), builder.fadd(*arguments)], fastmath=("reassoc",))

    return types.float32(_LANES, _LANES), generate


@intrinsic
def _integer(_: Any, packed, at, kind):
    """The integer whose bytes begin at packed[at]."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, packed, *arguments[:2], context.get_value_type(kind.dtype))
        return builder.load(place, align=1)

    return kind.dtype(packed, types.int64, kind), generate


@compiled()
def _check(array, at, size):
    if CHECKED and not 0 <= at <= array.size - size:
        raise IndexError("a block lies outside its row")


@compiled("nsz")
def _sixteen(packed, at, right, mask, flip, d, m, without=0, other=0, other_right=0, other_mask=0):
    _check(packed, at, 16)
    _check(packed, other, 16)
    return _numbers(packed, at, i(right), i(mask), i(flip), d, m, i(without), other, i(other_right), i(other_mask))


@compiled()
def _at(packed, at, kind):
    _check(packed, at, 2)
    return i(_integer(packed, at, kind))


@compiled()
def _float(bits):
    return i(bits).view(np.float32)


@compiled()
def _half(packed, at):
    """A float16, finite. Its exponent is 112 less than that of a float32; between this and its sign are three bits."""
    return _float(_at(packed, at, np.int16) << i(13) & i(-0x70002000)) * _UP


@compiled("reassoc", "nsz")
def _dot(row, x):
    total = f(0.0)
    for j in range(x.size):
        total += row[j] * x[j]
    return total


def _reader(kind):
    """Makes a loop over packed rows. numbers(packed, at, d, m, group): 32 numbers of the block at `at`, as two lanes.

    d, m: its float16, the first and the last.
    """
    known = packing.KINDS[kind]
    n_bytes, n_groups, first_scale, last_scale = known.n_bytes, known.numbers // 32, known.scales[0], known.scales[-1]

    def made(function):
        numbers = compiled("nsz")(function)

        @njit(nogil=True, error_model="numpy")
        def read(rows, first, last, x, others, out, y):
            """y[0, first:last] = x Wᵀ, and so for the others. An array `out` that is not empty gets a row's numbers."""
            _check(out, x.size if out.size else 0, 0)
            for r in range(first, last):
                packed, a, b, to = rows[r], _zeros(), _zeros(), 0
                for at in range(0, x.size // (32 * n_groups) * n_bytes, n_bytes):
                    d, m = _half(packed, at + first_scale), _half(packed, at + last_scale)
                    for group in range(n_groups):
                        low, high = numbers(packed, at, d, m, group)
                        a, b = _plus(a, low, x, to), _plus(b, high, x, to + 16)
                        if out.size:
                            _store(low, out, to)
                            _store(high, out, to + 16)
                        to += 32
                y[0, r] = _sum(a, b)
                for n in range(1, others.shape[0]):
                    y[n, r] = _dot(out, others[n])

        return read

    return made


@_reader("Q8_0")
def _q8_0(packed, at, d, _, group):
    m = f(-128.0) * d
    return _sixteen(packed, at + 2, 0, 255, 128, d, m), _sixteen(packed, at + 18, 0, 255, 128, d, m)


@_reader("Q4_0")
def _q4_0(packed, at, d, _, group):
    m = f(-8.0) * d
    return _sixteen(packed, at + 2, 0, 15, 0, d, m), _sixteen(packed, at + 2, 4, 15, 0, d, m)


@_reader("Q4_1")
def _q4_1(packed, at, d, m, group):
    return _sixteen(packed, at + 4, 0, 15, 0, d, m), _sixteen(packed, at + 4, 4, 15, 0, d, m)


@_reader("Q5_0")
def _q5_0(packed, at, d, _, group):
    """d (q + 16) - 16 d, where the fifth bit is set, is d q."""
    m, fifth, later = f(-16.0) * d, _at(packed, at + 2, np.int16), _at(packed, at + 4, np.int16)
    return _sixteen(packed, at + 6, 0, 15, 0, d, m, fifth), _sixteen(packed, at + 6, 4, 15, 0, d, m, later)


@_reader("Q4_K")
def _q4_k(packed, at, d, least, group):
    begin, first, right = at + 4 + (group & 3), at + 16 + 32 * (group >> 1), 4 * (group & 1)
    a, b, c = _at(packed, begin, np.uint8), _at(packed, begin + 4, np.uint8), _at(packed, begin + 8, np.uint8)
    s, t = i(a & i(63)), i(b & i(63))
    if group >= 4:
        s, t = i(c & i(15) | (a >> i(6)) << i(4)), i(c >> i(4) | (b >> i(6)) << i(4))
    d, m = d * f(s), -least * f(t)
    return _sixteen(packed, first, right, 15, 0, d, m), _sixteen(packed, first + 16, right, 15, 0, d, m)


@_reader("Q6_K")
def _q6_k(packed, at, d, _, group):
    """Of 128 numbers, four quarters share bytes: two quarters the lower bits, all four the upper bits."""
    of_two, quarter, scale = group >> 2, group & 3, at + 192 + 2 * group
    s, t = d * f(_at(packed, scale, np.int8)), d * f(_at(packed, scale + 1, np.int8))
    first, right = at + 64 * of_two + 32 * (quarter & 1), 4 * (quarter >> 1)
    other, up = at + 128 + 32 * of_two, 2 * quarter
    low = _sixteen(packed, first, right, 15, 0, s, f(-32.0) * s, 0, other, up, 3)
    return low, _sixteen(packed, first + 16, right, 15, 0, t, f(-32.0) * t, 0, other + 16, up, 3)


@compiled()
def _others(kind, rows, first, last, others, out, y):
    """BF16 and F32."""
    for r in range(first, last):
        packed = rows[r]
        for j in range(out.size):
            out[j] = _float((i(packed[2 * j]) | i(packed[2 * j + 1]) << i(8)) << i(16))
        for n in range(others.shape[0]):
            y[n, r] = _dot(out if kind == _BF16 else packed.view(np.float32), others[n])


@compiled()
def _read(kind, rows, first, last, x, others, out, y):
    """The loop of a kind. x: others[0], and zeros up to the end of the row."""
    if kind == 0:
        _q8_0(rows, first, last, x, others, out, y)
    elif kind == 1:
        _q4_0(rows, first, last, x, others, out, y)
    elif kind == 2:
        _q4_1(rows, first, last, x, others, out, y)
    elif kind == 3:
        _q5_0(rows, first, last, x, others, out, y)
    elif kind == 4:
        _q4_k(rows, first, last, x, others, out, y)
    elif kind == 5:
        _q6_k(rows, first, last, x, others, out, y)
    else:
        _others(kind, rows, first, last, others, out, y)


@compiled()
def multiply_rows(kind, x, rows, first, last, y):
    """y[:, first:last] = x W[first:last]ᵀ. x: (N, width); rows: the packed rows of W; y: (N, rows)."""
    width, keeps = rows.shape[1] // _BYTES[kind] * _NUMBERS[kind], kind == _BF16 or (kind < _BF16 and x.shape[0] > 1)
    filled, out = np.zeros(width, np.float32), np.empty(width if keeps else 0, np.float32)
    for j in range(x.shape[1]):
        filled[j] = x[0, j]
    _read(kind, rows, first, last, filled, x, out, y)


@compiled()
def unpack(kind, rows, out, counts):
    """The numbers of packed rows. out: (N, numbers)."""
    for part in parts_of(counts, 0, PARTS):
        first, last = stretch(rows.shape[0], part, PARTS)
        zeros, y = np.zeros(out.shape[1], np.float32), np.empty((1, rows.shape[0]), np.float32)
        nothing = np.empty((0, 0), np.float32)
        for r in range(first, last):
            _read(kind, rows, r, r + 1, zeros, nothing, out[r], y)
