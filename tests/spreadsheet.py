"""A small spreadsheet: it reads an .xlsx file and computes its formulas, of the few forms that the sheets have.

It shares no code with what writes them. A form that it does not know is an error. What a spreadsheet shows as an error
is NaN, and an empty cell is zero.
"""

import io
import math
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:E[+-]?\d+)?)|(?P<text>\"[^\"]*\")|(?P<function>[A-Z]+)(?=\()"
    r"|(?P<sheet>'[^']+'|\w+)!|(?P<cell>\$?[A-Z]{1,3}\$?\d+)(?![\w(])|(?P<name>[A-Za-z_]\w*)|(?P<sign><>|<=|>=|.))"
)
COMPARE = {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
}  # fmt: skip
ONE = {
    "EXP": math.exp,
    "SQRT": math.sqrt,
    "TANH": math.tanh,
    "LN": math.log,
    "ABS": abs,
    "SIN": math.sin,
    "INT": math.floor,
}
ONE |= {"COS": math.cos, "ERF": math.erf, "ERFC": math.erfc, "ISNUMBER": lambda x: isinstance(x, int | float)}


def cell_of(address: str) -> tuple[int, int]:
    """Row and column, from 1."""
    letters, digits = re.fullmatch(r"\$?([A-Z]+)\$?(\d+)", address).groups()
    column = 0
    for letter in letters:
        column = 26 * column + ord(letter) - 64
    return int(digits), column


class Spreadsheet:
    """.given: by sheet and cell, the numbers and texts; .formulas likewise; .stored: the results in the file."""

    def __init__(self, content: bytes | Path) -> None:
        self.given: dict[tuple[str, int, int], Any] = {}
        self.formulas: dict[tuple[str, int, int], str] = {}
        self.stored: dict[tuple[str, int, int], Any] = {}
        with zipfile.ZipFile(io.BytesIO(content) if isinstance(content, bytes) else content) as file:
            self.files = file.namelist()
            book = ElementTree.fromstring(file.read("xl/workbook.xml"))
            texts = ElementTree.fromstring(file.read("xl/sharedStrings.xml"))
            self.texts = ["".join(t.text or "" for t in item.iter(f"{MAIN}t")) for item in texts]
            self.sheets = [sheet.get("name") for sheet in book.iter(f"{MAIN}sheet")]
            self.names = {name.get("name"): name.text for name in book.iter(f"{MAIN}definedName")}
            self.xml = {
                name: file.read(f"xl/worksheets/sheet{i + 1}.xml").decode() for i, name in enumerate(self.sheets)
            }
        for name, xml in self.xml.items():
            for cell in ElementTree.fromstring(xml).iter(f"{MAIN}c"):
                self._read(name, cell)
        self._known: dict[tuple[str, int, int], Any] = {}

    def _read(self, sheet: str, cell: Any) -> None:
        place = (sheet, *cell_of(cell.get("r")))
        formula, value = cell.find(f"{MAIN}f"), cell.find(f"{MAIN}v")
        if value is not None and value.text is not None:
            is_text = cell.get("t") in ("s", "str")
            self.stored[place] = value.text if is_text else float(value.text)
            if cell.get("t") == "s":
                self.stored[place] = self.texts[int(value.text)]
        if formula is not None:
            self.formulas[place] = formula.text
        elif place in self.stored:
            self.given[place] = self.stored[place]

    def put(self, place: tuple[str, int, int], value: Any) -> None:
        """Type a value into a cell."""
        self.formulas.pop(place, None)
        self.given[place] = value
        self._known = {}

    def places(self, name: str) -> list[tuple[str, int, int]]:
        """The cells of a named range, row by row."""
        sheet, _, cells = self.names[name].rpartition("!")
        return self.block(sheet.strip("'"), cells)

    def block(self, sheet: str, cells: str) -> list[tuple[str, int, int]]:
        first, _, last = cells.partition(":")
        (top, left), (bottom, right) = cell_of(first), cell_of(last or first)
        return [(sheet, row, column) for row in range(top, bottom + 1) for column in range(left, right + 1)]

    def value(self, place: tuple[str, int, int]) -> Any:
        """What a cell shows; None if it is empty."""
        if place in self.formulas and place not in self._known:
            self._known[place] = Formula(self, place[0], self.formulas[place]).value()
        return self._known.get(place, self.given.get(place))

    def numbers(self, name: str) -> list[float]:
        """The numbers of a named range, row by row."""
        return [self.value(place) for place in self.places(name)]


class Formula:
    """Reads a formula from left to right and computes it. A range is a list of rows of cells."""

    def __init__(self, book: Spreadsheet, sheet: str, text: str) -> None:
        self.book, self.sheet = book, sheet
        self.tokens = [(m.lastgroup, m[m.lastgroup]) for m in TOKEN.finditer(text)]
        self.at = 0

    def value(self) -> Any:
        found = self._one(self._compared())
        assert self.at == len(self.tokens), self.tokens[self.at :]
        return found

    def _next(self, *signs: str) -> str | None:
        """The sign that comes next, if it is one of these."""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "sign" and self.tokens[self.at][1] in signs:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return None

    def _compared(self) -> Any:
        left = self._sum()
        while sign := self._next(*COMPARE):
            left = COMPARE[sign](self._one(left), self._one(self._sum()))
        return left

    def _sum(self) -> Any:
        left = self._product()
        while sign := self._next("+", "-"):
            right = self._number(self._product())
            left = self._number(left) + right if sign == "+" else self._number(left) - right
        return left

    def _product(self) -> Any:
        left = self._power()
        while sign := self._next("*", "/"):
            right = self._number(self._power())
            left = self._number(left) * right if sign == "*" else self._number(left) / right
        return left

    def _power(self) -> Any:
        left = self._signed()
        while self._next("^"):
            left = self._number(left) ** self._number(self._signed())
        return left

    def _signed(self) -> Any:  # binds more tightly than a power, as in spreadsheets
        return -self._number(self._signed()) if self._next("-") else self._atom()

    def _atom(self) -> Any:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return float(text)
        if kind == "text":
            return text[1:-1]
        if kind == "function":
            return self._function(text)
        if kind == "name":
            sheet, _, cells = self.book.names[text].rpartition("!")
            return self._range(sheet.strip("'"), cells)
        if kind == "sheet":
            self.at += 1
            return self._cells(text.strip("'"), self.tokens[self.at - 1][1])
        if kind == "cell":
            return self._cells(self.sheet, text)
        assert (kind, text) == ("sign", "("), f"{text} was not expected"
        inside = self._compared()
        assert self._next(")")
        return inside

    def _cells(self, sheet: str, first: str) -> list[list[Any]]:
        if self._next(":"):
            self.at += 1
            return self._range(sheet, f"{first}:{self.tokens[self.at - 1][1]}")
        return self._range(sheet, first)

    def _range(self, sheet: str, cells: str) -> list[list[Any]]:
        rows: dict[int, list[Any]] = {}
        for place in self.book.block(sheet, cells):
            rows.setdefault(place[1], []).append(place)
        return list(rows.values())

    def _one(self, x: Any) -> Any:
        """The number or text in a range of one cell; anything else as it is."""
        if not isinstance(x, list):
            return x
        ((place,),) = x
        return self.book.value(place)

    def _number(self, x: Any) -> float:
        one = self._one(x)
        return 0.0 if one is None else math.nan if isinstance(one, str) else one

    def _all(self, x: Any) -> list[Any]:
        return [self.book.value(place) for row in x for place in row] if isinstance(x, list) else [x]

    def _function(self, name: str) -> Any:
        assert self._next("(")
        parts = [self._compared()]
        while self._next(","):
            parts.append(self._compared())
        assert self._next(")")
        if name in ONE:
            return ONE[name](self._one(parts[0]))
        if name == "IF":
            return self._one(parts[1] if self._one(parts[0]) else parts[2])
        if name == "AND":
            return all(map(self._one, parts))
        if name == "INDEX":
            row, column = (int(self._one(part)) for part in parts[1:])
            is_there = row <= len(parts[0]) and column <= len(parts[0][0])
            return [[parts[0][row - 1][column - 1]]] if is_there else math.nan
        if name == "SUMPRODUCT":
            one, other = parts
            assert [len(row) for row in one] == [len(row) for row in other], "ranges of two shapes"
            return sum(a * b for a, b in zip(self._all(one), self._all(other), strict=True))
        found = [x for part in parts for x in self._all(part)]
        numbers = [x for x in found if isinstance(x, int | float)]
        return {"SUM": math.fsum, "MAX": max, "MIN": min, "COUNT": len}[name](numbers)
