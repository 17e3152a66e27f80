"""Flat buffers: one array contains the arrays of many parameters side by side; each of them is a view into it.

A sum over all gradients, or a step of the optimiser, then takes a few operations on long arrays instead of many on
short ones. The matrices come before the vectors, because AdamW applies weight decay only to the matrices.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ...core.arrays.backend import Array, array_module
from ...core.layers import Module, Parameter


def in_order(parameters: Iterable[tuple[str, Parameter]]) -> list[tuple[str, Parameter]]:
    """The (name, Parameter) pairs in the order of a flat buffer: those with two axes or more first."""
    return sorted(parameters, key=lambda pair: pair[1].value.ndim < 2)


def side_by_side(arrays: Sequence[Array]) -> tuple[Array, list[Array]]:
    """One new array of zeros, and views of it with the shapes of these arrays, in this order. All have one dtype."""
    xp = array_module(arrays[0])
    flat = xp.zeros(sum(x.size for x in arrays), dtype=arrays[0].dtype)
    ends = np.cumsum([x.size for x in arrays]).tolist()
    return flat, [flat[end - x.size : end].reshape(x.shape) for x, end in zip(arrays, ends, strict=True)]


def as_one(arrays: Sequence[Array]) -> Array | None:
    """One array (N,) of all their numbers, if they are adjacent in memory in this order; otherwise None."""
    base: Array = getattr(arrays[0], "base", None)
    if type(base) is not type(arrays[0]) or base.ndim != 1 or not base.flags.c_contiguous:
        return None
    begin, start, end = _address(base), _address(arrays[0]), _address(arrays[0])
    for x in arrays:
        if type(x.base) is not type(base) or _address(x.base) != begin or x.dtype != base.dtype:
            return None
        if not x.flags.c_contiguous or _address(x) != end:
            return None
        end += x.nbytes
    first = (start - begin) // base.itemsize
    return base[first : first + (end - start) // base.itemsize]


def _address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0] if type(x) is np.ndarray else x.data.ptr
    return address


def flat_gradients(model: Module) -> Array:
    """Put the gradients side by side in one array, and return it. Each `.grad` becomes a view of it."""
    parameters = [p for _, p in in_order(model.parameters())]
    flat, views = side_by_side([p.grad for p in parameters])
    for p, view in zip(parameters, views, strict=True):
        p.grad = view
    return flat
