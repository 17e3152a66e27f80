"""Where the blocks stand on a sheet, how they look and what they are called, and how a cell's formula is written."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..stepper.expressions import Number
from ..stepper.terms import Term
from .blocks import Block, Blocks
from .formulas import LONGEST, MINUS_INFINITY, Cell, formula

FIRST = 4  # the row of the first heading
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
    "with infinity": {"bg_color": "#E3EEFA", **_GIVEN},
    "infinite": {"num_format": '"−∞"'},
    "exact": {"num_format": "0.0000000", **_GIVEN},
    "blank": {"border": 1, "border_color": "#808080", **_GIVEN},
    "right": {"bg_color": "#B7E1A1"},
}

# The cells below the finite difference that have names.
CHOICE = "chosen_array chosen_row chosen_column step_h loss_ahead loss_behind difference gradient".split()
_ADDRESS = re.compile(r"[a-z]{1,3}\d+|r\d*c?\d*|c\d*|true|false", re.IGNORECASE)  # these are not names of ranges


class Layout:
    """The same places on each sheet of a workbook (`file`): one block below the other, under three headings.

    corner: by serial, where the numbers of a block begin. end: the row below the last. names: of the blocks.
    """

    def __init__(self, file: Any, blocks: Blocks) -> None:
        self.file, self.blocks, self.recording = file, blocks, blocks.recording
        self.names = unique_names(blocks)
        self.sections = _sections(blocks)
        self.corner: dict[int, Cell] = {}
        row = FIRST
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

    def head(self, sheet: Any, told: str) -> None:
        """The title, a sentence, and what the colours mean."""
        sheet.write_string(0, 0, self.blocks.title, self.style["title"])
        sheet.write_string(1, 0, told, self.style["text"])
        for column, kind in enumerate(("input", "constant", "forward", "backward")):
            sheet.write_string(2, 1 + column, kind, self.style[kind])

    def paper(self, sheet: Any, end: int) -> None:
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
        sheet.freeze_panes(FIRST, 0)

    def write_blocks(self, sheet: Any, shown: Iterable[Block], write: Callable[[Block, int, Cell], None]) -> None:
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
                    write(block, flat, self.cell(block.serial, flat))
                if np.isneginf(block.array).any():
                    rule = {"type": "cell", "criteria": "<", "value": "-1E+99", "format": self.style["infinite"]}
                    sheet.conditional_format(*self.corner[block.serial], *self.cell(block.serial, -1), rule)

    def cell(self, serial: int, flat: int) -> Cell:
        """The cell of a number; -1 is the last."""
        block, (row, column) = self.blocks.of(serial), self.corner[serial]
        below, beside = divmod(flat % block.array.size, size_of(block)[1])
        return row + below, column + beside

    def range(self, serial: int) -> str:
        """The cells of a block: $B$7:$D$8."""
        first, last = address(self.corner[serial], fixed=True), address(self.cell(serial, -1), fixed=True)
        return first if first == last else f"{first}:{last}"

    def style_of(self, block: Block) -> Any:
        """The look of its cells."""
        return self.style["with infinity" if np.isneginf(block.array).any() else block.kind]

    @functools.cached_property
    def _scalars(self) -> dict[Cell, str]:
        """The names of the blocks of one number, by their cells."""
        return {self.corner[b.serial]: range_name(self.names[b.serial]) for b in self.blocks.all if b.array.shape == ()}

    def written(self, term: Term, named: bool) -> str:
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


def _told(block: Block) -> str:
    told = f"{block.call}: {block.line}" if block.line else ""
    return told[:_LONGEST_LINE] + "…" * (len(told) > _LONGEST_LINE)


def _sections(blocks: Blocks) -> dict[str, list[Block]]:
    """The blocks under their headings. The gradient of the output begins the backward pass."""
    given = [b for b in blocks.all if b.cells is None and b.serial != blocks.upstream]
    forward = [b for b in blocks.all if b.kind == "forward"]
    backward = [blocks.of(blocks.upstream), *(b for b in blocks.all if b.kind == "backward")]
    return {"Given": given, "Forward": forward, "Backward": backward}


# ---- Addresses and names as spreadsheets take them. ----


def address(cell: Cell, fixed: bool = False) -> str:
    """B7, or $B$7."""
    from xlsxwriter.utility import xl_rowcol_to_cell

    return str(xl_rowcol_to_cell(*cell, fixed, fixed))


def finite(number: Any) -> float:
    """The number as a cell holds it."""
    return MINUS_INFINITY if np.isneginf(number) else float(number)


def range_name(name: str) -> str:
    """A name that spreadsheets take: letters, digits and _, and not an address, such as x1."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"{plain}_" if _ADDRESS.fullmatch(plain) else plain if plain[:1].isalpha() else f"_{plain}"


def size_of(block: Block) -> tuple[int, int]:
    """Rows and columns: those of an array with more axes stand below each other."""
    columns = block.array.shape[-1] if block.array.ndim else 1
    return block.array.size // columns, columns


def unique_names(blocks: Blocks) -> dict[int, str]:
    """A name for each block that no other has, even in another case: spreadsheets do not tell q from Q."""
    taken = set(CHOICE)
    outermost = blocks.recording.calls[0].label
    often = Counter(block.name.lower() for block in blocks.all)
    names = {}
    for block in sorted(blocks.all, key=lambda block: block.call != outermost):  # its names are the plain ones
        is_plain = often[block.name.lower()] == 1 or block.call == outermost
        plain = block.name if is_plain else f"{block.call.strip('_')}.{block.name}"
        name, n = plain, 1
        while range_name(name).lower() in taken:
            n += 1
            name = f"{plain}_{n}"
        taken.add(range_name(name).lower())
        names[block.serial] = name
    return names
