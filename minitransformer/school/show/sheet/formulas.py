"""A term as the formula of a cell, in the few forms that a class can read, and that every spreadsheet computes.

    (2·3 + 2·1)·0.7071    is  =SUMPRODUCT(B5:C5,B9:C9)*factor

A sum of products of two rows, or of two columns, is a SUMPRODUCT, a sum of neighbours a SUM, and any other sum is
written out: a row times a column would need an array formula.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..stepper.expressions import Applied, Number, Operation
from ..stepper.terms import Term

Cell = tuple[int, int]  # row and column on the sheet, from 0
Where = Callable[[Number], Cell | None]  # None for a constant
Written = Callable[[Cell], str]

MINUS_INFINITY = -1e300  # spreadsheets have no infinity; the exponential of this is 0 as well
LONGEST = 8192  # characters that Excel allows

# How tightly an operator binds. Unlike in Python a minus sign binds more tightly than a power, so it gets brackets.
_STRENGTH = {">": 1, ">=": 1, "<": 1, "<=": 1, "==": 1, "!=": 1, "+": 3, "-": 3, "*": 4, "/": 4, "**": 5, "negative": 6}
_SIGN = {"**": "^", "==": "=", "!=": "<>"}
_COMPARES = (">", ">=", "<", "<=", "==", "!=")
_FUNCTIONS = {"log": "LN", "floor": "INT"} | {
    name: name.upper() for name in "abs exp sqrt tanh sin cos erf erfc max min".split()
}
_ATOM = 7


def formula(term: Term, where: Where, written: Written) -> str:
    """The formula. where: the cell of each number; written: the address or the name of a cell."""
    return f"={_Writer(where, written).text(term)[0]}"


class _Writer:
    def __init__(self, where: Where, written: Written) -> None:
        self.where, self.written = where, written

    def text(self, term: Term) -> tuple[str, int]:
        """The text, and how tightly it binds."""
        if isinstance(term, Number):
            cell = self.where(term)
            return (self.written(cell), _ATOM) if cell is not None else constant(term.value)
        assert isinstance(term, Operation | Applied)
        if isinstance(term, Applied) and term.name == "where":
            test, one, other = term.parts
            return f"IF({self._test(test)},{self.text(one)[0]},{self.text(other)[0]})", _ATOM
        if isinstance(term, Applied) and term.name == "ceil":
            down = Applied("floor", (Operation("negative", term.parts),))
            return self.text(Operation("negative", (down,)))
        if isinstance(term, Applied):
            run = self._run(term.parts)
            parts = [run] if run else [self.text(part)[0] for part in term.parts]
            return f"{_FUNCTIONS[term.name]}({','.join(parts)})", _ATOM
        if term.symbol in _COMPARES:
            return f"IF({self._test(term)},1,0)", _ATOM
        if term.symbol == "&":
            return "*".join(self._bracketed(part, 4) for part in term.parts), 4  # of zeros and ones
        strength = _STRENGTH[term.symbol]
        if term.symbol == "negative":
            return f"-{self._bracketed(term.parts[0], _ATOM)}", strength
        if term.symbol == "+":
            pieces = list(self._pieces(term.parts))
        else:
            kept = [part for i, part in enumerate(term.parts) if not self._changes_nothing(term.symbol, part, i)]
            if len(kept) < 2:
                return self.text((kept or term.parts)[0])
            first = self._bracketed(kept[0], _ATOM if term.symbol == "**" else strength)
            pieces = [first, *(self._bracketed(part, strength + 1, first=False) for part in kept[1:])]
        sign = _SIGN.get(term.symbol, term.symbol)
        joined = pieces[0]
        for piece in pieces[1:]:
            joined += piece if piece.startswith("-") else sign + piece  # a + (-b) is a - b
        return joined, strength if len(pieces) > 1 else _ATOM

    def _test(self, term: Term) -> str:
        """What an IF asks."""
        if isinstance(term, Operation) and term.symbol in _COMPARES:
            left, right = (self._bracketed(part, 2) for part in term.parts)
            return f"{left}{_SIGN.get(term.symbol, term.symbol)}{right}"
        return f"{self._bracketed(term, 2)}=1"

    def _bracketed(self, term: Term, needed: int, first: bool = True) -> str:
        text, own = self.text(term)
        return text if own >= needed and (first or not text.startswith("-")) else f"({text})"

    def _changes_nothing(self, symbol: str, part: Term, place: int) -> bool:
        """Whether it is a factor of 1, or divides by 1."""
        is_one = isinstance(part, Number) and self.where(part) is None and part.value == 1
        return is_one and (symbol == "*" or (symbol == "/" and place > 0))

    def _pieces(self, parts: Sequence[Term]) -> Any:
        """A sum in pieces: as many neighbours as there are in each SUMPRODUCT or SUM."""
        i = 0
        while i < len(parts):
            for end in range(len(parts), i + 1, -1):
                if piece := self._together(parts[i:end]):
                    break
            else:
                piece, end = self._bracketed(parts[i], 3 if i == 0 else 4), i + 1
            yield piece
            i = end

    def _together(self, parts: Sequence[Term]) -> str | None:
        if run := self._run(parts):
            return f"SUM({run})"
        pairs = [part.parts for part in parts if isinstance(part, Operation) and part.symbol == "*"]
        if len(pairs) == len(parts) and all(len(pair) == 2 for pair in pairs):
            left, right = self._run([pair[0] for pair in pairs]), self._run([pair[1] for pair in pairs])
            if left and right and self._is_row([p[0] for p in pairs]) == self._is_row([p[1] for p in pairs]):
                return f"SUMPRODUCT({left},{right})"
        return None

    def _cells(self, parts: Sequence[Term]) -> list[Cell]:
        cells = [self.where(part) if isinstance(part, Number) else None for part in parts]
        return [cell for cell in cells if cell is not None] if None not in cells else []

    def _is_row(self, parts: Sequence[Term]) -> bool:
        (a, *_), (b, *_) = self._cells(parts)[:2]
        return a == b

    def _run(self, parts: Sequence[Term]) -> str | None:
        """The range of cells that lie one after the other in a row or a column, in this order."""
        cells = self._cells(parts)
        if len(cells) < 2:
            return None
        (row, column), (below, beside) = cells[0], cells[1]
        down, right = below - row, beside - column
        if (down, right) not in ((0, 1), (1, 0)):
            return None
        if any(cell != (row + n * down, column + n * right) for n, cell in enumerate(cells)):
            return None
        return f"{self.written(cells[0])}:{self.written(cells[-1])}"


def constant(value: float) -> tuple[str, int]:
    """A number as a formula has it, and how tightly it binds."""
    if isinstance(value, bool):
        return str(int(value)), _ATOM
    number = MINUS_INFINITY if value == -math.inf else value
    text = repr(int(number) if float(number).is_integer() and abs(number) < 1e15 else float(number)).upper()
    return (text, _ATOM) if number >= 0 else (text, 6)
