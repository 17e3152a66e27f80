"""What a function accepts, declared in one line and checked before every call. So its body is mathematics alone.

    @op("x: (..., in); weight: (in, out); bias: (out,); y: (..., out)")
    def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Pullback]:

The line stands in the docstring too. Equal letters are equal lengths, and `...` is any number of leading axes. A name
that is no argument is the output's. The annotations say the rest: what is an integer, a number, a flag or a generator,
and what may be None. The entries, which `;` separates:

    q, k: (..., T, d)                       arrays of floats, all of one dtype and on one device
    x: (..., T, H·d); weight: (H, 3 H)      an axis may be a product
    ids: integers (...) < V                 from 0 to V - 1; `< V or ignore_index` allows one number more
    mask: booleans that broadcast to (..., T)
    bias: broadcasts to (..., T_q, T_k)     floats
    n_heads: H                              an integer above 0, the length of an axis
    eps > 0;  0 <= rate < 1                 the range of a number
    reduction: "mean" or "sum"              one of these words
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
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
    check_positive,
    check_range_of_ids,
)
from .boundary import op as bare

F = TypeVar("F", bound=Callable[..., Any])

_ARRAY = re.compile(
    r"(?P<names>\w+(?:, \w+)*): (?P<kind>integers |booleans )?(?P<broadcasts>(?:that broadcast|broadcasts) to )?"
    r"\((?P<axes>[^()]*)\)(?: < (?P<size>\w+))?(?: or (?P<also>\w+))?(?:, or \(\.\.\.\))?"
)
_WORDS = re.compile(r'(?P<name>\w+): (?P<words>"\w+"(?: or "\w+")*)')
_LENGTH = re.compile(r"(?P<name>\w+): (?P<axis>\w+)")
_RANGE = re.compile(r"(?:(?P<low>[\d.]+) <= )?(?P<name>\w+) (?P<sign>>=|>|<=|<) (?P<bound>[\d.]+)")
_COUNTS = ("no axis", "one axis", "two axes", "three axes", "four axes")
_REQUIRED = inspect.Parameter.empty


def op(text: Any) -> Any:
    """Declare a function of arrays that returns `(y, backward)`.

    It refuses what does not fit the declaration, and its pullback refuses a gradient that does not fit y. Without this
    a gradient of another shape could broadcast unnoticed, and one of another dtype would promote every gradient below
    it. For the same reason NumPy's float scalars become Python floats: `np.sqrt(64)` is a float64 and would promote
    float32 arrays, but the Python float 8.0 adopts their dtype.

    Neither the inputs nor the output may change before backward: a pullback may need them. Copy what you write to.
    """
    if callable(text):
        return bare(text)  # TODO: until the later ops have moved

    def declared(function: F) -> F:
        check = Declaration(text, function)

        @functools.wraps(function)
        def forward(*args: Any, **options: Any) -> tuple[Array, Pullback]:
            y, pullback = function(**check(args, options))
            return y, guarded(check.where, y, pullback)

        forward.check = check  # type: ignore[attr-defined]
        forward.__doc__ = check.described(function.__doc__)
        return forward  # type: ignore[return-value]

    return declared


def declared(text: str = "") -> Callable[[F], F]:
    """Declare what any other function accepts, or a class when it is made: `@declared("d_in > 0")` at `__init__`."""

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
    shape, dtype, xp = y.shape, y.dtype, np if type(y) is np.ndarray else array_module(y)

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


class Declaration:
    """A declaration as a check: `check(args, options)` returns the arguments by name, or raises."""

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        owner, _, name = function.__qualname__.rpartition(".")
        self.where = owner.rpartition(".")[2] if name == "__init__" else name
        self.text, self.function = " ".join(text.split()), function
        parameters = inspect.signature(function).parameters
        self.defaults = {name: p.default for name, p in parameters.items()}
        self.names = tuple(parameters)
        self.required = {name for name, default in self.defaults.items() if default is _REQUIRED}
        arrays: dict[str, _Declared] = {}
        letters: dict[str, str] = {}
        rules: dict[str, Callable[..., Any]] = {}
        for entry in filter(None, re.split("; *", self.text)):
            if found := _ARRAY.fullmatch(entry):
                axes = tuple(re.findall(r"[^,\s](?:[^,]*[^,\s])?", found["axes"]))
                kind, broadcasts = (found["kind"] or "").strip(), bool(found["broadcasts"])
                for name in found["names"].split(", "):
                    optional = name in parameters and _may_be_none(parameters[name])
                    arrays[name] = _Declared(name, kind, axes, broadcasts, optional, found["size"], found["also"])
            elif found := _WORDS.fullmatch(entry):
                rules[found["name"]] = functools.partial(_one_of, words=re.findall(r'"\w+"', found["words"]))
            elif found := _LENGTH.fullmatch(entry):
                letters[found["name"]], rules[found["name"]] = found["axis"], _positive
            elif found := _RANGE.fullmatch(entry):
                rules[found["name"]] = functools.partial(_within, **_bounds(**found.groupdict()))
            else:
                raise ValueError(f"{self.where}: what does {entry!r} declare?")
        if unknown := rules.keys() - parameters.keys():
            raise ValueError(f"{self.where} has no argument {sorted(unknown)[0]}")
        self.options = []  # what is no array: name, may it be None, checks, the letter whose length it is
        for name, p in parameters.items():
            checks = [check for kind, check in _KINDS.items() if _annotation(p).startswith(kind)]
            checks += [rules[name]] if name in rules else []
            if name in arrays:
                continue
            if _annotation(p).startswith("Array"):
                raise ValueError(f"{self.where}: the axes of {name} are not declared")
            if checks:
                self.options.append((name, _may_be_none(p), checks, letters.get(name)))
        inputs = [arrays[name] for name in parameters if name in arrays]
        self.floats = [a for a in inputs if not a.kind]
        self.integers = [a for a in inputs if a.kind == "integers"]
        self.shaped = [a for a in inputs if not a.broadcasts]
        self.broadcasting = [a for a in inputs if a.broadcasts]
        self.products = {axis: a for a in reversed(self.shaped) for axis in a.axes if " " in axis or "·" in axis}

    def __call__(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, with Python floats in place of NumPy's. Nearly every call takes no step aside."""
        given = dict(zip(self.names, args, strict=False), **options)
        if len(given) != len(args) + len(options) or not self.required <= given.keys():
            self.function(*args, **options)  # raises Python's own TypeError
        where, lengths = self.where, {}
        for name, optional, checks, letter in self.options:
            default = self.defaults[name]
            x = given.get(name, default)
            if (type(x) is not type(default) or x != default) and not (optional and x is None):
                for check in checks:
                    x = check(where, name, x)
                given[name] = x
            if letter:
                lengths[letter] = x
        like, dtype = None, None
        for a in self.floats:
            x = given.get(a.name)
            if x is None and a.optional:
                continue
            if type(x) is not np.ndarray or not x.size or x.dtype != (dtype or x.dtype) or x.dtype.kind != "f":
                self._check_floats(given)
                like = x
                break
            like, dtype = x, x.dtype
        for a in self.integers:
            if given.get(a.name) is not None or not a.optional:
                check_integer_array(where, a.name, given[a.name], like)
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
        factors = re.split("[ ·]", axis)
        unknown = [x for x in factors if not x.isdigit() and x not in lengths]
        known = [int(x) if x.isdigit() else lengths[x] for x in factors if x not in unknown]
        if unknown and lengths[axis] % math.prod(known) == 0:
            lengths[unknown[0]] = lengths[axis] // math.prod(known)
        elif unknown or lengths[axis] != math.prod(known):
            array = self.products[axis]
            divisor = " · ".join(x if x.isdigit() else f"{x} = {lengths[x]}" for x in factors if x not in unknown)
            wanted = f"a multiple of {divisor}" if unknown else math.prod(known)
            came = f"it is {lengths[axis]}; the shape is {given[array.name].shape}"
            raise ValueError(f"{self.where}: the axis {axis} of {array} must be {wanted}, but {came}")

    def _refuse(self, array: _Declared, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        """Raise the error that says which axis does not fit."""
        where, name, shape = self.where, array.name, given[array.name].shape
        known: dict[str, Any] = dict(sizes)
        first: dict[str, _Declared | None] = dict.fromkeys(sizes)
        for other in self.shaped[: self.shaped.index(array)]:
            if given.get(other.name) is not None:
                for axis, length in zip(other.axes, other.lengths(given[other.name].shape), strict=True):
                    known.setdefault(axis, length)
                    first.setdefault(axis, other)
        if all(axis in known for axis in array.axes):
            wanted, others = _flat(known[axis] for axis in array.axes), dict.fromkeys(first[a] for a in array.axes)
            came = " and ".join(f"{other}, whose shape is {given[other.name].shape}" for other in others if other)
            raise ValueError(f"{where}: {name} must have shape {wanted}, got {shape}; {array} must fit {came}")
        parts, axes = array.lengths(shape), _in_brackets(array.axes)
        if len(parts) != len(array.axes):
            n = len(array.axes) - (array.axes[0] == "...")
            least = "at least " if array.axes[0] == "..." else ""
            raise ValueError(f"{where}: {name} must have {least}{_COUNTS[n]} {axes}, got shape {shape}")
        wrong = next(axis for axis, n in zip(array.axes, parts, strict=True) if known.setdefault(axis, n) != n)
        if (theirs := first.get(wrong)) is None:
            raise ValueError(f"{where}: {name} must have the shape {axes}, got {shape}")
        what = "the leading axes" if wrong == "..." else f"the axis {wrong}"
        came = f"{given[theirs.name].shape} and {shape}"
        raise ValueError(f"{where}: {what} must be the same in {theirs} and {array}, got the shapes {came}")


def _in_brackets(axes: tuple[str, ...]) -> str:
    return f"({', '.join(axes)}{',' if len(axes) == 1 and axes != ('...',) else ''})"


def _flat(lengths: Iterable[Any]) -> tuple[int, ...]:
    """A shape from the lengths of axes, of which that of `...` is a tuple."""
    return tuple(n for length in lengths for n in (length if isinstance(length, tuple) else (length,)))


def _annotation(parameter: inspect.Parameter) -> str:
    kind = parameter.annotation
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _may_be_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is None or _annotation(parameter).endswith("| None")


# Checks of one argument, which return it.


def _integer(where: str, name: str, x: Any) -> Any:
    check_integers(where, **{name: x})
    return x


def _number(where: str, name: str, x: Any) -> Any:
    check_number(where, name, x)
    return float(x) if isinstance(x, np.floating) else x


def _flag(where: str, name: str, x: Any) -> Any:
    check_flags(where, **{name: x})
    return x


def _generator(where: str, name: str, x: Any) -> Any:
    check_generator(where, x)
    return x


def _function(where: str, name: str, x: Any) -> Any:
    if not callable(x):
        raise TypeError(f"{where}: {name} must be an op such as ops.relu, got {type(x).__name__}")
    return x


def _positive(where: str, name: str, x: Any) -> Any:
    check_positive(where, **{name: x})
    return x


def _one_of(where: str, name: str, x: Any, words: list[str]) -> Any:
    if not isinstance(x, str) or f'"{x}"' not in words:
        *most, last = words
        raise ValueError(f"{where}: {name} must be {', '.join(most)} or {last}, got {x!r}")
    return x


def _within(where: str, name: str, x: Any, fits: Callable[[Any], bool], words: str) -> Any:
    if not fits(x):
        raise ValueError(f"{where}: {name} must be {words}, got {x}")
    return x


def _bounds(low: str | None, name: str, sign: str, bound: str) -> dict[str, Any]:
    """A range as a function and in words."""
    compare, least, limit = _SIGNS[sign], float(low or "-inf"), float(bound)
    words = f"{_SAID[sign]} {bound}" if low is None else f"{'at least' if sign == '<' else 'from'} {low}"
    words += "" if low is None else f" {'and below' if sign == '<' else 'to'} {bound}"
    return {"fits": lambda x: least <= x and compare(x, limit), "words": words}


_SIGNS: dict[str, Callable[..., bool]] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_SAID = {">": "greater than", ">=": "at least", "<": "below", "<=": "at most"}


_KINDS: dict[str, Callable[..., Any]] = {
    "int": _integer,
    "float": _number,
    "bool": _flag,
    "np.random.Generator": _generator,
    "Callable": _function,
}
