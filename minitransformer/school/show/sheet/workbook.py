"""A recording as a workbook: each array a block of cells, each computed number a live formula.

Computed   what was given, the forward pass, the backward pass, and a finite difference beside a gradient
Fill in    the same blocks with blanks, which turn green when they are right
x + h      the forward pass with one number moved, for the finite difference; x - h likewise

The blocks have the same addresses on all four sheets.
"""

from __future__ import annotations

import datetime
import io
from typing import Any

import numpy as np

from ....core.text.tokenizer import load_library
from ..stepper.steps import Steps
from .blocks import Block, blocks_of
from .difference import AHEAD, BEHIND, COMPUTED, Difference
from .formulas import Cell
from .layout import FIRST, Layout, address, finite, range_name

FILL_IN = "Fill in"
TOLERANCE = 0.001  # of an answer that was filled in, as on a worksheet


def workbook(recording: Steps, name: str) -> bytes:
    """The workbook (.xlsx) of a recording. name: of the example, for errors.

    Raises ValueError that names the lines that cannot be written as formulas, and ImportError without the extra
    `sheet`.
    """
    xlsxwriter = load_library("a sheet", "sheet", "xlsxwriter")
    blocks = blocks_of(recording, name)
    content = io.BytesIO()
    # No text becomes a formula or a link, whatever it begins with.
    settings = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(content, settings) as file:
        file.set_properties({"title": blocks.title, "created": datetime.datetime(2020, 1, 1)})
        _write(Layout(file, blocks))
    return content.getvalue()


def _write(on: Layout) -> None:
    sheets = {name: on.file.add_worksheet(name) for name in (COMPUTED, FILL_IN, AHEAD, BEHIND)}
    on.head(sheets[COMPUTED], "Change a number in a yellow cell: everything that depends on it changes.")
    on.head(sheets[FILL_IN], "Compute by hand, or by formulas of your own. What is right turns green.")
    _write_computed(on, sheets[COMPUTED])
    _write_blanks(on, sheets[FILL_IN])
    difference = Difference(on)
    difference.write(sheets[COMPUTED])
    for name, sign in ((AHEAD, 1), (BEHIND, -1)):
        told = f"The forward pass, with the number that is chosen at the end of the sheet {COMPUTED} moved by h."
        on.head(sheets[name], told)
        difference.write_moved(sheets[name], sign)
    for name, sheet in sheets.items():
        on.paper(sheet, difference.end if name == COMPUTED else on.end)


def _write_computed(on: Layout, sheet: Any) -> None:
    """The numbers and formulas, and a named range for each block."""

    def write(block: Block, flat: int, cell: Cell) -> None:
        value = finite(block.array.flat[flat])
        if block.cells is None:
            sheet.write_number(*cell, value, on.style[block.kind])
        else:
            sheet.write_formula(*cell, on.written(block.cells[flat], named=True), on.style_of(block), value)

    on.write_blocks(sheet, on.blocks.all, write)
    for block in on.blocks.all:
        on.file.define_name(range_name(on.names[block.serial]), f"={COMPUTED}!{on.range(block.serial)}")


def _write_blanks(on: Layout, sheet: Any) -> None:
    """The blocks with blanks, and beside them, hidden, a 1 for each that is right."""
    beside = on.width + 1  # hidden columns, which say what is right
    blanks = 0

    def write(block: Block, flat: int, cell: Cell) -> None:
        nonlocal blanks
        there = f"{COMPUTED}!{address(cell)}"
        if block.cells is None or np.isneginf(block.array.flat[flat]):
            value = finite(block.array.flat[flat])
            sheet.write_formula(
                *cell, f"={there}", on.style["constant" if block.cells is None else "with infinity"], value
            )
            return
        blanks += 1
        here = address(cell)
        near = f"ABS({here}-{there})<={TOLERANCE}*MAX(1,ABS({there}))"
        sheet.write_blank(*cell, None, on.style["blank"])
        sheet.write_formula(cell[0], cell[1] + beside, f"=IF(ISNUMBER({here}),IF({near},1,0),0)", None, 0)

    on.write_blocks(sheet, on.blocks.all, write)
    for block in on.blocks.all:
        if block.cells is not None:
            row, column = on.corner[block.serial]
            is_right = f"={address((row, column + beside))}=1"
            rule = {"type": "formula", "criteria": is_right, "format": on.style["right"]}
            sheet.conditional_format(row, column, *on.cell(block.serial, -1), rule)
    sheet.set_column(on.width, beside + on.width, None, None, {"hidden": True})
    marks = f"{address((FIRST, beside + 1))}:{address((on.end, beside + on.width))}"
    sheet.write_string(3, 1, "right so far", on.style["text"])
    sheet.write_formula(3, 3, f"=SUM({marks})", on.style["text"], 0)
    sheet.write_string(3, 4, f"of {blanks}", on.style["text"])
