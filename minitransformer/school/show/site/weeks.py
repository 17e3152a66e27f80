"""The weeks of the term: for each a part of one page, with all that it needs, made from the tables of the guide."""

from __future__ import annotations

import re

from ...course.exercises import EXERCISES
from .frame import Site, template
from .notebook import Chapter

_TABLES = ("Twelve weeks", "Outcomes and papers")  # their rows begin with the week
_EXERCISE = re.compile(r"<code>(\w+)</code>")
_ROW = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def write_weeks(site: Site, chapters: list[Chapter], guide: str) -> None:
    """Write the page of the weeks. guide: the text with the tables."""
    plan, outcomes = (
        {int(week): re.split(r"\s*\|\s*", row) for week, row in _ROW.findall(_section(guide, name))} for name in _TABLES
    )
    weeks = []
    for week, (notebooks, homework, prepare, dive, speech) in plan.items():
        can, read = outcomes[week]
        spans = re.findall(r"(\d+)(?: to (\d+))?", notebooks)
        numbers = [n for first, last in spans for n in range(int(first), int(last or first) + 1)]
        rows = [("After it a student can", can), ("Read", read), ("Homework", homework), ("Prepare", prepare)]
        rows += [("Dive into Deep Learning", dive), ("Speech and Language Processing", speech)]
        lessons = [chapter for n in numbers for chapter in chapters if chapter.number == n]
        weeks.append((week, notebooks, len(numbers), lessons, [(name, text) for name, text in rows if text.strip()]))
    site.page("teachers/weeks.html", "The term, week by week", linked_exercises(template("weeks", weeks=weeks)))


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


def _section(guide: str, name: str) -> str:
    """The text under a heading of the third level."""
    return guide.partition(f"### {name}\n")[2].partition("\n#")[0]
