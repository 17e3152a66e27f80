"""The notebooks as chapters: text, cells with their outputs, and a box for each prediction."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...arrays.files import read_json, write
from ...course.exercises import EXERCISES
from . import markdown
from .frame import Site
from .predictions import question

_THREADS = (
    "<p><strong>Most cells of this chapter do not run in a browser</strong>: its ranks are threads, which Python does "
    "not have there. Read the outputs below, and run the notebook in Python on a computer. The pages of its exercises "
    "run here.</p>\n"
)
_WHEN_RIGHT = "When it is right"  # so begins a text after a check that tells the answer
# "notebook 2", "notebooks 2 (VJPs), 6 and 8 to 12"
_ABOUT = r"(?:\s+\([^()]*\))?"
_MENTIONED = re.compile(rf"\b([Nn])otebook(s?)(\s+)(\d+{_ABOUT}(?:(?:,|\s+and|\s+to)\s+\d+{_ABOUT})*)")
_STUB = re.compile(r"^def (\w+)\(", re.MULTILINE)
_NUMBER = re.compile(r"^### (\d+\.\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Chapter:
    """A notebook. stem: the name of its file without the ending."""

    stem: str
    cells: list[dict[str, Any]]

    @property
    def title(self) -> str:
        return markdown.headings(source_of(self.cells[0]))[0][2]

    def numbered(self, empty: bool = False) -> dict[str, str]:
        """The exercises in its cells, each with the number in the heading above it, such as "7.1", or "".

        empty: only those whose function is still to be written, not those that are to be repaired.
        """
        found, number = {}, ""
        for cell in self.cells:
            numbers = _NUMBER.findall(source_of(cell)) if cell["cell_type"] == "markdown" else []
            number = numbers[-1] if numbers else number
            if (name := exercise_in(cell)) and (not empty or "NotImplementedError" in source_of(cell)):
                found[name] = number
        return found


def read(folder: Path) -> list[Chapter]:
    """The notebooks of a folder, in order. Raises ValueError if it has none, or for a file that is no notebook."""
    found = []
    paths = sorted(folder.glob("[0-9]*.ipynb"))
    pages = {int(path.stem.partition("_")[0]): f"{markdown.CHAPTERS}{path.stem}.html" for path in paths}
    for path in paths:
        cells = read_json(path).get("cells")
        if not cells or cells[0].get("cell_type") != "markdown":
            raise ValueError(f"{path} is no notebook of the course: it must begin with a cell of text")
        for cell in cells:
            if cell["cell_type"] == "markdown":
                cell["source"] = linked(source_of(cell), pages)
        found.append(Chapter(path.stem, cells))
    if not found:
        raise ValueError(f"{folder} has no notebooks; --source names the folder of the repository, which has them")
    return found


def linked(text: str, pages: dict[int, str]) -> str:
    """The text with its mentions of notebooks as links to the chapters of the site. pages: address of each number."""

    def chapters(match: re.Match[str]) -> str:
        word = f"{'C' if match[1] == 'N' else 'c'}hapter{match[2]}{match[3]}"
        if match[4].isdecimal():
            return f"[{word}{match[4]}]({pages[int(match[4])]})"
        return word + re.sub(r"(?<!\S)\d+(?![^(]*\))", lambda n: f"[{n[0]}]({pages[int(n[0])]})", match[4])

    return _MENTIONED.sub(chapters, text)


def source_of(cell: dict[str, Any]) -> str:
    """The text of a cell. In a notebook a text may be a list of lines."""
    return "".join(cell["source"])


def exercise_in(cell: dict[str, Any]) -> str:
    """The exercise whose function a cell of code defines, or ""."""
    if cell["cell_type"] != "code":
        return ""
    return next((name for name in _STUB.findall(source_of(cell)) if name in EXERCISES), "")


def write_chapters(site: Site, chapters: list[Chapter]) -> None:
    """Write a page for each chapter, and the list of all."""
    for i, chapter in enumerate(chapters):
        near = [(chapters[j].stem, chapters[j].title) for j in (i - 1, i + 1) if 0 <= j < len(chapters)]
        body = "".join(_page(site, chapter, near))
        title = chapter.title
        scripts = ("python.js", "editor.js", "predictions.js", "chapter.js")
        text = markdown.plain(source_of(chapter.cells[0]))
        site.page(f"chapters/{chapter.stem}.html", title, body, scripts, text)
        for cell in chapter.cells:
            if cell["cell_type"] == "markdown":
                for level, name, heading in markdown.headings(source_of(cell)):
                    if level > 1:
                        address = f"chapters/{chapter.stem}.html#{name}"
                        site.index(address, f"{heading} ({title})", markdown.plain(source_of(cell)))
    items = "".join(f'<li><a href="{each.stem}.html">{html.escape(each.title)}</a></li>\n' for each in chapters)
    body = f'<h1>The book</h1>\n<p>Every cell can be changed and run where it is.</p>\n<ul class="columns">{items}</ul>'
    site.page("chapters/index.html", "The book", body)


def _page(site: Site, chapter: Chapter, near: list[tuple[str, str]]) -> Iterator[str]:
    yield f'<article data-chapter="{chapter.stem}">\n<section class="part">\n'
    for i, cell in enumerate(chapter.cells):
        text = source_of(cell)
        if cell["cell_type"] == "code":
            yield code_cell(site, chapter, cell)
        elif text.startswith("## Exercises"):
            yield markdown.render(text).replace("</h2>", f"</h2>\n{_handed_in(chapter)}", 1)
        elif text.startswith(_WHEN_RIGHT):
            yield _after(markdown.render(text), source_of(chapter.cells[i - 1]))
        else:
            yield markdown.render(text)
        if i == 0:
            yield _tools(chapter)
            yield _THREADS if any("in_threads(" in source_of(each) for each in chapter.cells) else ""
        if cell["cell_type"] == "markdown" and markdown.PREDICT in text:
            yield question(cell["id"], cell["metadata"].get("answer", ""))
            yield '</section>\n<section class="part">\n'
    yield '</section>\n<p id="covered" hidden>The rest is covered until you have answered. '
    yield '<button type="button" id="show-all">Show everything</button></p>\n'
    links = " · ".join(f'<a href="{stem}.html">{html.escape(title)}</a>' for stem, title in near)
    yield f'<nav aria-label="Chapters"><p>{links}</p></nav></article>'


def _after(text: str, check: str) -> str:
    """A text that tells the answer of the exercise checked before it, covered until the check says right."""
    name = check.partition('course.check("')[2].partition('"')[0]
    summary = "<summary>Open this when your function is right: it tells the answer</summary>"
    return f'<details class="after" data-exercise="{name}">{summary}{text}</details>\n'


def _tools(chapter: Chapter) -> str:
    headings = [found for cell in chapter.cells if cell["cell_type"] == "markdown" for found in _second(cell)]
    items = "".join(f'<li><a href="#{name}">{html.escape(text)}</a></li>' for name, text in headings)
    return (
        f'<details class="contents"><summary>In this chapter</summary><ul>{items}</ul></details>\n'
        '<div class="buttons"><button type="button" id="run-all" hidden>Run all cells</button>'
        '<button type="button" class="save" hidden>Save my work</button>'
        f'<a href="../slides/{chapter.stem}.html">Slides</a>'
        f'<a href="../download/student/{chapter.stem}.ipynb" download>Notebook</a></div>\n'
    )


def _handed_in(chapter: Chapter) -> str:
    """Which of the chapter's exercises are handed in."""
    names = [f"{number} <code>{name}</code>".lstrip() for name, number in chapter.numbered().items()]
    return (
        f'<p class="note">To hand in: {", ".join(names)}. "Save my work" above puts them into a file. Tasks without a '
        "check, in other cells or on paper, and your predictions are for yourself.</p>"
    )


def _second(cell: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text) for level, name, text in markdown.headings(source_of(cell)) if level == 2]


def code_cell(site: Site, chapter: Chapter, cell: dict[str, Any]) -> str:
    """A cell of code with its outputs."""
    exercise = exercise_in(cell)
    mark = f' data-exercise="{exercise}"' if exercise else ""
    outputs = "".join(_output(site, chapter, f"{cell['id']}-{i}", out) for i, out in enumerate(cell["outputs"]))
    link = ""
    if exercise:
        title = html.escape(EXERCISES[exercise].title)
        link = f'<p class="note">With hints and a verdict: <a href="../exercises/{exercise}.html">{title}</a></p>\n'
    return (
        f'{link}<div class="cell" data-cell="{cell["id"]}"{mark}><pre class="code" tabindex="0">'
        f'{html.escape(source_of(cell))}</pre><div class="output">{outputs}</div></div>\n'
    )


def _output(site: Site, chapter: Chapter, name: str, output: dict[str, Any]) -> str:
    """A stored output. Its HTML is the course's own; a picture becomes a file, so that the page stays small."""
    data = output.get("data", {})
    if "image/png" in data:
        path = f"pictures/{chapter.stem}-{name}.png"
        write(site.made(path), base64.b64decode("".join(data["image/png"])))
        words = output.get("metadata", {}).get("image/png", {}).get("alt") or "The picture that this cell draws"
        return f'<img src="../{path}" alt="{html.escape(words, quote=True)}" loading="lazy">\n'
    if "text/html" in data:
        return f'<div class="wide" tabindex="0" role="group" aria-label="Output">{"".join(data["text/html"])}</div>\n'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'<pre tabindex="0">{html.escape(text)}</pre>\n'
