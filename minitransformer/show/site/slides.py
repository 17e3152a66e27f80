"""Slides for each chapter: headings, formulas, tables, lists, questions, code, and the beginning of long texts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from ...course.exercises import EXERCISES
from . import markdown
from .chapters import Chapter, code_cell, exercise_in, source_of
from .frame import Site

MOST_WORDS = 40  # a paragraph that has no more is kept whole
_WHOLE = re.compile(r"#|\||\$\$|[-*] |\d+\. |```| ")  # how a block that is no paragraph begins
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


def write_slides(site: Site, chapters: list[Chapter]) -> None:
    """Write the page of slides of each chapter."""
    for chapter in chapters:
        parts = _parts(site, chapter)
        link = f'<a href="../chapters/{chapter.stem}.html">Chapter</a>'
        body = "".join(
            f'<section class="slide" id="{i}" tabindex="-1" aria-label="Slide {i}: {html.escape(chapter.title)}">'
            f"<div>{part}</div>"
            f'<p class="number">{link} {i} / {len(parts)}</p></section>\n'
            for i, part in enumerate(parts, 1)
        )
        site.page(f"slides/{chapter.stem}.html", f"Slides: {chapter.title}", body, ("slides.js",))


def _parts(site: Site, chapter: Chapter) -> list[str]:
    """What each slide shows: a heading with its text, or a cell of code with its outputs."""
    parts: list[str] = []
    for cell in chapter.cells:
        text = source_of(cell)
        if cell["cell_type"] == "markdown":
            texts = re.split(r"^(?=#)", text, flags=re.MULTILINE)
            parts += [markdown.render(shortened(each)) for each in texts if each.strip()]
        elif not _is_empty(cell):
            parts.append(code_cell(site, chapter, cell))
        elif name := exercise_in(cell):
            title = html.escape(EXERCISES[name].title)
            parts[-1] += f'<p>Exercise: <a href="../exercises/{name}.html">{title}</a></p>\n'
    return [re.sub(r'(<h\d) id="[^"]*"', r"\1", part).replace(' loading="lazy"', "") for part in parts]


def _is_empty(cell: dict[str, Any]) -> bool:
    """Whether a cell of code has nothing to show: it imports, or it waits for the student's answer."""
    code = source_of(cell)
    imports = not cell["outputs"] and re.search(r"^(import|from) ", code, re.MULTILINE)
    return bool(imports) or "raise NotImplementedError" in code or "no answer yet" in json.dumps(cell["outputs"])


def shortened(text: str) -> str:
    """The text with long paragraphs cut: their first sentence, and those after it up to 40 words. All else is kept."""
    return "\n\n".join(
        block if _WHOLE.match(block) or markdown.PREDICT in block else " ".join(_first(block))
        for block in re.split(r"\n\s*\n", text)
    )


def _first(paragraph: str) -> Iterator[str]:
    words = 0
    for sentence in _SENTENCE_END.split(paragraph):
        words += len(sentence.split())
        if words > MOST_WORDS and words > len(sentence.split()):
            return
        yield sentence
