"""float16 in, float16 out, float32 in between.

A float16 has 11 significant bits and is at most 65504. So a sum in float16 stops growing (2048 + 1 is 2048), and 300²
is infinite. An op with sums or squares therefore computes in float32 and rounds once, when it returns:

    y = float16(f(float32(x))),        dx = float16(backward(float32(dy)))

The ops contain only the mathematics; a decorator between `@op` and the function says how `@op` runs it on float16
arrays. For every other dtype it runs as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .backend import Array, Pullback

F = TypeVar("F", bound=Callable[..., tuple[Array, Pullback]])


def in_float32(function: F) -> F:
    """Make an op on float16 arrays compute in float32. The results of op and pullback are rounded to float16."""
    return _widened(function, result="float16", on_gpu=True)


def in_float32_with_result(function: F) -> F:
    """The same for a loss, which stays float32: a sum over thousands of positions is too large for float16."""
    return _widened(function, result="float32", on_gpu=True)


def in_float32_on_host(function: F) -> F:
    """The same for a product with a matrix of weights, but only on NumPy.

    cuBLAS multiplies float16 matrices fast, with sums in float32. NumPy's float16 product also sums in float32, but
    without BLAS: it is a thousand times slower than a float32 product.
    """
    return _widened(function, result="float16", on_gpu=False)


def _widened(function: F, result: str, on_gpu: bool) -> F:
    def half(*args: Any, **options: Any) -> tuple[Array, Pullback]:
        floats = [x for x in (*args, *options.values()) if hasattr(x, "dtype") and x.dtype.kind == "f"]
        if not on_gpu and type(floats[0]) is not np.ndarray:
            return function(*args, **options)
        y, pullback = function(*map(_wide, args), **{name: _wide(x) for name, x in options.items()})

        @functools.wraps(pullback)
        def backward(*gradient: Any, **named: Any) -> Any:
            gradients = pullback(*map(_wide, gradient), **{name: _wide(dy) for name, dy in named.items()})
            return tuple(map(_rounded, gradients)) if isinstance(gradients, tuple) else _rounded(gradients)

        return y.astype(result), backward

    function.half = half  # type: ignore[attr-defined]
    return function


def sum_over(x: Array, axis: tuple[int, ...]) -> Array:
    """The sum of x along these axes, in its dtype: for a layer, whose lines no decorator widens."""
    return _wide(x).sum(axis=axis).astype(x.dtype, copy=False)


def _wide(x: Any) -> Any:
    return x.astype("float32") if getattr(x, "dtype", None) == np.float16 else x


def _rounded(x: Array) -> Array:
    return x.astype("float16")
