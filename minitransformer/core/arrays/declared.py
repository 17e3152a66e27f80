"""What a function accepts, declared in one line and checked before every call. So its body is mathematics alone.

    @op("x: (..., in); weight: (in, out); bias: (out,); y: (..., out)")
    def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback]:

The line is also in the docstring. Equal letters are equal lengths, and `...` is any number of leading axes. A name that
is not an argument is the output's. The annotations say the rest: what is an integer, a number, a flag or a generator,
and what may be None. The entries, separated by `;`:

    q, k: (..., T, d)                       arrays of floats, all of one dtype and on one device
    x: (..., T, H·d); weight: (H, 3 H)      an axis may be a product
    ids: integers (...) < V                 from 0 to V - 1; `< V or ignore_index` allows one number more
    mask: booleans that broadcast to (..., T)
    bias: broadcasts to (..., T_q, T_k)     floats
    loss: (), or (...)                      one of two shapes
    gamma: (*D)                             several axes, which the function itself checks
    n_heads: H                              an integer above 0, the length of an axis
    eps > 0;  0 <= rate < 1;  n, k > 0      the range of a number, or of several
    reduction: "mean" or "sum"              one of these words; `or an op` allows a function as well
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .backend import Array, Pullback, array_module
from .boundary import (
    check_broadcasts,
    check_flags,
    check_floats,
    check_generator,
    check_gradient,
    check_integer_array,
    check_integers,
    check_mask,
    check_number,
    check_range_of_ids,
)

F = TypeVar("F", bound=Callable[..., Any])

_ARRAY = re.compile(
    r"(?P<names>\w+(?:, \w+)*): (?P<kind>integers |booleans )?(?P<broadcasts>(?:that broadcast|broadcasts) to )?"
    r"\((?P<axes>[^()]*)\)(?: < (?P<size>\w+))?(?: or (?P<also>\w+))?(?:, or \(\.\.\.\))?"
)
_WORDS = re.compile(r'(?P<name>\w+): (?P<words>"\w+"(?: or "\w+")*)(?P<op> or an op)?')
_LENGTH = re.compile(r"(?P<name>\w+): (?P<axis>\w+)")
_RANGE = re.compile(r"(?:(?P<low>[\d.]+) <= )?(?P<names>\w+(?:, \w+)*) (?P<sign>>=|>|<=|<) (?P<bound>[\d.]+)")
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

        half, first = getattr(function, "half", function), check.floats[0].name

        @functools.wraps(function)
        def forward(*args: Any, **options: Any) -> tuple[Array, Pullback]:
            given = check(args, options)
            y, pullback = function(**given) if given[first].dtype != np.float16 else half(**given)
            return y, guarded(check.where, y, pullback)

        forward.__doc__ = check.described(function.__doc__)
        forward.declaration = check  # type: ignore[attr-defined]
        forward.body = function  # type: ignore[attr-defined]
        return forward  # type: ignore[return-value]

    return mark


def inside(op: F) -> F:
    """The op without its checks: for a caller that has checked what it passes on, or made it."""
    return getattr(op, "body", op)


def declared(text: str = "") -> Callable[[F], F]:
    """Declare what any other function accepts, or the constructor of a class: `@declared("d_in > 0")` at `__init__`."""

    def mark(function: F) -> F:
        check = Declaration(text, function)

        @functools.wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            return function(**check(args, options))

        checked.__doc__ = check.described(function.__doc__)
        return checked  # type: ignore[return-value]

    return mark


def guarded(where: str, y: Array, pullback: Pullback) -> Pullback:
    """The pullback, which now refuses a gradient that does not fit the output y."""
    shape, dtype, xp = y.shape, y.dtype, np if isinstance(y, np.ndarray | np.generic) else array_module(y)

    def backward(*gradient: Array, **named: Array) -> Any:
        for dy in (*gradient, *named.values()) if named else gradient:
            if type(dy) is not np.ndarray or xp is not np or dy.shape != shape or dy.dtype != dtype:
                check_gradient(where, dy, shape, dtype, xp)
        return pullback(*gradient, **named)

    backward.__wrapped__ = pullback  # type: ignore[attr-defined]  # functools.wraps takes ten times as long
    backward.__qualname__ = getattr(pullback, "__qualname__", where)
    return backward


@dataclass(frozen=True)
class _Declared:
    """An array, as declared."""

    name: str
    kind: str  # "" for floats, "integers" or "booleans"
    axes: tuple[str, ...]
    broadcasts: bool
    optional: bool
    size: str  # integers: the letter that they stay below, if any
    also: str  # and the argument that says which integer is allowed besides

    def lengths(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """The length of each axis; that of `...` is a tuple. Too few, if the shape is."""
        n = len(shape) - len(self.axes) + 1
        return shape if self.axes[:1] != ("...",) else (shape[:n], *shape[n:]) if n >= 0 else ()

    def __str__(self) -> str:
        return f"{self.name} {_in_brackets(self.axes)}"


@dataclass(frozen=True)
class _Option:
    """An argument that is not an array, as declared and annotated."""

    name: str
    default: Any
    optional: bool  # whether it may be None
    kind: str  # how the annotation starts
    plain: type | None  # one of this type from `least` to `most` needs no closer look
    least: float | None = None
    most: float = math.inf
    said: str = ""  # the range in words
    words: tuple[str, ...] = ()
    op: bool = False  # whether a function may stand in place of a word
    letter: str = ""  # of the axis whose length it is

    def check(self, where: str, x: Any) -> Any:
        """x, with a Python float in place of NumPy's; or raise."""
        if self.kind:
            _CHECKS[self.kind](where, self.name, x)
        if self.words and not (x in self.words if isinstance(x, str) else self.op and callable(x)):
            *others, last = (*(f'"{word}"' for word in self.words), *["an op"] * self.op)
            raise ValueError(f"{where}: {self.name} must be {', '.join(others)} or {last}, got {x!r}")
        if self.least is not None and not self.least <= x <= self.most:
            raise ValueError(f"{where}: {self.name} must be {self.said}, got {x}")
        return float(x) if isinstance(x, np.floating) else x


class Declaration:
    """A declaration as a check: `check(args, options)` returns the arguments by name, or raises."""

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        self.where, self.text, self.function = function.__name__, " ".join(text.split()), function
        parameters = inspect.signature(function).parameters
        self.names, self.defaults = tuple(parameters), {name: p.default for name, p in parameters.items()}
        self.required = {name for name, p in parameters.items() if p.default is p.empty and p.kind != p.VAR_KEYWORD}
        arrays: dict[str, _Declared] = {}
        rules: dict[str, dict[str, Any]] = {}
        for entry in filter(None, re.split("; *", self.text)):
            if found := _ARRAY.fullmatch(entry):
                axes = tuple(re.findall(r"[^,\s](?:[^,]*[^,\s])?", found["axes"]))
                kind, broadcasts = (found["kind"] or "").strip(), bool(found["broadcasts"])
                for name in found["names"].split(", "):
                    optional = name in parameters and _may_be_none(parameters[name])
                    arrays[name] = _Declared(name, kind, axes, broadcasts, optional, found["size"], found["also"])
            elif found := _WORDS.fullmatch(entry):
                words = tuple(re.findall(r'"(\w+)"', found["words"]))
                rules[found["name"]] = {"words": words, "op": bool(found["op"])}
            elif found := _LENGTH.fullmatch(entry):
                rules[found["name"]] = {"letter": found["axis"], **_range(None, ">", "0")}
            elif found := _RANGE.fullmatch(entry):
                rules |= dict.fromkeys(found["names"].split(", "), _range(found["low"], found["sign"], found["bound"]))
            else:
                raise ValueError(f"{self.where}: what does {entry!r} declare?")
        if unknown := rules.keys() - parameters.keys():
            raise ValueError(f"{self.where} has no argument {min(unknown)}")
        self.options = []
        for name, p in parameters.items():
            kind = next((kind for kind in _KINDS if _annotation(p).startswith(kind)), "")
            if name not in arrays and _annotation(p).startswith("Array"):
                raise ValueError(f"{self.where}: the axes of {name} are not declared")
            if name not in arrays and (kind or name in rules):
                plain, ends = _KINDS.get(kind, (None, ()))
                rule = dict(zip(("least", "most"), ends, strict=False)) | rules.get(name, {})
                self.options.append(_Option(name, p.default, _may_be_none(p), kind, plain, **rule))
        inputs = [arrays[name] for name in parameters if name in arrays]
        self.floats = [a for a in inputs if not a.kind]
        self.integers = [a for a in inputs if a.kind == "integers"]
        self.shaped = [a for a in inputs if not a.broadcasts and not any(axis[0] == "*" for axis in a.axes)]
        self.broadcasting = [a for a in inputs if a.broadcasts]
        self.products = {axis: a for a in reversed(self.shaped) for axis in a.axes if " " in axis or "·" in axis}

    def __call__(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, with Python floats in place of NumPy's. Most calls take the short path."""
        given = dict(zip(self.names, args, strict=False), **options)
        if len(given) != len(args) + len(options) or not self.required <= given.keys():
            self.function(*args, **options)  # raises Python's own TypeError
        where, lengths = self.where, {}
        for option in self.options:
            x = given.get(option.name, option.default)
            plain = type(x) is option.plain and (option.least is None or option.least <= x <= option.most)  # type: ignore[operator]
            plain = plain or (type(x) is str and x in option.words)
            if not plain and not (x is None and option.optional):
                given[option.name] = x = option.check(self._name(given), x)
            if option.letter:
                lengths[option.letter] = x
        like, dtype = None, None
        for a in self.floats:
            x = given.get(a.name)
            if x is None and a.optional:
                continue
            dtype = getattr(x, "dtype", None) if like is None else dtype
            if type(x) is not np.ndarray or not x.size or x.dtype != dtype or x.dtype.kind != "f":
                self._check_floats(given)
                like = x
                break
            like = x
        for a in self.integers:
            x = given.get(a.name)
            if type(x) is np.ndarray and type(like) is np.ndarray and x.size and x.dtype.kind in "iu":
                continue
            if x is not None or not a.optional:
                check_integer_array(where, a.name, x, like)
        sizes = lengths.copy()
        for a in self.shaped:
            x = given.get(a.name)
            if x is None:
                continue
            axes, shape = a.axes, x.shape
            if axes[:1] == ("...",):
                n = len(shape) - len(axes) + 1
                shape = (shape[:n], *shape[n:]) if n >= 0 else ()
            if len(shape) != len(axes):
                self._refuse(a, given, sizes)
            for axis, length in zip(axes, shape, strict=True):
                if lengths.setdefault(axis, length) != length:
                    self._refuse(a, given, sizes)
        for axis in self.products:
            self._divide(axis, given, lengths)
        for a in self.broadcasting:
            if (x := given.get(a.name)) is not None or not a.optional:
                self._broadcast(a, x, lengths, like)
        for a in self.integers:
            if a.size and given.get(a.name) is not None:
                also = given.get(a.also, self.defaults.get(a.also))
                check_range_of_ids(where, a.name, given[a.name], lengths[a.size], also)
        return given

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

    def _check_floats(self, given: Mapping[str, Any]) -> None:
        arrays = {a.name: given.get(a.name) for a in self.floats if not a.optional or given.get(a.name) is not None}
        check_floats(self.where, **arrays)

    def _broadcast(self, a: _Declared, x: Any, lengths: dict[str, Any], like: Array) -> None:
        """Require an array that broadcasts to its axes. A letter that no other array has is free."""
        if a.axes[-1] not in lengths:
            lengths[a.axes[-1]] = x.shape[-1] if x.ndim else 1
        wanted = _flat(lengths[axis] for axis in a.axes)
        if a.kind == "booleans":
            check_mask(self.where, x, wanted, like)
        else:
            check_broadcasts(self.where, a.name, x, wanted)

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

    def _refuse(self, array: _Declared, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        """Raise the error that says which axis does not fit."""
        where, name, shape = self.where, array.name, given[array.name].shape
        known: dict[str, Any] = dict(sizes)
        first: dict[str, _Declared] = {}
        for other in self.shaped[: self.shaped.index(array)]:
            if given.get(other.name) is not None:
                for axis, length in zip(other.axes, other.lengths(given[other.name].shape), strict=True):
                    known.setdefault(axis, length)
                    first.setdefault(axis, other)
        parts, axes = array.lengths(shape), _in_brackets(array.axes)
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


def _in_brackets(axes: tuple[str, ...]) -> str:
    return f"({', '.join(axes)}{',' if len(axes) == 1 and axes != ('...',) else ''})"


def _flat(lengths: Iterable[Any]) -> tuple[int, ...]:
    """A shape from the lengths of its axes; the length of `...` is a tuple."""
    return tuple(n for length in lengths for n in (length if isinstance(length, tuple) else (length,)))


def _annotation(parameter: inspect.Parameter) -> str:
    kind = parameter.annotation
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _may_be_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is None or _annotation(parameter).endswith("| None")


def _range(low: str | None, sign: str, bound: str) -> dict[str, Any]:
    """The range of a number, both ends included, and the same in words."""
    limit = float(bound)
    if sign in (">", ">="):
        least = limit if sign == ">=" else math.nextafter(limit, math.inf)
        return {"least": least, "said": f"{'at least' if sign == '>=' else 'greater than'} {bound}"}
    least, most = float(low or "-inf"), limit if sign == "<=" else math.nextafter(limit, -math.inf)
    said = f"from {low} to {bound}" if sign == "<=" else f"at least {low} and below {bound}"
    return {"least": least, "most": most, "said": said}


def _function(where: str, name: str, x: Any) -> None:
    if not callable(x):
        raise TypeError(f"{where}: {name} must be an op such as ops.silu, got {type(x).__name__}")


_KINDS: dict[
    str, tuple[type | None, tuple[float, ...]]
] = {  # how an annotation starts: the type, and the ends of its range
    "int": (int, (-math.inf, math.inf)),
    "float": (float, (-sys.float_info.max, sys.float_info.max)),
    "bool": (bool, (0, 1)),
    "np.random.Generator": (np.random.Generator, ()),
    "Callable": (None, ()),
}
_CHECKS: dict[str, Callable[..., None]] = {
    "int": lambda where, name, x: check_integers(where, **{name: x}),
    "float": check_number,
    "bool": lambda where, name, x: check_flags(where, **{name: x}),
    "np.random.Generator": lambda where, name, x: check_generator(where, x),
    "Callable": _function,
}
