"""Worksheets as PDF, one page each, drawn by matplotlib."""

import io
from collections.abc import Iterable
from functools import cache
from typing import Any

from matplotlib import font_manager, rc_context
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from .layout import GAP, MARGIN, PAGE_HEIGHT, PAGE_WIDTH, SECTION_HEIGHT, Block, Page, wrapped

_FONT = "DejaVu Sans"  # matplotlib includes it, and it has every sign of the formulas
GREY, _INK, ANSWER = "#888888", "#111111", "#0a4a8f"


def to_pdf(pages: Iterable[Page]) -> bytes:
    """One PDF page for each sheet. Raises ValueError for a name with letters that the font lacks."""
    return written((page.sheet.student, _figure(page)) for page in pages)


def written(pages: Iterable[tuple[str, Figure]]) -> bytes:
    """A document of pages, each with the name of its student."""
    target = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}), PdfPages(target, metadata={"CreationDate": None}) as document:
        for student, figure in pages:
            _check_letters(student)
            document.savefig(figure)
    return target.getvalue()


@cache
def _font() -> FT2Font:
    return FT2Font(font_manager.findfont(_FONT))


def _check_letters(name: str) -> None:
    missing = [letter for letter in name if not _font().get_char_index(ord(letter))]
    if missing:
        raise ValueError(f"the PDF's font has no {missing[0]!r}, which the name {name!r} contains; write HTML instead")


class Paper:
    """A page with its origin at the top left, in millimetres."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(PAGE_WIDTH / 25.4, PAGE_HEIGHT / 25.4))

    def text(self, x: float, y: float, text: str, size: float, **options: Any) -> None:
        style: dict[str, Any] = {"family": _FONT, "size": size, "va": "baseline", "color": _INK, "parse_math": False}
        self.figure.add_artist(Text(x / PAGE_WIDTH, 1.0 - y / PAGE_HEIGHT, text, **(style | options)))

    def box(self, x: float, y: float, width: float, height: float, **options: Any) -> None:
        corner = (x / PAGE_WIDTH, 1.0 - (y + height) / PAGE_HEIGHT)
        size = (width / PAGE_WIDTH, height / PAGE_HEIGHT)
        self.figure.add_artist(Rectangle(corner, *size, **({"fill": False, "linewidth": 0.5} | options)))

    def line(self, xs: list[float], ys: list[float], width: float, colour: str) -> None:
        place = ([x / PAGE_WIDTH for x in xs], [1.0 - y / PAGE_HEIGHT for y in ys])
        self.figure.add_artist(Line2D(*place, linewidth=width, color=colour))


def _figure(page: Page) -> Figure:
    paper, sheet, right = Paper(), page.sheet, PAGE_WIDTH - MARGIN
    y = MARGIN + 5.0
    paper.text(MARGIN, y, page.title, 15.0, weight="bold")
    paper.text(right, y, sheet.label, 8.5, ha="right", color=GREY)
    y += 8.0
    if page.key:
        paper.text(MARGIN, y, f"for {sheet.student}" if sheet.student else "", 10.0)
    else:
        paper.text(MARGIN, y, f"Name: {sheet.student}", 10.0)
        if not sheet.student:
            paper.line([MARGIN + 13.0, MARGIN + 80.0], [y + 0.8] * 2, 0.5, GREY)
    y += 4.0
    for note in sheet.task.notes:
        for text in wrapped(note):
            y += 4.6
            paper.text(MARGIN, y, text, 8.5)
    y += 3.0
    for title, lines in page.sections:
        y += SECTION_HEIGHT * page.scale
        paper.text(MARGIN, y - 2.0 * page.scale, title, 11.0 * page.scale, weight="bold")
        for line in lines:
            x = MARGIN
            for block in line:
                _draw(paper, x, y, block, page.scale)
                x += (block.width + GAP) * page.scale
            y += max(block.height for block in line) * page.scale
    return paper.figure


def _draw(paper: Paper, x: float, y: float, block: Block, scale: float) -> None:
    paper.text(x, y + 4.0 * scale, block.caption, 9.0 * scale)
    top = y + 6.0 * scale
    width, height = block.cell[0] * scale, block.cell[1] * scale
    is_given = block.kind == "given"
    for i, texts in enumerate(block.cells):
        for j, text in enumerate(texts):
            place = (x + j * width, top + i * height, width, height)
            paper.box(*place, edgecolor=GREY, facecolor="#f1f1f1", fill=is_given)
            centre = (x + (j + 0.5) * width, top + (i + 0.5) * height + 1.2 * scale)
            paper.text(*centre, text, 9.5 * scale, ha="center", color=_INK if is_given else ANSWER)
    if block.unit:
        middle = top + len(block.cells) * height / 2.0 + 1.2 * scale
        paper.text(x + len(block.cells[0]) * width + 1.5 * scale, middle, f"· {block.unit}", 9.5 * scale)
