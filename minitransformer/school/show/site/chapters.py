"""The notebooks as chapters: text, cells with their outputs, and a box for each prediction."""

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
        markdown_cells = [cell for cell in chapter.cells if cell["cell_type"] == "markdown"]
        found = [heading for cell in markdown_cells for heading in markdown.headings(source_of(cell))]
        parts = {"headings": [(name, text) for level, name, text in found if level == 2], "near": near, "site": site}
        parts["threads"] = any("in_threads(" in source_of(cell) for cell in chapter.cells)
        body = template("chapter", chapter=chapter, cells=list(_cells(site, chapter)), **parts)
        site.page(address, title, body, used, text=None)
        texts, code = ([source_of(c) for c in chapter.cells if c["cell_type"] == kind] for kind in ("markdown", "code"))
        names = _NAMES.get(str(chapter.number), chapter.stem.replace("_", " "))  # an idea has the name of its folder
        site.index_sections(address, title, texts, names, "\n".join(code))


def _cells(site: Site, chapter: Chapter) -> Iterator[dict[str, Any]]:
    """after: the exercise checked before a text that tells its answer. question: the box below a text, in HTML."""
    before = ""
    for cell in chapter.cells:
        text = source_of(cell)
        if cell["cell_type"] == "code":
            name = exercise_in(cell)
            draws = any("image/png" in output.get("data", {}) for output in cell["outputs"])
            code = {"code": text, "exercise": EXERCISES.get(name), "summary": "" if name else summary(text, draws)}
            yield code | {"id": cell["id"], "outputs": outputs_html(site, chapter, cell), "question": ""}
        else:
            checked = before.partition('course.check("')[2].partition('"')[0]
            asked = question(cell["id"], cell["metadata"].get("answer", "")) if markdown.PREDICT in text else ""
            yield {"text": text, "after": checked if text.startswith(_WHEN_RIGHT) else "", "question": asked}
        before = text


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
