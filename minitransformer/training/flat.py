"""Flat buffers: the arrays of many parameters side by side in one, of which each is a view.

A sum over all gradients, or a step of the optimiser, is then a few operations on long arrays and not many on short
ones. The matrices come before the vectors, since AdamW lets only the former decay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..arrays.backend import Array, array_module
from ..layers import Parameter


def in_order(parameters: Iterable[tuple[str, Parameter]]) -> list[tuple[str, Parameter]]:
    """The (name, Parameter) pairs as they lie in a flat buffer: those with two axes or more first."""
    return sorted(parameters, key=lambda pair: pair[1].value.ndim < 2)


def side_by_side(arrays: Sequence[Array]) -> tuple[Array, list[Array]]:
    """One new array of zeros, and views of it that have the shapes of these, in this order. All are of one dtype."""
    xp = array_module(arrays[0])
    flat = xp.zeros(sum(x.size for x in arrays), dtype=arrays[0].dtype)
    ends = np.cumsum([x.size for x in arrays]).tolist()
    return flat, [flat[end - x.size : end].reshape(x.shape) for x, end in zip(arrays, ends, strict=True)]


def as_one(arrays: Sequence[Array]) -> Array | None:
    """The array (N,) of all their numbers in this order, if they lie so in NumPy's memory; else None."""
    base = arrays[0].base if type(arrays[0]) is np.ndarray else None
    if type(base) is not np.ndarray or base.ndim != 1 or not base.flags.c_contiguous:
        return None
    start = end = _address(arrays[0])
    for x in arrays:
        if x.base is not base or not x.flags.c_contiguous or x.dtype != base.dtype or _address(x) != end:
            return None
        end += x.nbytes
    first = (start - _address(base)) // base.itemsize
    return base[first : first + (end - start) // base.itemsize]


def _address(x: np.ndarray) -> int:
    address: int = x.__array_interface__["data"][0]
    return address
