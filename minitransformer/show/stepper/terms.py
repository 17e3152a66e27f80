"""Arithmetic with its numbers still in it, a term, written as Python or for a reader.

    Operation("*", (Operation("+", (2·2, 2·3, 2·1)), Number(0.7071)))   is  (2·2 + 2·3 + 2·1)·0.7071

There are brackets only where the order of operations needs them.
"""

from __future__ import annotations

import ast
import math
from typing import Any, TypeAlias

import numpy as np

from .expressions import Applied, Expression, Number, Operation

Term: TypeAlias = Expression  # only of numbers, operations and functions

# How tightly each operator binds, as in Python. Equal ones are done from the left, powers from the right.
STRENGTH = {symbol: 1 for symbol in (">", ">=", "<", "<=", "==", "!=")} | {"&": 2, "+": 3, "-": 3, "*": 4, "/": 4}
STRENGTH |= {"negative": 5, "**": 6}
_ATOM = 7
_SIGNS = {"+": " + ", "-": " − ", "*": "·", "/": " / ", "**": "^", "==": " = ", "!=": " ≠ ", ">=": " ≥ ", "<=": " ≤ "}
LONGEST = 12  # a sum with more terms shows only its first terms and its last
_KNOWN: dict[str, Any] = {name: getattr(np, name) for name in "exp log sqrt tanh sin cos float64 inf nan".split()}
_KNOWN |= {"abs": abs, "erf": math.erf, "erfc": math.erfc, "max": max, "min": min}
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


def exact(term: Term) -> str:
    """The term as Python code that evaluates to its number."""
    return _exact(term)[0]


def _exact(term: Term) -> tuple[str, int]:
    if isinstance(term, Number):
        text = repr(term.value)
        return text, STRENGTH["negative"] if text.startswith("-") else _ATOM
    assert isinstance(term, Operation | Applied)
    parts = [_exact(part) for part in term.parts]
    if isinstance(term, Applied):
        return f"{term.name}({', '.join(text for text, _ in parts)})", _ATOM
    strength = STRENGTH[term.symbol]
    if term.symbol == "negative":
        return f"-{_bracketed(*parts[0], strength)}", strength
    sides = [_bracketed(*part, strength + (i > 0 or term.symbol == "**")) for i, part in enumerate(parts)]
    return f" {term.symbol} ".join(sides), strength


def pretty(term: Term) -> str:
    """The term for a reader, with four digits: 2·3 + 8·(−0.5)."""
    return _pretty(term)[0]


def _pretty(term: Term) -> tuple[str, int]:
    if isinstance(term, Number):
        text = readable(term.value)
        return text, STRENGTH["negative"] if text.startswith("−") else STRENGTH["*"] if "·" in text else _ATOM
    assert isinstance(term, Operation | Applied)
    parts = _some(term.parts)
    if isinstance(term, Applied):
        return f"{term.name}({', '.join(text for text, _ in parts)})", _ATOM
    strength = STRENGTH[term.symbol]
    if term.symbol == "negative":
        return f"−{_bracketed(*parts[0], strength + 1)}", strength
    sign = _SIGNS.get(term.symbol, f" {term.symbol} ")
    written = ""
    for i, (text, own) in enumerate(parts):
        if i == 0:
            written = _bracketed(text, own, strength + (term.symbol == "**"))
        elif term.symbol == "+" and text.startswith("−") and own > strength:
            written += f" − {text[1:]}"
        elif text.startswith("−") and strength > STRENGTH["&"]:
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


class _Numbers(ast.NodeTransformer):
    """Turns constants into NumPy numbers, which divide by zero as arrays do."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return node
        return ast.copy_location(ast.Call(ast.Name("float64", ast.Load()), [node], []), node)


def evaluate(text: str) -> float:
    """The value of a text that `exact` made."""
    tree = ast.fix_missing_locations(_Numbers().visit(ast.parse(text, mode="eval")))
    with np.errstate(all="ignore"):
        return float(eval(compile(tree, "<expansion>", "eval"), {"__builtins__": {}}, _KNOWN))
