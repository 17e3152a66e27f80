"""What a declaration says, read into arrays and options.

The entries of a declaration are separated by `;`:

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

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .boundary import check_flags, check_generator, check_integers, check_number

_ARRAY = re.compile(
    r"(?P<names>\w+(?:, \w+)*): (?P<kind>integers |booleans )?(?P<broadcasts>(?:that broadcast|broadcasts) to )?"
    r"\((?P<axes>[^()]*)\)(?: < (?P<size>\w+))?(?: or (?P<also>\w+))?(?:, or \(\.\.\.\))?"
)
_WORDS = re.compile(r'(?P<name>\w+): (?P<words>"\w+"(?: or "\w+")*)(?P<op> or an op)?')
_LENGTH = re.compile(r"(?P<name>\w+): (?P<axis>\w+)")
_RANGE = re.compile(r"(?:(?P<low>[\d.]+) <= )?(?P<names>\w+(?:, \w+)*) (?P<sign>>=|>|<=|<) (?P<bound>[\d.]+)")


@dataclass(frozen=True)
class DeclaredArray:
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
        return f"{self.name} {in_brackets(self.axes)}"


@dataclass(frozen=True)
class DeclaredOption:
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


def parsed(
    where: str, text: str, parameters: Mapping[str, inspect.Parameter]
) -> tuple[dict[str, DeclaredArray], dict[str, dict[str, Any]]]:
    """The arrays that a text declares, and its rules for other arguments, by name."""
    arrays: dict[str, DeclaredArray] = {}
    rules: dict[str, dict[str, Any]] = {}
    for entry in filter(None, re.split("; *", text)):
        if found := _ARRAY.fullmatch(entry):
            axes = tuple(re.findall(r"[^,\s](?:[^,]*[^,\s])?", found["axes"]))
            kind, broadcasts = (found["kind"] or "").strip(), bool(found["broadcasts"])
            for name in found["names"].split(", "):
                optional = name in parameters and _may_be_none(parameters[name])
                arrays[name] = DeclaredArray(name, kind, axes, broadcasts, optional, found["size"], found["also"])
        elif found := _WORDS.fullmatch(entry):
            words = tuple(re.findall(r'"(\w+)"', found["words"]))
            rules[found["name"]] = {"words": words, "op": bool(found["op"])}
        elif found := _LENGTH.fullmatch(entry):
            rules[found["name"]] = {"letter": found["axis"], **_range(None, ">", "0")}
        elif found := _RANGE.fullmatch(entry):
            rules |= dict.fromkeys(found["names"].split(", "), _range(found["low"], found["sign"], found["bound"]))
        else:
            raise ValueError(f"{where}: what does {entry!r} declare?")
    if unknown := rules.keys() - parameters.keys():
        raise ValueError(f"{where} has no argument {min(unknown)}")
    return arrays, rules


def options_of(
    where: str, parameters: Mapping[str, inspect.Parameter], arrays: Mapping[str, Any], rules: Mapping[str, Any]
) -> Iterator[DeclaredOption]:
    """The arguments that are no arrays, as their annotations and these rules declare them."""
    for name, p in parameters.items():
        kind = next((kind for kind in _KINDS if _annotation(p).startswith(kind)), "")
        if name not in arrays and _annotation(p).startswith("Array"):
            raise ValueError(f"{where}: the axes of {name} are not declared")
        if name not in arrays and (kind or name in rules):
            plain, ends = _KINDS.get(kind, (None, ()))
            rule = dict(zip(("least", "most"), ends, strict=False)) | rules.get(name, {})
            yield DeclaredOption(name, p.default, _may_be_none(p), kind, plain, **rule)


def in_brackets(axes: tuple[str, ...]) -> str:
    """Axes as Python writes a shape: "(B, T)", and "(n,)" for one."""
    return f"({', '.join(axes)}{',' if len(axes) == 1 and axes != ('...',) else ''})"


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
    "Rng": (np.random.Generator, ()),
    "Callable": (None, ()),
}
_CHECKS: dict[str, Callable[..., None]] = {
    "int": lambda where, name, x: check_integers(where, **{name: x}),
    "float": check_number,
    "bool": lambda where, name, x: check_flags(where, **{name: x}),
    "Rng": lambda where, name, x: check_generator(where, x),
    "Callable": _function,
}
