"""The page of the families: which parts each puts into the boxes of figure 1, and two families side by side."""

from __future__ import annotations

import html
from typing import Any

from ....ideas.published.families import EVERY
from ..boxes import BOXES, Entry, Side, alike, families
from ..page import as_script_data
from .frame import Site, template
from .modules import address_of, shown_modules

ADDRESS = "families.html"
_FIRST = ("gpt2", "llama")  # the two that the page shows first
INVITATION = "Two published models side by side"


def write_families(site: Site) -> None:
    """Write the page. Without scripts it is the table of all families."""
    found, shown = families(), set(shown_modules())
    rows = "".join(_row(names, side, len(sides) > 1, shown) for names, sides in alike(found) for side in sides)
    heads = "".join(f'<th scope="col">{label}</th>' for label in ("Family", *(label for _, label in BOXES)))
    data = {"boxes": BOXES, "families": {name: [_data(side, shown) for side in sides] for name, sides in found.items()}}
    body = template(
        "families",
        one=_options(_FIRST[0]),
        other=_options(_FIRST[1]),
        data=as_script_data(data),
        heads=heads,
        rows=rows,
    )
    text = "Which parts the families of published models have: norms, positions, attention, feed-forward networks. "
    site.page(ADDRESS, INVITATION, body, ("families.js",), text + " ".join(found))


def _options(chosen: str) -> str:
    return "".join(f"<option{' selected' if name == chosen else ''}>{html.escape(name)}</option>" for name in EVERY)


def _data(side: Side, shown: set[str]) -> dict[str, Any]:
    boxes = {box: [_entry(entry, shown) for entry in held] for box, held in side.boxes.items()}
    return {"name": side.name, "boxes": boxes}


def _entry(entry: Entry, shown: set[str]) -> dict[str, Any]:
    """What a box holds in some layers: parts with their addresses, lines of a formula, and which layers."""
    parts = [[part.name, address_of(part.module, part.at) if part.module in shown else ""] for part in entry.parts]
    return {"layers": entry.layers, "parts": parts, "lines": [line for line in entry.formula.split("; ") if line]}


def _row(names: list[str], side: Side, is_one_of_two: bool, shown: set[str]) -> str:
    title = html.escape(", ".join(names) + (f": {side.name}" if is_one_of_two else ""))
    cells = ("".join(_told(_entry(entry, shown)) for entry in side.boxes.get(box, ())) for box, _ in BOXES)
    return f'<tr><th scope="row">{title}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'


def _told(entry: dict[str, Any]) -> str:
    links = ", ".join(
        f'<a href="{address}">{html.escape(name)}</a>' if address else html.escape(name)
        for name, address in entry["parts"]
    )
    lines = "".join(f"<br><code>{html.escape(line)}</code>" for line in entry["lines"])
    layers = f"{entry['layers']}: " if entry["layers"] else ""
    return f"<p>{layers}{links or ('' if lines else 'nothing')}{lines}</p>"
