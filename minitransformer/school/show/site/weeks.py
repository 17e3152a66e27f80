"""The weeks of the term: for each a part of one page, with all that it needs, made from the tables of the guide."""

from __future__ import annotations

import html
import re

from ...course.exercises import EXERCISES
from . import markdown
from .frame import Site
from .notebook import Chapter

_TABLES = ("Twelve weeks", "Outcomes and papers")  # their rows begin with the week
_EXERCISE = re.compile(r"<code>(\w+)</code>")
_ROW = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def write_weeks(site: Site, chapters: list[Chapter], guide: str) -> None:
    """Write the page of the weeks. guide: the text with the tables."""
    plan, outcomes = (
        {int(week): re.split(r"\s*\|\s*", row) for week, row in _ROW.findall(_section(guide, name))} for name in _TABLES
    )
    by_number = {chapter.number: chapter for chapter in chapters}
    parts = []
    for week, (notebooks, homework, prepare, dive, speech) in plan.items():
        can, read = outcomes[week]
        spans = re.findall(r"(\d+)(?: to (\d+))?", notebooks)
        numbers = [n for first, last in spans for n in range(int(first), int(last or first) + 1)]
        items = [by_number[n] for n in numbers if n in by_number]
        rows = [("After it a student can", can), ("Read", read), ("Homework", homework), ("Prepare", prepare)]
        rows += [("Dive into Deep Learning", dive), ("Speech and Language Processing", speech)]
        told = "".join(f"<dt>{name}</dt><dd>{markdown.render(text)}</dd>\n" for name, text in rows if text.strip())
        lessons = "".join(f"<li>{_lesson(chapter)}</li>\n" for chapter in items)
        heading = f'<h2 id="week-{week}">Week {week}: chapter{"s" * (len(numbers) > 1)} {html.escape(notebooks)}</h2>'
        parts.append(f"{heading}\n<ul>{lessons}</ul>\n<dl>{told}</dl>\n")
    links = ", ".join(f'<a href="#week-{week}">{week}</a>' for week in plan)
    body = (
        f'<p class="note"><a href="index.html#the-term">Teaching with minitransformer: the term</a></p>\n'
        f"<h1>The term, week by week</h1>\n<p>Weeks {links}. Each has two hours, as the plan says.</p>\n"
    )
    site.page("teachers/weeks.html", "The term, week by week", body + linked_exercises("".join(parts)))


def linked_weeks(page: str) -> str:
    """The guide's page, in which each week of the tables is a link to its part of the page of weeks."""
    pieces = re.split(r"(?=<h[23] )", page)
    return "".join(
        re.sub(r"<tr>\n<td>(\d+)</td>", r'<tr>\n<td><a href="weeks.html#week-\1">\1</a></td>', piece)
        if any(f">{name}</h3>" in piece for name in _TABLES)
        else piece
        for piece in pieces
    )


def linked_exercises(page: str) -> str:
    """HTML in which the name of each exercise is a link to its page."""
    link = '<a href="../exercises/{0}.html"><code>{0}</code></a>'
    return _EXERCISE.sub(lambda code: link.format(code[1]) if code[1] in EXERCISES else code[0], page)


def _lesson(chapter: Chapter) -> str:
    return (
        f'<a href="../chapters/{chapter.stem}.html">{html.escape(chapter.title)}</a>, '
        f'<a href="../slides/{chapter.stem}.html">slides</a>, '
        f'<a href="../questions/{chapter.stem}.html">questions</a>, '
        f'<a href="../download/student/{chapter.stem}.ipynb" download>notebook</a>'
    )


def _section(guide: str, name: str) -> str:
    """The text under a heading of the third level."""
    return guide.partition(f"### {name}\n")[2].partition("\n#")[0]
