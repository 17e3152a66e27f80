"""The start page: the translator at work, three ways in, the path through the course, and the chapters as cards."""

import itertools
import re
from pathlib import Path
from typing import Any

from ....core.arrays.files import write
from . import families, live, markdown
from .exercises import progress
from .frame import Site, template
from .notebook import Chapter, Place, source_of

_PICTURES = {6: 4, 7: 5, 13: 3, 16: 2, 17: 1}  # which picture of a chapter its card shows, where it is not the first
_ITEMS = re.compile(r"^[-*] .*(?:\n  +.*)*", re.MULTILINE)
_LINK = re.compile(r"</?a\b[^>]*>")


def write_start(
    site: Site, chapters: list[Chapter], ideas: list[Chapter], found: list[Place], model: Path | None
) -> None:
    """Write the first page, and the page of all chapters. found: all exercises."""
    if model is not None:
        write(site.made("model.js"), live.script(model))
    parts = {"progress": progress(found), "cards": cards(chapters, ideas, "")}
    body = template("start", site=site, live=model is not None, first=live.FIRST, **parts)
    scripts = ("progress.js", *(live.SCRIPTS if model is not None else ()))
    site.page("index.html", "Start", body, scripts)
    told = "Each chapter takes about 50 minutes, and its exercises 30 to 60 more. Every cell can be changed and run."
    site.page("chapters/index.html", "The book", f"<h1>The book</h1>\n<p>{told}</p>\n{cards(chapters, ideas, '../')}")


def cards(chapters: list[Chapter], ideas: list[Chapter], root: str) -> str:
    """The chapters in their parts, each as a card, and the ideas. root: from the page to the site's folder."""
    made = {"chapters": [_card(each, root) for each in chapters], "ideas": [_card(each, root) for each in ideas]}
    return template("cards", **made, root=root, families=families)


def _card(chapter: Chapter, root: str) -> dict[str, Any]:
    pictures = chapter.pictures()
    which = min(_PICTURES.get(chapter.number, 0), len(pictures) - 1)
    after = markdown.render("\n".join(itertools.islice(_ITEMS.findall(source_of(chapter.cells[0])), 3)))
    address, about = f"{root}chapters/{chapter.stem}.html", _LINK.sub("", after)
    picture = f"{root}{pictures[which][0]}" if pictures else ""
    return {"number": chapter.number, "title": chapter.title, "address": address, "picture": picture, "about": about}
