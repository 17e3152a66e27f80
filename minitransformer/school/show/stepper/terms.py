"""Arithmetic with its numbers still in it, a term: its value, and how a reader sees it.

    Operation("*", (Operation("+", (2·2, 2·3, 2·1)), Number(0.7071)))   is  (2·2 + 2·3 + 2·1)·0.7071

There are brackets only where the order of operations needs them.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .expressions import Applied, Expression, Number, Operation

Term: TypeAlias = Expression  # only of numbers, operations and functions

# Of each operator: how tightly it binds, as in Python, what it computes, its sign. Equal ones are done from the left.
OPERATORS: dict[str, tuple[int, Callable[..., Any], str]] = {
    ">": (1, operator.gt, " > "), ">=": (1, operator.ge, " ≥ "), "<": (1, operator.lt, " < "),
    "<=": (1, operator.le, " ≤ "), "==": (1, operator.eq, " = "), "!=": (1, operator.ne, " ≠ "),
    "&": (2, operator.and_, " & "), "+": (3, operator.add, " + "), "-": (3, operator.sub, " − "),
    "*": (4, operator.mul, "·"), "/": (4, operator.truediv, " / "), "negative": (5, operator.neg, "−"),
    "**": (6, operator.pow, "^"),
}  # fmt: skip
_AND, _PRODUCT, _NEGATIVE, _ATOM = 2, 4, 5, 7
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name) for name in "abs exp log sqrt tanh sin cos floor ceil".split()
} | {"erf": math.erf, "erfc": math.erfc}
_OF_SEVERAL: dict[str, Callable[..., Any]] = {"max": max, "min": min}
_OF_SEVERAL["where"] = lambda test, one, other: one if test else other
LONGEST = 12  # a sum with more terms shows only its first terms and its last
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def total(parts: tuple[Term, ...]) -> Term:
    """The sum of the parts, in their order."""
    if not parts:
        return Number(0.0)
    return parts[0] if len(parts) == 1 else Operation("+", parts)


def joined(symbol: str, left: Term, right: Term) -> Term:
    """Two terms with an operator between them. (a + b) + c becomes a + b + c, which is computed in the same order."""
    if symbol in "+*" and isinstance(left, Operation) and left.symbol == symbol:
        return Operation(symbol, (*left.parts, right))
    return Operation(symbol, (left, right))


@np.errstate(all="ignore")
def evaluate(term: Term, value: Callable[[Number], Any] = operator.attrgetter("value")) -> Any:
    """The number that a term computes. As in arrays, 1 / 0 is infinite. value: of each number in it."""
    if isinstance(term, Number):
        number = value(term)
        return number if isinstance(number, bool) else np.float64(number)
    assert isinstance(term, Operation | Applied)
    parts = (evaluate(part, value) for part in term.parts)
    if isinstance(term, Applied):
        return (FUNCTIONS | _OF_SEVERAL)[term.name](*parts)
    compute = OPERATORS[term.symbol][1]
    return compute(*parts) if term.symbol == "negative" else functools.reduce(compute, parts)


def pretty(term: Term) -> str:
    """The term for a reader, with four digits: 2·3 + 8·(−0.5)."""
    return _pretty(term)[0]


def _pretty(term: Term) -> tuple[str, int]:
    if isinstance(term, Number):
        text = readable(term.value)
        return text, _NEGATIVE if text.startswith("−") else _PRODUCT if "·" in text else _ATOM
    assert isinstance(term, Operation | Applied)
    parts = _some(term.parts)
    if isinstance(term, Applied):
        return f"{term.name}({', '.join(text for text, _ in parts)})", _ATOM
    strength, _, sign = OPERATORS[term.symbol]
    if term.symbol == "negative":
        return f"−{_bracketed(*parts[0], strength + 1)}", strength
    written = ""
    for i, (text, own) in enumerate(parts):
        if i == 0:
            written = _bracketed(text, own, strength + (term.symbol == "**"))
        elif term.symbol == "+" and text.startswith("−") and own > strength:
            written += f" − {text[1:]}"
        elif text.startswith("−") and strength > _AND:
            written += f"{sign}({text})"
        elif term.symbol == "*" and isinstance(term.parts[i], Number):
            written += sign + text  # a power of ten needs no brackets among factors
        else:
            written += sign + _bracketed(text, own, strength + 1)
    return written, strength


def _some(parts: tuple[Term, ...]) -> list[tuple[str, int]]:
    """The parts as texts; if there are too many, the first ones, how many are left out, and the last."""
    if len(parts) <= LONGEST:
        return list(map(_pretty, parts))
    first = LONGEST // 2
    return [*map(_pretty, parts[:first]), (f"… {len(parts) - first - 1} more …", _ATOM), _pretty(parts[-1])]


def _bracketed(text: str, own: int, needed: int) -> str:
    return text if own >= needed else f"({text})"


def readable(number: bool | int | float) -> str:
    """A number with four significant digits: 2, −0.7071, 6.03·10⁻⁶, −∞. True and False are 1 and 0."""
    if isinstance(number, int):
        return str(int(number)).replace("-", "−")
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    if number == 0.0:
        return "0"  # also −0
    sign = "−" if number < 0 else ""
    mantissa, _, exponent = f"{abs(number):.4g}".partition("e")
    if not exponent:
        return sign + mantissa
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return sign + (power if mantissa == "1" else f"{mantissa}·{power}")
