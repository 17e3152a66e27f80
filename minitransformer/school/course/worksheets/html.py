"""Worksheets as one HTML page that needs no other files. Printed, each sheet is one A4 page."""

from collections.abc import Iterable
from html import escape
from importlib import resources

from .layout import Block, Page


def to_html(pages: Iterable[Page]) -> str:
    """The document. Every text in it is escaped."""
    return document("Worksheet", __package__, "".join(map(_article, pages)))


def document(title: str, package: str, body: str) -> str:
    """A page that needs no other files. body: in HTML; package: the one whose page.css says how it looks."""
    style = resources.files(package).joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _article(page: Page) -> str:
    sheet = page.sheet
    name = escape(sheet.student) or ("" if page.key else '<span class="line">&nbsp;</span>')
    prefix = "for " if page.key and name else "" if page.key else "Name: "
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in sheet.task.notes)
    sections = "".join(
        f"<section>\n<h2>{escape(title)}</h2>\n"
        + "".join(f'<div class="line-of-blocks">\n{"".join(map(_table, line))}</div>\n' for line in lines)
        + "</section>\n"
        for title, lines in page.sections
    )
    return (
        f'<article style="--s: {page.scale:.2f}">\n<header>\n<h1>{escape(page.title)}</h1>\n'
        f'<span class="label">{escape(sheet.label)}</span>\n<p class="name">{prefix}{name}&nbsp;</p>\n</header>\n'
        f"<ul>\n{notes}</ul>\n{sections}</article>\n"
    )


def _table(block: Block) -> str:
    rows = []
    for i, texts in enumerate(block.cells):
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        if block.unit and i == 0:
            cells += f'<td class="unit" rowspan="{len(block.cells)}">· {escape(block.unit)}</td>'
        rows.append(f"<tr>{cells}</tr>")
    size = f"--w: {block.cell[0]:g}mm; --h: {block.cell[1]:g}mm"
    caption = f"<figcaption>{escape(block.caption)}</figcaption>"
    width = f' style="width: calc({block.width:.4g}mm * var(--s))"'
    table = f'<table class="{block.kind}" style="{size}">\n' + "\n".join(rows) + "\n</table>"
    return f"<figure{width}>\n{caption}\n{table}\n</figure>\n"
