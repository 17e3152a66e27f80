"""What a function accepts, declared in one line and checked before every call. So its body is mathematics alone.

    @op("x: (..., in); weight: (in, out); bias: (out,); y: (..., out)")
    def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback]:

The line is also in the docstring. Equal letters are equal lengths, and `...` is any number of leading axes. A name that
is not an argument is the output's. The annotations say the rest: what is an integer, a number, a flag or a generator,
and what may be None. `core/arrays/grammar.py` has the grammar.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from .backend import Array, Pullback, library
from .boundary import (
    check_broadcasts,
    check_floats,
    check_gradient,
    check_integer_array,
    check_mask,
    check_range_of_ids,
)
from .grammar import DeclaredArray, in_brackets, options_of, parsed

F = TypeVar("F", bound=Callable[..., Any])

_trusted: ContextVar[bool] = ContextVar("trusted", default=False)
_COUNTS = ("no axis", "one axis", "two axes", "three axes", "four axes")


def op(text: str) -> Callable[[F], F]:
    """Declare a function of arrays that returns `(y, backward)`.

    It refuses what does not fit the declaration, and its pullback refuses a gradient that does not fit y. Without this
    a gradient of another shape could broadcast unnoticed, and one of another dtype would promote every gradient below
    it. For the same reason NumPy's float scalars become Python floats: `np.sqrt(64)` is a float64 and would promote
    float32 arrays, but the Python float 8.0 adopts their dtype.

    What a caller may write to: its own arrays, once backward is over. Until then a pullback may need the inputs and the
    output. y may share memory with an input, and a gradient with the one it came from: dropout without a rate returns x
    and dy themselves. So copy what you write to. Only `Parameter.grad` is added to in place.
    """

    def mark(function: F) -> F:
        check = Declaration(text, function)
        half, first = getattr(function, "half", function), check.like

        @functools.wraps(function)
        def forward(*args: Any, **options: Any) -> tuple[Array, Pullback]:
            given = check(args, options)
            y, pullback = function(**given) if given[first].dtype != np.float16 else half(**given)
            return y, Checked(checked, pullback, check.where, y.shape, y.dtype, library(type(y)))

        forward.__doc__ = check.described(function.__doc__)
        forward.declaration = check  # type: ignore[attr-defined]
        forward.body = function  # type: ignore[attr-defined]
        return forward  # type: ignore[return-value]

    return mark


def inside(op: F) -> F:
    """The op without its checks: for a caller that has checked what it passes on, or made it."""
    return getattr(op, "body", op)


@contextlib.contextmanager
def trusted() -> Iterator[None]:
    """Inside this context no argument is checked: for a caller that runs the same code again and again."""
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


def takes_ids(op: Callable[..., Any]) -> bool:
    """Whether the op declares integers of a range, such as ids or targets."""
    return hasattr(op, "declaration") and bool(op.declaration.ranges)


def declared(text: str = "") -> Callable[[F], F]:
    """Declare what any other function accepts, or the constructor of a class: `@declared("d_in > 0")` at `__init__`."""

    def mark(function: F) -> F:
        check = Declaration(text, function)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return function(**check(args, options))

        call.__doc__ = check.described(function.__doc__)
        return call  # type: ignore[return-value]

    return mark


def checked(
    pullback: Pullback, where: str, shape: tuple[int, ...], dtype: Any, xp: Any, /, *gradient: Array, **named: Array
) -> Any:
    """Call the pullback of an output of this shape, dtype and library, or refuse a gradient that does not fit it."""
    for dy in (*gradient, *named.values()) if named else gradient:
        if type(dy) is not np.ndarray or xp is not np or dy.shape != shape or dy.dtype != dtype:
            check_gradient(where, dy, shape, dtype, xp)
    return pullback(*gradient, **named)


class Checked(functools.partial[Any]):
    """`checked` with all but the gradient: Checked(checked, pullback, where, shape, dtype, xp)."""

    @property
    def __wrapped__(self) -> Pullback:
        """The pullback itself, as of a decorated function."""
        return self.args[0]


class Declaration:
    """A declaration as a list of checks: a call runs them and returns the arguments by name, or raises."""

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        self.where, self.text, self.function = function.__name__, " ".join(text.split()), function
        parameters = inspect.signature(function).parameters
        self.names, self.defaults = tuple(parameters), {name: p.default for name, p in parameters.items()}
        self.required = {name for name, p in parameters.items() if p.default is p.empty and p.kind != p.VAR_KEYWORD}
        arrays, rules = parsed(self.where, self.text, parameters)
        self.options = list(options_of(self.where, parameters, arrays, rules))
        inputs = [arrays[name] for name in parameters if name in arrays]
        self.floats = [a for a in inputs if not a.kind]
        self.integers = [a for a in inputs if a.kind == "integers"]
        self.shaped = [a for a in inputs if not a.broadcasts and not any(axis[0] == "*" for axis in a.axes)]
        self.broadcasting = [a for a in inputs if a.broadcasts]
        self.products = {axis: a for a in reversed(self.shaped) for axis in a.axes if " " in axis or "·" in axis}
        self.ranges = [a for a in self.integers if a.size]
        self.like = self.floats[0].name if self.floats else ""  # whose dtype and device the others must have
        checks = {
            self._check_options: self.options,
            self._check_kinds: [*self.floats, *self.integers],
            self._check_axes: self.shaped,
            self._check_products: self.products,
            self._check_broadcasting: self.broadcasting,
            self._check_ranges: self.ranges,
        }
        self.checks = [check for check, declared in checks.items() if declared]

    def __call__(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, with Python floats in place of NumPy's."""
        given = dict(zip(self.names, args, strict=False), **options)
        if _trusted.get():
            return given
        if len(given) != len(args) + len(options) or not self.required <= given.keys():
            self.function(*args, **options)  # raises Python's own TypeError
        lengths: dict[str, Any] = {}  # of the axes, by their letters
        for check in self.checks:
            check(given, lengths)
        return given

    # Each check first tries what nearly every call passes, and only then finds out what is wrong.

    def _check_options(self, given: dict[str, Any], lengths: dict[str, Any]) -> None:
        for option in self.options:
            x = given.get(option.name, option.default)
            plain = type(x) is option.plain and (option.least is None or option.least <= x <= option.most)  # type: ignore[operator]
            plain = plain or (type(x) is str and x in option.words)
            if not plain and not (x is None and option.optional):
                given[option.name] = x = option.check(self._name(given), x)
            if option.letter:
                lengths[option.letter] = x

    def _check_kinds(self, given: dict[str, Any], lengths: dict[str, Any]) -> None:
        like = given.get(self.like)
        dtype = getattr(like, "dtype", None)
        for a in self.floats:
            x = given.get(a.name)
            if x is None and a.optional:
                continue
            if type(x) is not np.ndarray or not x.size or x.dtype != dtype or x.dtype.kind != "f":
                present = (a for a in self.floats if not a.optional or given.get(a.name) is not None)
                check_floats(self.where, **{a.name: given.get(a.name) for a in present})
                break
        for a in self.integers:
            x = given.get(a.name)
            if x is None and a.optional:
                continue
            if type(x) is not np.ndarray or type(like) is not np.ndarray or not x.size or x.dtype.kind not in "iu":
                check_integer_array(self.where, a.name, x, like)

    def _check_axes(self, given: dict[str, Any], lengths: dict[str, Any]) -> None:
        options = lengths.copy()
        for a in self.shaped:
            x = given.get(a.name)
            if x is None:
                continue
            axes, shape = a.axes, x.shape
            if axes[:1] == ("...",):
                n = len(shape) - len(axes) + 1
                shape = (shape[:n], *shape[n:]) if n >= 0 else ()
            if len(shape) != len(axes):
                self._refuse(a, given, options)
            for axis, length in zip(axes, shape, strict=True):
                if lengths.setdefault(axis, length) != length:
                    self._refuse(a, given, options)

    def _check_products(self, given: dict[str, Any], lengths: dict[str, Any]) -> None:
        for axis in self.products:
            self._divide(axis, given, lengths)

    def _check_broadcasting(self, given: dict[str, Any], lengths: dict[str, Any]) -> None:
        """Require arrays that broadcast to their axes. A letter that no other array has is free."""
        for a in self.broadcasting:
            x: Any = given.get(a.name)
            if x is None and a.optional:
                continue
            if a.axes[-1] not in lengths:
                lengths[a.axes[-1]] = x.shape[-1] if x.ndim else 1
            wanted = _flat(lengths[axis] for axis in a.axes)
            if a.kind == "booleans":
                check_mask(self.where, x, wanted, given.get(self.like), a.name)
            else:
                check_broadcasts(self.where, a.name, x, wanted)

    def _check_ranges(self, given: dict[str, Any], lengths: dict[str, Any]) -> None:
        for a in self.ranges:
            x, also = given.get(a.name), given.get(a.also, self.defaults.get(a.also))
            if x is not None:
                check_range_of_ids(self.where, a.name, x, lengths[a.size], also)

    def described(self, doc: str | None) -> str | None:
        """The docstring with the declaration as its second paragraph."""
        if doc is None or not self.text:
            return doc
        summary, _, rest = inspect.cleandoc(doc).partition("\n\n")
        line = textwrap.fill(f"{self.text}.", 116, break_long_words=False)
        return "\n\n".join(filter(None, (summary, line, rest)))

    def _name(self, given: Mapping[str, Any]) -> str:
        """The function's name in errors; of a method that builds an object, the name of its class."""
        owner = given.get("cls", type(given["self"]) if "self" in given else None)
        return self.where if owner is None else str(owner.__name__)

    def _divide(self, axis: str, given: Mapping[str, Any], lengths: dict[str, Any]) -> None:
        """Find the letter that is still unknown in a product such as H·d, or require that the product is right."""
        if axis not in lengths:
            return  # of an array that was not given
        factors, known, unknown = re.split("[ ·]", axis), 1, list[str]()
        for factor in factors:
            n = int(factor) if factor.isdigit() else lengths.get(factor)
            known, unknown = (known, [*unknown, factor]) if n is None else (known * n, unknown)
        if len(unknown) == 1 and lengths[axis] % known == 0:
            lengths[unknown[0]] = lengths[axis] // known
        elif len(unknown) == 1 or (not unknown and lengths[axis] != known):
            array = self.products[axis]
            divisor = " · ".join(x if x.isdigit() else f"{x} = {lengths[x]}" for x in factors if x not in unknown)
            wanted = f"a multiple of {divisor}" if unknown else known
            came = f"it is {lengths[axis]}; the shape is {given[array.name].shape}"
            raise ValueError(f"{self.where}: the axis {axis} of {array} must be {wanted}, but {came}")

    def _refuse(self, array: DeclaredArray, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        """Raise the error that says which axis does not fit."""
        where, name, shape = self.where, array.name, given[array.name].shape
        known: dict[str, Any] = dict(sizes)
        first: dict[str, DeclaredArray] = {}
        for other in self.shaped[: self.shaped.index(array)]:
            if given.get(other.name) is not None:
                for axis, length in zip(other.axes, other.lengths(given[other.name].shape), strict=True):
                    known.setdefault(axis, length)
                    first.setdefault(axis, other)
        parts, axes = array.lengths(shape), in_brackets(array.axes)
        if len(parts) != len(array.axes):
            n = len(array.axes) - (array.axes[0] == "...")
            least = "at least " if array.axes[0] == "..." else ""
            raise ValueError(f"{where}: {name} must have {least}{_COUNTS[n]} {axes}, got shape {shape}")
        before = set(known)
        wrong = next(axis for axis, n in zip(array.axes, parts, strict=True) if known.setdefault(axis, n) != n)
        if wrong not in first:
            raise ValueError(f"{where}: {name} must have the shape {axes}, got {shape}")
        other, theirs = first[wrong], given[first[wrong].name].shape
        if wrong == "..." and all(axis in before for axis in array.axes):
            wanted = _flat(known[axis] for axis in array.axes)
            raise ValueError(f"{where}: {name} must have shape {wanted}, got {shape}; {other} has shape {theirs}")
        what = "the leading axes" if wrong == "..." else f"the axis {wrong}"
        came = f"got the shapes {theirs} and {shape}"
        raise ValueError(f"{where}: {what} must be the same in {other} and {array}, {came}")


def _flat(lengths: Iterable[Any]) -> tuple[int, ...]:
    """A shape from the lengths of its axes; the length of `...` is a tuple."""
    return tuple(n for length in lengths for n in (length if isinstance(length, tuple) else (length,)))
