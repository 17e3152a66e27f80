"""Slides for each chapter, from what its notebook marks: one idea, question or formula beside one picture.

A mark in a notebook's source (notebooks/build.py says how) puts a piece of its text or the output of a cell on a slide.
The heading above is the title. A question ends its slide, so that nothing answers it; a slide that has text and an
output is full. What a question asks about stands with it: an output that is given, or the code that will answer.
A class raises letters: those of the choices or, where there are none, of what the lecturer types.
"""

import html
import itertools
import re
from dataclasses import dataclass, field
from typing import Any

from ...course.exercises import EXERCISES
from . import markdown
from .chapters import Chapter, outputs_html, source_of
from .frame import Site, template
from .notebook import PICTURE
from .predictions import fields_of

MOST = 25  # slides of a chapter: two minutes for each
MOST_WORDS = 60  # of the text of a slide
GIVEN, ASKED = {"slide-given", "slide-given-code"}, "slide-asked"  # a cell that a question is about, and one it asks of
_WITH_CODE = {"slide-code", "slide-given-code"}
# Words of a question that need what they point at, and words of any slide for what only the chapter has.
_POINTS = re.compile(
    r"\b(these|those(?! of)|all three|of the three(?! terms)|order the three|like this|that loss|for each:|will each|"
    r"our function|its sizes|this (?:table|\d+ ×)|same three|such an?|unrounded|"
    r"both(?! (?:heads|masked|ways|directions)))",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"\b(above(?! zero)|below:|before you run|write your|(?:the|this) cells? (?:above|after|before|below)|next cells?|"
    r"that check|(?:left|right) picture)",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"\$\$|^[-*|] |`|\(a\)", re.MULTILINE)  # a formula, a list, a table, code
_TITLE = re.compile(r"^#{2,3} (?:\d+\.\d+ )?(.+)$", re.MULTILINE)
_ID = re.compile(r'(<h\d) id="[^"]*"')


@dataclass
class Slide:
    """title; kind: "title", "question" or "idea"; texts: Markdown; output: HTML, or ""; given: whether that is what a
    question is about; answer: what a question should be answered with, as in predictions.py.
    """

    title: str
    kind: str = "idea"
    texts: list[str] = field(default_factory=list)
    output: str = ""
    given: bool = False
    answer: str = ""

    @property
    def fields(self) -> list[dict[str, Any]]:
        """What a class chooses from."""
        return fields_of(self.answer)

    def has_room(self, text: str) -> bool:
        """Whether this text fits beside what is there: a question has no output that would answer it."""
        words = sum(len(markdown.plain(each).split()) for each in (*self.texts, text))
        full = bool(self.output) and not self.given and (bool(self.texts) or markdown.PREDICT in text)
        return self.kind == "idea" and words <= MOST_WORDS and not full

    def points_at_nothing(self) -> str:
        """A word of its text that points at what the slide does not show, or ""."""
        text = "\n".join(self.texts)
        for each, after in itertools.zip_longest(self.texts, self.texts[1:], fillvalue=""):
            if each.rstrip().endswith((":", ",")) and not self.output and not _OBJECT.match(after):
                return each.split()[-1]  # it announces what is not there
        if (found := _ELSEWHERE.search(text)) is not None:
            return found[0]
        pointing = _POINTS.search(text) if self.kind == "question" else None
        return pointing[0] if pointing is not None and not self.output and not _OBJECT.search(text) else ""


def write_slides(site: Site, chapters: list[Chapter]) -> None:
    """Write the page of slides of each chapter."""
    for chapter in chapters:
        slides = slides_of(site, chapter)
        body = _ID.sub(r"\1", template("slides", stem=chapter.stem, slides=slides))
        site.page(f"slides/{chapter.stem}.html", f"Slides: {chapter.title}", body, ("poll.js", "slides.js"))


def slides_of(site: Site, chapter: Chapter) -> list[Slide]:
    """The slides of a chapter: its title and goals, what is marked, its exercises.

    Raises ValueError for a question without what it asks about.
    """
    goals = re.search(r"^[-*] .*?(?=\n\n|\Z)", source_of(chapter.cells[0]), re.MULTILINE | re.DOTALL)
    slides = [Slide(chapter.title, "title", [goals[0]] if goals else [])]
    title = chapter.title
    for cell in chapter.cells:
        if cell["cell_type"] == "markdown":
            for heading, text in _marked(cell):
                if heading:
                    title = heading
                    continue
                if slides[-1].title != title or not slides[-1].has_room(text):
                    slides.append(Slide(title))
                slides[-1].texts.append(text)
                if markdown.PREDICT in text:
                    slides[-1].kind, slides[-1].answer = "question", cell["metadata"].get("answer", "")
            continue
        tags = set(cell["metadata"].get("tags", []))
        if ASKED in tags:
            slides[-1].output, slides[-1].given = _code(cell), True
        if {"slide", "slide-code", *GIVEN} & tags:
            if slides[-1].kind != "idea" or slides[-1].output or slides[-1].title != title or GIVEN & tags:
                slides.append(Slide(title, given=bool(GIVEN & tags)))
            slides[-1].output = _output(site, chapter, cell, title)
    for i, slide in enumerate(slides, 1):
        if word := slide.points_at_nothing():
            raise ValueError(f"slide {i} of {chapter.stem}, {slide.title!r}: {word!r} is not on it: {slide.texts}")
    items = "".join(
        f'<li>{number} <a href="../exercises/{name}.html">{html.escape(EXERCISES[name].title)}</a></li>\n'
        for name, number in chapter.numbered().items()
    )
    return [*slides, Slide("Exercises", output=f"<ul>{items}</ul>")] if items else slides


def _marked(cell: dict[str, Any]) -> list[tuple[str, str]]:
    """The headings and the marked pieces of a cell of text, in order: (heading, "") or ("", piece)."""
    text, found = source_of(cell), []
    place = 0
    for piece in cell["metadata"].get("slides", []):
        begin = max(text.find(piece, place), place)
        found += [(heading[1], "") for heading in _TITLE.finditer(text, place, begin)]
        found.append(("", re.sub(r"^> ?", "", piece, flags=re.MULTILINE)))
        place = begin
    return [*found, *((heading[1], "") for heading in _TITLE.finditer(text, place))]


def _output(site: Site, chapter: Chapter, cell: dict[str, Any], title: str) -> str:
    code = _code(cell) if _WITH_CODE & set(cell["metadata"]["tags"]) else ""
    shown = outputs_html(site, chapter, cell).replace(PICTURE, f"Picture: {html.escape(markdown.plain(title))}")
    return code + shown.replace(' loading="lazy"', "")


def _code(cell: dict[str, Any]) -> str:
    return f'<pre class="code" tabindex="0">{html.escape(source_of(cell))}</pre>'
