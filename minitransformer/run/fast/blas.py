# mypy: disable-error-code="no-untyped-def"
"""NumPy's own matrix product for compiled loops: cblas_sgemm of its OpenBLAS, called at its address.

Numba's own `a @ b` needs another library, and it cannot scale, transpose, or add to an existing array.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

from .loops import CHECKED, compiled


@functools.cache
def matrix_product() -> tuple[int, bool] | None:
    """The address of an OpenBLAS's cblas_sgemm, preferably NumPy's, and whether its integers have 64 bits; or None."""
    found = ThreadpoolController().select(internal_api="openblas").lib_controllers
    for path in sorted((one.filepath for one in found), key=lambda path: "numpy" not in path):
        library = ctypes.CDLL(path)
        for before, after in (("scipy_", "64_"), ("", "64_"), ("scipy_", ""), ("", "")):
            function = getattr(library, f"{before}cblas_sgemm{after}", None)
            built = getattr(library, f"{before}openblas_get_config{after}", None)
            if function and built:
                built.restype = ctypes.c_char_p
                return ctypes.cast(function, ctypes.c_void_p).value or 0, b"USE64BITINT" in built()
    return None


def _caller(bits: int) -> Any:
    """A call of the function at an address, with cblas_sgemm's arguments; its sizes are integers of `bits` bits."""
    size, real, place = ir.IntType(bits), ir.FloatType(), ir.IntType(8).as_pointer()
    kinds = [ir.IntType(32)] * 3 + [size] * 3 + [real, place, size, place, size, real, place, size]

    @intrinsic
    def call(_: Any, address, flip_a, flip_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        def generate(context, builder, signature, arguments):
            function = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
            given = [ir.Constant(kinds[0], 101)]  # matrices are stored row by row
            for value, kind in zip(arguments[1:], kinds[1:], strict=True):
                if kind == place:
                    value = builder.inttoptr(value, kind)
                elif kind != real and kind.width < value.type.width:
                    value = builder.trunc(value, kind)
                given.append(value)
            builder.call(function, given)
            return context.get_dummy_value()

        integer, number = types.int64, types.float32
        taken = [integer] * 6 + [number] + [integer] * 4 + [number] + [integer] * 2
        return types.none(*taken), generate

    return call


_call_32, _call_64 = _caller(32), _caller(64)
# cblas.h defines these numbers, and the 101 above. Numba compiles `multiply` anew for each Python integer.
AS_IT_IS, FLIPPED = np.int64(111), np.int64(112)


@compiled()
def _distance(a):
    """The distance between rows, in numbers. For a single row BLAS requires at least its length."""
    return max(a.strides[0] // 4, a.shape[1])


@compiled()
def _check_rows(a):
    if a.shape[1] > 1 and a.strides[1] != 4:
        raise IndexError("the numbers of a row must be adjacent")


@compiled()
def multiply(gemm, flip_a, flip_b, alpha, a, b, beta, c):
    """c = alpha a b + beta c, with aᵀ or bᵀ if it is flipped. Each row must be contiguous."""
    address, wide = gemm
    rows, k = (a.shape[1], a.shape[0]) if flip_a == FLIPPED else (a.shape[0], a.shape[1])
    if CHECKED:
        other_k, columns = (b.shape[1], b.shape[0]) if flip_b == FLIPPED else (b.shape[0], b.shape[1])
        if k != other_k or rows != c.shape[0] or columns != c.shape[1]:
            raise IndexError("these matrices cannot be multiplied")
        _check_rows(a)
        _check_rows(b)
        _check_rows(c)
    lda, ldb, ldc = _distance(a), _distance(b), _distance(c)
    at_a, at_b, at_c = a.ctypes.data, b.ctypes.data, c.ctypes.data
    if wide:
        _call_64(address, flip_a, flip_b, c.shape[0], c.shape[1], k, alpha, at_a, lda, at_b, ldb, beta, at_c, ldc)
    else:
        _call_32(address, flip_a, flip_b, c.shape[0], c.shape[1], k, alpha, at_a, lda, at_b, ldb, beta, at_c, ldc)
