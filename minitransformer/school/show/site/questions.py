"""Five questions for each chapter, with their key: to ask a class, which raises letters, to answer alone, to print."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from ...course.examination import LETTERS, Concept, of_chapter
from ...course.worksheets.numbers import Draw
from .frame import Site, template
from .notebook import Chapter

ASK = '<button type="button" class="poll" hidden>Count the hands</button>'  # poll.js shows it, and says what follows


def write_questions(site: Site, chapters: list[Chapter]) -> None:
    """Write the page of each chapter."""
    for chapter in chapters:
        draw = Draw(f"questions/{chapter.number}")  # the same letters each time: a class may speak of them
        asked = [_question(concept, concept.options(draw)) for concept in of_chapter(chapter.number)]
        title = f"Questions: {chapter.title}"
        body = template("questions", stem=chapter.stem, title=html.escape(title), ask=ASK, questions="".join(asked))
        site.page(address_of(chapter), title, body, ("poll.js",), text=None)


def address_of(chapter: Chapter) -> str:
    """Where the questions of a chapter are."""
    return f"questions/{chapter.stem}.html"


def lettered(options: Sequence[str], hidden: bool = False) -> str:
    """A list whose items have the letters A, B, ..."""
    items = "".join(f"<li>{_typeset(option)}</li>\n" for option in options)
    return f'<ol class="options"{" hidden" if hidden else ""}>\n{items}</ol>\n'


def _typeset(text: str) -> str:
    """A text as HTML, in which d_k has a subscript."""
    return re.sub(r"\b([A-Za-z])_(\w+)", r"<var>\1</var><sub>\2</sub>", html.escape(text, quote=False))


def _question(concept: Concept, options: list[str]) -> str:
    letters = dict(zip(options, LETTERS, strict=True))
    others = "".join(
        f"<li>Whoever says {letters[option]} {_typeset(concept.wrong[option])}.</li>\n"
        for option in options
        if option != concept.right
    )
    key = f"<p><strong>{letters[concept.right]}</strong> is right.</p>\n<ul>{others}</ul>"
    return (
        f"<li><p>{_typeset(concept.text)}</p>\n{lettered(options)}"
        f'<details class="key"><summary>Answer</summary>\n{key}</details></li>\n'
    )
