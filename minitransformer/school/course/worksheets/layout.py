"""How a sheet fits on one A4 page: its matrices follow each other like words in a paragraph, and all are scaled to
fill exactly one page.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from .sheet import Given, Sheet, Step, number

PAGE_WIDTH, PAGE_HEIGHT, MARGIN = 210.0, 297.0, 15.0  # A4, in millimetres like all lengths below
GAP = 7.0
LARGEST, SMALLEST = 1.15, 0.55


@dataclass(frozen=True)
class Block:
    """One matrix with the line above it. kind: "given", "blank" or "answer". cells: its numbers as texts, or blanks."""

    name: str
    kind: str
    caption: str
    cells: tuple[tuple[str, ...], ...]
    unit: str
    cell: tuple[float, float]

    @property
    def width(self) -> float:
        """At scale 1."""
        return max(len(self.cells[0]) * self.cell[0] + (11.0 if self.unit else 0.0), 1.95 * len(self.caption))

    @property
    def height(self) -> float:
        """At scale 1, with the caption and the space below."""
        return 6.0 + len(self.cells) * self.cell[1] + 4.0


@dataclass(frozen=True)
class Page:
    """A sheet, or its key, as sections of lines of blocks, and the scale at which they fit on a page."""

    sheet: Sheet
    key: bool
    scale: float
    sections: tuple[tuple[str, tuple[tuple[Block, ...], ...]], ...]

    @property
    def title(self) -> str:
        """The heading."""
        return self.sheet.task.title + (": answers" if self.key else "")


def page(sheet: Sheet, key: bool = False) -> Page:
    """The largest layout of a sheet, or of its answers, that fits on one page; the same for both, for comparison."""
    sections = [
        ("Given", [_given(sheet, given) for given in sheet.task.given]),
        ("Forward", [_step(sheet, step, key) for step in sheet.forward_steps]),
        ("Backward", [_step(sheet, step, key) for step in sheet.backward_steps]),
    ]
    sections = [(title, blocks) for title, blocks in sections if blocks]
    scale = LARGEST
    while True:
        lines = tuple((title, tuple(_lines(blocks, scale))) for title, blocks in sections)
        if header_height(sheet) + _height(lines) * scale <= PAGE_HEIGHT - 2 * MARGIN:
            return Page(sheet, key, scale, lines)
        scale -= 0.02
        if scale < SMALLEST:
            raise RuntimeError(f"{sheet.label} does not fit on a page")


def header_height(sheet: Sheet) -> float:
    """Title, name and notes."""
    return 22.0 + 4.6 * sum(len(wrapped(note)) for note in sheet.task.notes)


def wrapped(text: str) -> list[str]:
    """A note as lines."""
    return textwrap.wrap(text, 112, break_on_hyphens=False)


SECTION_HEIGHT = 8.0


def _height(sections: tuple[tuple[str, tuple[tuple[Block, ...], ...]], ...]) -> float:
    return sum(SECTION_HEIGHT + sum(max(b.height for b in line) for line in lines) for _, lines in sections)


def _lines(blocks: list[Block], scale: float) -> Iterator[tuple[Block, ...]]:
    line: list[Block] = []
    for block in blocks:
        if line and sum(b.width + GAP for b in line) + block.width > (PAGE_WIDTH - 2 * MARGIN) / scale:
            yield tuple(line)
            line = []
        line.append(block)
    yield tuple(line)


def texts(sheet: Sheet, name: str) -> tuple[tuple[str, ...], ...]:
    """The numbers of a matrix as they are printed."""
    ignored = {given.name: given.ignored for given in sheet.task.given}.get(name)
    return tuple(
        tuple("ignore" if x == ignored else number(x).replace("-", "−") for x in row) for row in sheet.boxes(name)
    )


def _given(sheet: Sheet, given: Given) -> Block:
    caption = f"{given.name}: {given.note}" if given.note else given.name
    width = 14.0 if given.ignored is not None else 9.5
    return Block(given.name, "given", caption, texts(sheet, given.name), given.unit, (width, 7.0))


def _step(sheet: Sheet, step: Step, key: bool) -> Block:
    cells = texts(sheet, step.name)
    widest = max(len(text) for row in cells for text in row)
    cell = (16.0 if widest > 5 else 14.0, 8.5)
    if not key:
        cells = tuple(("",) * len(row) for row in cells)
    return Block(step.name, "answer" if key else "blank", step.formula, cells, step.unit, cell)
