"""The start page: the translator at work, three ways in, the path through the course, and the chapters as cards."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from ....core.arrays.files import write
from . import families, live, markdown
from .exercises import progress
from .frame import Site, own_file, template
from .notebook import Chapter, Place, source_of

_PARTS = (  # title, what it is about, number of its last chapter
    ("Gradients by hand", "What a backward pass is, and how to know that it is right.", 5),
    ("Attention", "Three tokens on the board, forward and backward; then masks, heads and a memory.", 9),
    ("A whole Transformer", "What surrounds attention, and three models that learn.", 13),
    ("Make it run, make it right", "Faster, and without the mistakes that nothing reports.", 16),
    ("Inside trained models", "What heads do, and which of them matter.", 18),
    ("Before and after", "What attention replaced, and what today’s models changed.", 25),
)
_PICTURES = {6: 4, 7: 5, 13: 3, 16: 2, 17: 1}  # which picture of a chapter its card shows, where it is not the first
_ITEMS = re.compile(r"^[-*] .*(?:\n  +.*)*", re.MULTILINE)
_LINK = re.compile(r"</?a\b[^>]*>")
_PATH = (  # what one does, where, what one finds there, what to do with it, minutes
    ("See", "#live", "A translator at work", "Type a number, and watch where each head looks.", 2),
    ("Compute", "chapters/06_attention_by_hand.html", "Attention by hand, a chapter",
     "Three tokens, whole numbers, paper and pencil.", 50),
    ("Step", "steppers/attention.html", "Attention, line by line",
     "Press a key: the next line, forward and then backward, with every number.", 10),
    ("Derive", "chapters/07_attention_backward.html", "Attention backward, a chapter",
     "The gradients of queries, keys and values. Needs chapters 2 and 4.", 50),
    ("Check", "exercises/attention_backward.html", "An exercise that finds the wrong term",
     "Write your derivation as code; the page says what is wrong with it.", 30),
)  # fmt: skip


def write_start(
    site: Site, chapters: list[Chapter], ideas: list[Chapter], found: list[Place], model: Path | None
) -> None:
    """Write the first page, and the page of all chapters. found: all exercises."""
    if model is not None:
        write(site.made("model.js"), live.script(model))
        for name in live.SCRIPTS[1:]:
            write(site.made(name), own_file(name))
    doors = (
        ("See it", _PATH[0][1], _PATH[0][3])
        if model is not None
        else ("Step through it", "steppers/attention.html", "Attention: every number, forward and backward."),
        ("Compute it by hand", "chapters/06_attention_by_hand.html", "Three tokens, whole numbers, a pencil."),
        ("Teach it", "teachers/index.html", "A lesson for tomorrow; plans, slides, worksheets, marks."),
    )
    steps = (step for step in _PATH if model is not None or step[1] != "#live")
    body = template(
        "start",
        needs=site.needs(),
        doors=doors,
        progress=progress(found),
        live=live.part() if model is not None else "",
        path=steps,
        cards=cards(chapters, ideas, ""),
    )
    scripts = ("progress.js", *(live.SCRIPTS if model is not None else ()))
    site.page("index.html", "Start", body, scripts)
    told = "Each chapter takes about 50 minutes, and its exercises 30 to 60 more. Every cell can be changed and run."
    site.page("chapters/index.html", "The book", f"<h1>The book</h1>\n<p>{told}</p>\n{cards(chapters, ideas, '../')}")


def cards(chapters: list[Chapter], ideas: list[Chapter], root: str) -> str:
    """The chapters in their parts, each as a card, and the ideas. root: from the page to the site's folder."""
    shown = [_card(chapter, root) | {"number": chapter.number} for chapter in chapters]
    first, parts = 0, []
    for title, about, last in _PARTS:
        parts.append((title, about, [card for card in shown if first < card["number"] <= last]))
        first = last
    here = [(title, about, cards) for title, about, cards in parts if cards]
    return template("cards", parts=here, ideas=[_card(idea, root) for idea in ideas], root=root, families=families)


def _card(chapter: Chapter, root: str) -> dict[str, Any]:
    pictures = chapter.pictures()
    which = min(_PICTURES.get(chapter.number, 0), len(pictures) - 1)
    after = markdown.render("\n".join(itertools.islice(_ITEMS.findall(source_of(chapter.cells[0])), 3)))
    address, about = f"{root}chapters/{chapter.stem}.html", _LINK.sub("", after)
    picture = f"{root}{pictures[which][0]}" if pictures else ""
    return {"title": chapter.title, "address": address, "picture": picture, "about": about}
