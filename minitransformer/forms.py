"""The two forms of an op: the textbook's, written to be read, and for some ops a kernel, written to be fast.

A kernel bears the name and the signature of its op. It stands in for it on NumPy arrays, unless `with textbook():` is
active where the op is called. A kernel declines a call that it was not made for, wrong input among them, by returning
None; then the textbook op runs, so that every error message comes from there. What a pullback does was settled when the
forward pass made it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_kernels: dict[str, Callable[..., Any]] = {}
_textbook: ContextVar[bool] = ContextVar("textbook", default=False)  # a new thread starts with the default


def kernel(function: F) -> F:
    """Mark a function as the kernel of the op that has its name."""
    _kernels[function.__name__] = function
    return function


def kernel_of(name: str) -> Callable[..., Any] | None:
    """The kernel that stands in for the op of this name here and now, or None."""
    return None if _textbook.get() else _kernels.get(name)


@contextlib.contextmanager
def textbook() -> Iterator[None]:
    """Within it every op runs in its textbook form: what a tracer shows, or a kernel is held against."""
    token = _textbook.set(True)
    try:
        yield
    finally:
        _textbook.reset(token)
