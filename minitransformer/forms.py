"""The two forms of an op: the textbook's, written to be read, and for some ops a kernel, written to be fast.

A kernel bears the name and the signature of its op; two stand for a layer, which asks for them. It stands in, one on
NumPy arrays and another on CuPy's, unless `with textbook():` is active where the op is called. A kernel declines a call
that it was not made for, wrong input among them, by returning None; then the textbook op runs, so that every error
message comes from there. What a pullback does was settled when the forward pass made it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_kernels: dict[str, Callable[..., Any]] = {}  # for NumPy arrays
_cuda_kernels: dict[str, Callable[..., Any]] = {}  # for CuPy arrays
_textbook: ContextVar[bool] = ContextVar("textbook", default=False)  # a new thread starts with the default


def kernel(function: F) -> F:
    """Mark a function as the kernel, for NumPy arrays, of the op that has its name."""
    _kernels[function.__name__] = function
    return function


def cuda_kernel(function: F) -> F:
    """Mark a function as the kernel, for CuPy arrays, of the op that has its name."""
    _cuda_kernels[function.__name__] = function
    return function


def kernel_of(name: str, array_type: type = np.ndarray) -> Callable[..., Any] | None:
    """The kernel that stands in for the op of this name, on arrays of this type, here and now; or None."""
    if _textbook.get():
        return None
    if array_type is np.ndarray:
        return _kernels.get(name)
    return _cuda_kernels.get(name) if array_type.__module__ == "cupy" else None  # asking this way imports no CuPy


@contextlib.contextmanager
def textbook() -> Iterator[None]:
    """Within it every op runs in its textbook form: what a tracer shows, or a kernel is held against."""
    token = _textbook.set(True)
    try:
        yield
    finally:
        _textbook.reset(token)
