"""The page of the families: which parts each puts into the boxes of figure 1, and two families side by side."""

from typing import Any

from ....ideas.published.families import EVERY
from ..boxes import BOXES, Entry, Side, alike, families
from ..page import as_script_data
from .frame import Site, template
from .modules import address_of, shown_modules

ADDRESS = "families.html"
INVITATION = "Two published models side by side"


def write_families(site: Site) -> None:
    """Write the page. Without scripts it is the table of all families."""
    found, shown = families(), set(shown_modules())
    data = {name: [_data(side, shown) for side in sides] for name, sides in found.items()}
    body = template(
        "families",
        families=EVERY,
        boxes=BOXES,
        data=as_script_data({"boxes": BOXES, "families": data}),
        rows=[(names, data[names[0]]) for names, _ in alike(found)],
    )
    text = "Which parts the families of published models have: norms, positions, attention, feed-forward networks. "
    site.page(ADDRESS, INVITATION, body, ("families.js",), text + " ".join(found))


def _data(side: Side, shown: set[str]) -> dict[str, Any]:
    boxes = {box: [_entry(entry, shown) for entry in held] for box, held in side.boxes.items()}
    return {"name": side.name, "boxes": boxes}


def _entry(entry: Entry, shown: set[str]) -> dict[str, Any]:
    """What a box holds in some layers: parts with their addresses, lines of a formula, and which layers."""
    parts = [[part.name, address_of(part.module, part.at) if part.module in shown else ""] for part in entry.parts]
    return {"layers": entry.layers, "parts": parts, "lines": [line for line in entry.formula.split("; ") if line]}
