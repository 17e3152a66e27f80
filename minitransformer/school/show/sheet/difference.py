"""A finite difference beside a gradient: the reader chooses a number, and the forward pass runs with it moved by h.

dL/dx ≈ (L(x + h) - L(x - h)) / 2h,    L = sum of output · doutput
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..stepper.steps import Steps
from .again import again, given_numbers
from .blocks import Block
from .formulas import Cell
from .layout import CHOICE, Layout, address, finite, size_of

H = 1e-5  # as in verify.gradients
COMPUTED, AHEAD, BEHIND = "Computed", "x + h", "x - h"  # sheets
_ARRAY, _NUMBER, _FOUND = 1, 3, 5  # columns: an array's name, numbers, its gradient if it is chosen


class Difference:
    """The finite difference of one number that the reader chooses, beside its gradient."""

    def __init__(self, on: Layout) -> None:
        self.on, self.style, self.blocks = on, on.style, on.blocks
        self.listed = [block for block in self.blocks.all if block.gradient]
        self.top = on.end + 1
        self.first = self.top + 13  # the row of the first array
        self.last = self.first + len(self.listed) - 1
        self.end = self.last + 1
        self.runs = {sign: self._run(sign * H) for sign in (1, -1)}

    def _run(self, h: float) -> Steps:
        """The recording with the first number of the first array moved by h: for viewers that compute nothing."""
        name = self.listed[0].name
        moved = np.array(given_numbers(self.on.recording)[name])
        moved.flat[0] += h
        return again(self.on.recording, {name: moved})

    def _array(self, sign: int, block: Block) -> np.ndarray:
        number = self.on.recording.number_of[block.serial]
        array = self.runs[sign].bindings[number][1].value.array
        assert array is not None
        return array

    def _loss(self, sign: int) -> float:
        output, upstream = self.blocks.of(self.blocks.output), self.blocks.of(self.blocks.upstream)
        return float((self._array(sign, output).ravel() * upstream.array.ravel()).sum())

    def write(self, sheet: Any) -> None:
        """On the sheet of computed numbers: the choice, the two losses, the finite difference and the gradient."""
        sheet.write_string(self.top, 0, "Check: a finite difference beside the gradient", self.style["section"])
        told = "L is the sum of output times doutput. Choose an array of the list, and a row and a column in it."
        sheet.write_string(self.top + 1, 1, told, self.style["code"])
        self._choice(sheet)
        self._arrays(sheet)
        self._verdict(sheet)

    def _choice(self, sheet: Any) -> None:
        losses = {sign: self._loss(sign) for sign in (1, -1)}
        rows: list[tuple[str, str, float | str]] = [
            ("array", "", self.on.names[self.listed[0].serial]),
            ("row", "", 1),
            ("column", "", 1),
            ("h", "", H),
            ("L(x + h)", self._sum(AHEAD), losses[1]),
            ("L(x - h)", self._sum(BEHIND), losses[-1]),
            ("difference", "=(loss_ahead-loss_behind)/(2*step_h)", (losses[1] - losses[-1]) / (2 * H)),
            ("gradient", f"=SUM({self._column(_FOUND)})", self._gradient()),
        ]
        for row, (name, (label, made, value)) in enumerate(zip(CHOICE, rows, strict=True), self.top + 2):
            at = (row, _NUMBER)
            sheet.write_string(row, _ARRAY, label, self.style["text"])
            self.on.file.define_name(name, f"={COMPUTED}!{address(at, fixed=True)}")
            if made:
                sheet.write_formula(*at, made, self.style["exact"], value)
            else:
                sheet.write(*at, value, self.style["input"])
        at = (self.top + 2, _NUMBER)
        sheet.data_validation(*at, *at, {"validate": "list", "source": f"={self._column(_ARRAY)}"})
        whole = {"validate": "integer", "criteria": ">=", "value": 1}
        sheet.data_validation(self.top + 3, _NUMBER, self.top + 4, _NUMBER, whole)

    def _arrays(self, sheet: Any) -> None:
        """The arrays that can be chosen, and the gradient of the chosen number."""
        titles = {_ARRAY: "arrays", _NUMBER: "rows, columns", _FOUND: "gradient of the chosen number"}
        for column, title in titles.items():
            sheet.write_string(self.first - 1, column, title, self.style["code"])
        for row, block in enumerate(self.listed, self.first):
            rows, columns = size_of(block)
            sheet.write_string(row, _ARRAY, self.on.names[block.serial], self.style["text"])
            sheet.write_number(row, _NUMBER, rows, self.style["text"])
            sheet.write_number(row, _NUMBER + 1, columns, self.style["text"])
            chosen = f"AND(chosen_array={address((row, _ARRAY))},chosen_row<={rows},chosen_column<={columns})"
            entry = "+".join(
                f"INDEX({self.on.range(serial)},{'chosen_column,chosen_row' if turned else 'chosen_row,chosen_column'})"
                for serial, turned in block.gradient
            )
            value = self._gradient() if block is self.listed[0] else ""
            sheet.write_formula(row, _FOUND, f'=IF({chosen},{entry},"")', self.style["exact"], value)

    def _verdict(self, sheet: Any) -> None:
        at = (self.top + 10, _NUMBER)
        agree = 'IF(ABS(difference-gradient)<=0.000001*MAX(1,ABS(gradient)),"yes","no")'
        made = f'=IF(COUNT({self._column(_FOUND)})=0,"no such entry",{agree})'
        sheet.write_string(at[0], _ARRAY, "do they agree?", self.style["text"])
        sheet.write_formula(*at, made, self.style["text"], "yes")
        green = {"type": "cell", "criteria": "==", "value": '"yes"', "format": self.style["right"]}
        sheet.conditional_format(*at, *at, green)

    def _column(self, column: int) -> str:
        """One column of the list of arrays."""
        return f"{address((self.first, column), fixed=True)}:{address((self.last, column), fixed=True)}"

    def _gradient(self) -> float:
        return float(sum(self.blocks.of(serial).array.flat[0] for serial, _ in self.listed[0].gradient))

    def _sum(self, sheet: str) -> str:
        return f"=SUMPRODUCT('{sheet}'!{self.on.range(self.blocks.output)},{self.on.range(self.blocks.upstream)})"

    def write_moved(self, sheet: Any, sign: int) -> None:
        """On a sheet of its own: the forward pass, with the chosen number moved."""

        def write(block: Block, flat: int, cell: Cell) -> None:
            made = f"={COMPUTED}!{address(cell)}"
            if block.cells is not None:
                made = self.on.written(block.cells[flat], named=False)
            elif block in self.listed:
                row, column = divmod(flat, size_of(block)[1])
                name = f'chosen_array="{self.on.names[block.serial]}"'
                chosen = f"AND({name},chosen_row={row + 1},chosen_column={column + 1})"
                made += f"{'+' if sign > 0 else '-'}IF({chosen},step_h,0)"
            sheet.write_formula(*cell, made, self.on.style_of(block), finite(self._array(sign, block).flat[flat]))

        shown = [b for b in self.blocks.all if b.kind != "backward" and b.serial != self.blocks.upstream]
        self.on.write_blocks(sheet, shown, write)
