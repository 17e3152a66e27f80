"""The notebooks as chapters: text, cells with their outputs, and a box for each prediction."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator
from typing import Any

from ....core.arrays.files import write
from ...course.exercises import EXERCISES
from . import markdown
from .folding import summary
from .frame import Site, own_file, template
from .notebook import Chapter, exercise_in, picture_of, source_of
from .predictions import question
from .siblings import Siblings, in_turn, listed

# What the field calls the subjects of each chapter, by its number.
_NAMES = dict(re.findall(r"^(\d+): (.+)$", own_file("names.txt"), re.MULTILINE))
_WHEN_RIGHT = "When it is right"  # so begins a text after a check that tells the answer


def write_chapters(site: Site, chapters: list[Chapter], siblings: Siblings) -> None:
    """Write a page for each chapter."""
    addresses = [(f"chapters/{chapter.stem}.html", chapter.title) for chapter in chapters]
    scripts = ("python.js", "editor.js", "predictions.js", "poll.js", "chapter.js")
    for chapter, (address, title) in zip(chapters, addresses, strict=True):
        near = listed(siblings.links(siblings.about(chapter), leave_out=address)) + in_turn(addresses, address)
        used = scripts if chapter.number else ()  # the page of an idea has nothing to run or to answer
        site.page(address, title, "".join(_page(site, chapter, near)), used, text=None)
        texts, code = ([source_of(c) for c in chapter.cells if c["cell_type"] == kind] for kind in ("markdown", "code"))
        names = _NAMES.get(str(chapter.number), chapter.stem.replace("_", " "))  # an idea has the name of its folder
        site.index_sections(address, title, texts, names, "\n".join(code))


def _page(site: Site, chapter: Chapter, near: str) -> Iterator[str]:
    yield f'<article data-chapter="{chapter.stem}">\n<section class="part">\n'
    for i, cell in enumerate(chapter.cells):
        text = source_of(cell)
        if cell["cell_type"] == "code":
            yield code_cell(site, chapter, cell, fold=True)
        elif text.startswith("## Exercises"):
            yield markdown.render(text).replace("</h2>", f"</h2>\n{_handed_in(chapter)}", 1)
        elif text.startswith(_WHEN_RIGHT):
            yield _after(markdown.render(text), source_of(chapter.cells[i - 1]))
        else:
            yield markdown.render(text)
        if i == 0:
            threads = any("in_threads(" in source_of(each) for each in chapter.cells)
            found = [h for each in chapter.cells if each["cell_type"] == "markdown" for h in _second(each)]
            needs = site.needs("matplotlib")
            yield template("contents", chapter=chapter, headings=found, needs=needs, threads=threads)
        if cell["cell_type"] == "markdown" and markdown.PREDICT in text:
            yield question(cell["id"], cell["metadata"].get("answer", ""))
            yield '</section>\n<section class="part">\n'
    yield '</section>\n<p id="covered" hidden>The rest is covered until you have answered. '
    yield '<button type="button" id="show-all">Show everything</button></p>\n'
    yield f"{near}</article>"


def _after(text: str, check: str) -> str:
    """A text that tells the answer of the exercise checked before it, covered until the check says right."""
    name = check.partition('course.check("')[2].partition('"')[0]
    summary = "<summary>Open this when your function is right: it tells the answer</summary>"
    return f'<details class="after" data-exercise="{name}">{summary}{text}</details>\n'


def _handed_in(chapter: Chapter) -> str:
    """Which of the chapter's exercises are handed in."""
    names = [f"{number} <code>{name}</code>".lstrip() for name, number in chapter.numbered().items()]
    return (
        f'<p class="note">To hand in: {", ".join(names)}. "Save my work" above puts them into a file. Tasks without a '
        "check, in other cells or on paper, and your predictions are for you alone.</p>"
    )


def _second(cell: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text) for level, name, text in markdown.headings(source_of(cell)) if level == 2]


def code_cell(site: Site, chapter: Chapter, cell: dict[str, Any], fold: bool = False) -> str:
    """A cell of code with its outputs. fold: whether long code and imports are folded."""
    name, outputs = exercise_in(cell), outputs_html(site, chapter, cell)
    draws = any("image/png" in output.get("data", {}) for output in cell["outputs"])
    said = summary(source_of(cell), draws) if fold and not name else ""
    parts = {"code": source_of(cell), "outputs": outputs, "summary": said, "exercise": EXERCISES.get(name)}
    return template("cell", id=cell["id"], **parts)


def outputs_html(site: Site, chapter: Chapter, cell: dict[str, Any]) -> str:
    """The stored outputs of a cell of code."""
    return "".join(_output(site, chapter, f"{cell['id']}-{i}", output) for i, output in enumerate(cell["outputs"]))


def _output(site: Site, chapter: Chapter, name: str, output: dict[str, Any]) -> str:
    """A stored output. Its HTML is the course's own; a picture becomes a file, so that the page stays small."""
    data = output.get("data", {})
    if "image/png" in data:
        path, words = picture_of(chapter, name, output)
        write(site.made(path), base64.b64decode("".join(data["image/png"])))
        return f'<img src="../{path}" alt="{html.escape(words, quote=True)}" loading="lazy">\n'
    if "text/html" in data:
        inside = markdown.without_empty_headings("".join(data["text/html"]))
        return f'<div class="wide" tabindex="0" role="group" aria-label="Output">{inside}</div>\n'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'<pre tabindex="0">{html.escape(text)}</pre>\n'
