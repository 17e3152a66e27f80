"""Where a block stands and what it is called: addresses and names as spreadsheets take them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

from .blocks import Block, Blocks
from .formulas import MINUS_INFINITY, Cell

# The cells below the finite difference that have names.
CHOICE = "chosen_array chosen_row chosen_column step_h loss_ahead loss_behind difference gradient".split()
_ADDRESS = re.compile(r"[a-z]{1,3}\d+|r\d*c?\d*|c\d*|true|false", re.IGNORECASE)  # these are not names of ranges


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
