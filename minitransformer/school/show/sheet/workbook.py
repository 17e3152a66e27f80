"""A recording as a workbook: each array a block of cells, each computed number a live formula.

Computed   what was given, the forward pass, the backward pass, and a finite difference beside a gradient
Fill in    the same blocks with blanks, which turn green when they are right
x + h      the forward pass with one number moved, for the finite difference; x - h likewise

The blocks have the same addresses on all four sheets.
"""

from __future__ import annotations

import datetime
import functools
import io
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..stepper.expressions import Number
from ..stepper.steps import Steps
from .blocks import Block, Blocks
from .difference import AHEAD, BEHIND, COMPUTED, Difference
from .formulas import LONGEST, Cell, formula
from .naming import address, finite, range_name, size_of, unique_names

TOLERANCE = 0.001  # of an answer that was filled in, as on a worksheet
FILL_IN = "Fill in"
_FIRST = 4  # the row of the first block
_LONGEST_LINE = 100  # characters of code that a printed page has room for
_WIDEST = 256  # columns: wider arrays cannot be read, let alone printed
_TEXT: dict[str, Any] = {"font_size": 10}
_GIVEN = {"align": "right", **_TEXT}
_NUMBER = {"num_format": "0.0000", **_GIVEN}
_LOOKS: dict[str, dict[str, Any]] = {
    "title": {"bold": True, "font_size": 14},
    "section": {"bold": True, "font_size": 12, "bottom": 1},
    "name": {"bold": True, **_TEXT},
    "code": {"font_color": "#555555", "font_name": "Courier New", "font_size": 8},
    "index": {"font_color": "#808080", "font_size": 8, "align": "right"},
    "text": _TEXT,
    "input": {"font_color": "#0000C0", "bg_color": "#FFF2B3", "border": 1, "border_color": "#D8C060", **_GIVEN},
    "constant": {"bg_color": "#E6E6E6", **_GIVEN},
    "forward": {"bg_color": "#E3EEFA", **_NUMBER},
    "backward": {"bg_color": "#FBE6DC", **_NUMBER},
    "infinite": {"bg_color": "#E3EEFA", **_GIVEN, "num_format": '[<-1E+99]"−∞";0.0000'},
    "exact": {"num_format": "0.0000000", **_GIVEN},
    "blank": {"border": 1, "border_color": "#808080", **_GIVEN},
    "right": {"bg_color": "#B7E1A1"},
}


def workbook(recording: Steps, name: str) -> bytes:
    """The workbook (.xlsx) of a recording. name: of the example, for errors.

    Raises ValueError that names the lines that cannot be written as formulas, and ImportError without the extra
    `sheet`.
    """
    try:
        import xlsxwriter
    except ImportError as error:
        raise ImportError('a sheet needs XlsxWriter: pip install "minitransformer[sheet]"') from error
    blocks = Blocks(recording, name)
    content = io.BytesIO()
    # No text becomes a formula or a link, whatever it begins with.
    settings = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(content, settings) as book:
        book.set_properties({"title": blocks.title, "created": datetime.datetime(2020, 1, 1)})
        Book(book, blocks, recording).write()
    return content.getvalue()


class Book:
    """The workbook while it is written. corner: by serial, where the numbers of a block begin."""

    def __init__(self, file: Any, blocks: Blocks, recording: Steps) -> None:
        self.file, self.blocks, self.recording = file, blocks, recording
        self.names = unique_names(blocks.all)
        self.sections = _sections(blocks)
        self.corner: dict[int, Cell] = {}
        row = _FIRST
        for section in self.sections.values():
            row += 2
            for block in section:
                row += 1 + (block.line != "")
                self.corner[block.serial] = (row, 1)
                row += 1 + size_of(block)[0]
        self.end = row
        self.width = max(8, *(1 + size_of(block)[1] for block in blocks.all))
        if self.width > _WIDEST:
            raise ValueError(f"sheet: {self.width - 1} columns are too many to read; choose smaller sizes")
        self.style = {name: file.add_format(look) for name, look in _LOOKS.items()}

    def write(self) -> None:
        sheets = {name: self.file.add_worksheet(name) for name in (COMPUTED, FILL_IN, AHEAD, BEHIND)}
        self._head(sheets[COMPUTED], "Change a number in a yellow cell: everything that depends on it changes.")
        self._head(sheets[FILL_IN], "Compute by hand, or by formulas of your own. What is right turns green.")
        self.write_blocks(sheets[COMPUTED], self.blocks.all, self._computed)
        self._names()
        self._fill_in(sheets[FILL_IN])
        difference = Difference(self)
        difference.write(sheets[COMPUTED])
        for name, sign in ((AHEAD, 1), (BEHIND, -1)):
            told = f"The forward pass with the number that is chosen at the end of the sheet {COMPUTED} moved by h."
            self._head(sheets[name], told)
            difference.moved(sheets[name], sign)
        for name, sheet in sheets.items():
            self._paper(sheet, self.end + (difference.last + 1 - self.end if name == COMPUTED else 0))

    def _head(self, sheet: Any, told: str) -> None:
        sheet.write_string(0, 0, self.blocks.title, self.style["title"])
        sheet.write_string(1, 0, told, self.style["text"])
        for column, kind in enumerate(("input", "constant", "forward", "backward")):
            sheet.write_string(2, 1 + column, kind, self.style[kind])

    def _paper(self, sheet: Any, end: int) -> None:
        """A4, as wide as the blocks."""
        sheet.set_paper(9)
        if self.width > 10:
            sheet.set_landscape()
        sheet.set_column(0, 0, 5)
        sheet.set_column(1, self.width - 1, 10)
        sheet.hide_gridlines(2)
        sheet.fit_to_pages(1, 0)
        sheet.print_area(0, 0, end, self.width - 1)
        sheet.set_footer("&L&A&R&P / &N")
        sheet.freeze_panes(_FIRST - 1, 0)

    def write_blocks(self, sheet: Any, shown: Iterable[Block], write: Callable[[Any, Block, int, Cell], None]) -> None:
        """The headings of blocks, and each number as `write` has it."""
        shown = list(shown)
        for title, section in self.sections.items():
            inside = [block for block in section if block in shown]
            if inside:
                heading = self.corner[inside[0].serial][0] - 2 - (inside[0].line != "")
                sheet.write_string(heading, 0, title, self.style["section"])
            for block in inside:
                row = self.corner[block.serial][0]
                size = " × ".join(map(str, block.array.shape)) or "one number"
                heading = row - 1 - (block.line != "")
                sheet.write_string(heading, 0, f"{self.names[block.serial]}   ({size})", self.style["name"])
                if block.line:
                    sheet.write_string(row - 1, 1, _told(block), self.style["code"])
                for i in range(size_of(block)[0]):
                    sheet.write_number(row + i, 0, i + 1, self.style["index"])
                for flat in range(block.array.size):
                    write(sheet, block, flat, self.cell(block.serial, flat))

    def cell(self, serial: int, flat: int) -> Cell:
        """The cell of a number."""
        row, column = self.corner[serial]
        below, beside = divmod(flat, size_of(self.blocks.of(serial))[1])
        return row + below, column + beside

    def range(self, serial: int) -> str:
        """The cells of a block: $B$7:$D$8."""
        rows, columns = size_of(self.blocks.of(serial))
        (row, column), last = self.corner[serial], (rows - 1, columns - 1)
        first = address((row, column), fixed=True)
        return first if last == (0, 0) else f"{first}:{address((row + last[0], column + last[1]), fixed=True)}"

    def style_of(self, block: Block) -> Any:
        """The look of its cells."""
        return self.style["infinite" if np.isneginf(block.array).any() else block.kind]

    @functools.cached_property
    def _scalars(self) -> dict[Cell, str]:
        """The names of the blocks of one number, by their cells."""
        return {self.corner[b.serial]: range_name(self.names[b.serial]) for b in self.blocks.all if b.array.shape == ()}

    def written(self, term: Any, named: bool) -> str:
        """The formula of a cell. named: whether single numbers are called by their names, or by their addresses."""

        def where(number: Number) -> Cell | None:
            place = self.blocks.place(number)
            return None if place is None else self.cell(*place)

        def text(cell: Cell) -> str:
            return self._scalars[cell] if named and cell in self._scalars else address(cell, cell in self._scalars)

        made = formula(term, where, text)
        if len(made) > LONGEST:
            raise ValueError(f"sheet: a sum of {len(made)} characters is too long for a cell; choose smaller sizes")
        return made

    def _computed(self, sheet: Any, block: Block, flat: int, cell: Cell) -> None:
        value = finite(block.array.flat[flat])
        if block.cells is None:
            sheet.write_number(*cell, value, self.style[block.kind])
        else:
            sheet.write_formula(*cell, self.written(block.cells[flat], named=True), self.style_of(block), value)

    def _names(self) -> None:
        """A named range for each block."""
        for block in self.blocks.all:
            self.file.define_name(range_name(self.names[block.serial]), f"={COMPUTED}!{self.range(block.serial)}")

    # ---- The sheet to fill in. ----

    def _fill_in(self, sheet: Any) -> None:
        beside = self.width + 1  # hidden columns, which say what is right
        blanks = 0

        def write(sheet: Any, block: Block, flat: int, cell: Cell) -> None:
            nonlocal blanks
            there = f"{COMPUTED}!{address(cell)}"
            if block.cells is None or np.isneginf(block.array.flat[flat]):
                value = finite(block.array.flat[flat])
                sheet.write_formula(
                    *cell, f"={there}", self.style["constant" if block.cells is None else "infinite"], value
                )
                return
            blanks += 1
            here = address(cell)
            near = f"ABS({here}-{there})<={TOLERANCE}*MAX(1,ABS({there}))"
            sheet.write_blank(*cell, None, self.style["blank"])
            sheet.write_formula(cell[0], cell[1] + beside, f"=IF(ISNUMBER({here}),IF({near},1,0),0)", None, 0)

        self.write_blocks(sheet, self.blocks.all, write)
        for block in self.blocks.all:
            if block.cells is not None:
                (row, column), (rows, columns) = self.corner[block.serial], size_of(block)
                rule = {"type": "formula", "criteria": f"={address((row, column + beside))}=1"}
                last = (row + rows - 1, column + columns - 1)
                sheet.conditional_format(row, column, *last, {**rule, "format": self.style["right"]})
        sheet.set_column(self.width, beside + self.width, None, None, {"hidden": True})
        marks = f"{address((_FIRST, beside + 1))}:{address((self.end, beside + self.width))}"
        sheet.write_string(3, 1, "right so far", self.style["text"])
        sheet.write_formula(3, 3, f"=SUM({marks})", self.style["text"], 0)
        sheet.write_string(3, 4, f"of {blanks}", self.style["text"])


def _told(block: Block) -> str:
    told = f"{block.call}: {block.line}" if block.line else ""
    return told[:_LONGEST_LINE] + "…" * (len(told) > _LONGEST_LINE)


def _sections(blocks: Blocks) -> dict[str, list[Block]]:
    """The blocks under their headings. The gradient of the output begins the backward pass."""
    given = [b for b in blocks.all if b.cells is None and b.serial != blocks.upstream]
    forward = [b for b in blocks.all if b.kind == "forward"]
    backward = [blocks.of(blocks.upstream), *(b for b in blocks.all if b.kind == "backward")]
    return {"Given": given, "Forward": forward, "Backward": backward}
