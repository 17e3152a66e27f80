"""For teachers: the guide with its plans, worksheets, slides for each chapter, and the notebooks to download."""

import json
import re
from pathlib import Path
from typing import Any

from ....core.arrays.files import read_json, write
from ...course.exercises import EXERCISES
from ..stepper.examples import EXAMPLES
from . import markdown
from .frame import Site, template
from .notebook import Chapter, linked
from .slides import write_slides
from .worksheets import write_worksheets

_COMMANDS = "A class that opens a link|Preparing the room|Handing in and grading|Answers".split("|")  # last, folded
_ANSWERS = "\n## The notebooks\n"  # from here on the guide has the answers

_TABLES = ("Twelve weeks", "Outcomes and papers")  # their rows begin with the week
_EXERCISE = re.compile(r"<code>(\w+)</code>")
_ROW = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def write_teachers(site: Site, chapters: list[Chapter], source: Path, address: str) -> None:
    """Write the guide (the public site has no answers), the slides and the notebooks.

    source: the folder of the repository. address: of the site, for the line that installs the package.
    """
    pages = {chapter.number: f"{markdown.CHAPTERS}{chapter.stem}.html" for chapter in chapters}
    guide = linked((source / "docs" / "teaching.md").read_text(encoding="utf-8"), pages)
    public, answers, rest = guide.replace("| notebooks |", "| chapters |").partition(_ANSWERS)
    text = public + (answers + rest if site.instructor else "")
    own = template("own", chapters=chapters, wheel=site.wheel, instructor=site.instructor)
    title, _, rest = markdown.render(text).partition("</h1>\n")
    first, *parts = re.split(r"(?=<h2 )", _linked_weeks(_linked_exercises(rest + own)))
    parts.sort(key=_has_commands)
    headings = re.findall(r'<h([23]) id="([^"]+)">(.*?)</h', "".join(parts))
    steps = EXAMPLES["attention"].record()
    back = next(step.index for step in steps.steps if steps.calls[step.call].backward)
    shown = {"title": title, "first": first, "headings": headings, "step": back, "instructor": site.instructor}
    body = template("teachers", parts=[(part, _has_commands(part)) for part in parts], **shown)
    write_worksheets(site)
    _write_weeks(site, chapters, guide)
    site.page("teachers/index.html", "For teachers", body, text=None)
    site.index_sections("teachers/index.html", "For teachers", [public])
    write_slides(site, chapters)
    line = f"%pip install {address.rstrip('/') or 'ADDRESS-OF-THE-SITE'}/{site.wheel}"
    for chapter in chapters:
        name = f"{chapter.stem}.ipynb"
        _download(site, source / "notebooks" / "student" / name, f"download/student/{name}", line)
        _download(site, source / "notebooks" / name, f"download/{chapter.stem}_with_outputs.ipynb", line)


def _has_commands(part: str) -> bool:
    """Whether a part of the page is about commands."""
    return any(part.partition("</h2>")[0].endswith(f">{name}") for name in _COMMANDS)


def _download(site: Site, path: Path, address: str, line: str) -> None:
    """A notebook whose first cell installs the package, so that it opens in a hosted service as well."""
    notebook = read_json(path)
    text = f"# On a machine without minitransformer, remove the # from the next line:\n# {line}"
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "id": "install", "metadata": {}}
    notebook["cells"].insert(1, cell | {"outputs": [], "source": text})
    write(site.made(address), json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


# ---- The weeks of the term: a part of one page for each, made from the tables of the guide. ----


def _write_weeks(site: Site, chapters: list[Chapter], guide: str) -> None:
    """Write the page of the weeks. guide: the text with the tables."""
    plan, outcomes = (
        {int(week): re.split(r"\s*\|\s*", row) for week, row in _ROW.findall(_section(guide, name))} for name in _TABLES
    )
    weeks = []
    for week, (notebooks, *row) in plan.items():
        spans = re.findall(r"(\d+)(?: to (\d+))?", notebooks)
        numbers = [n for first, last in spans for n in range(int(first), int(last or first) + 1)]
        lessons = [chapter for n in numbers for chapter in chapters if chapter.number == n]
        weeks.append((week, notebooks, len(numbers), lessons, [*outcomes[week], *row]))
    site.page("teachers/weeks.html", "The term, week by week", _linked_exercises(template("weeks", weeks=weeks)))


def _linked_weeks(page: str) -> str:
    """The guide's page, in which each week of the tables is a link to its part of the page of weeks."""
    pieces = re.split(r"(?=<h[23] )", page)
    return "".join(
        re.sub(r"<tr>\n<td>(\d+)</td>", r'<tr>\n<td><a href="weeks.html#week-\1">\1</a></td>', piece)
        if any(f">{name}</h3>" in piece for name in _TABLES)
        else piece
        for piece in pieces
    )


def _linked_exercises(page: str) -> str:
    """HTML in which the name of each exercise is a link to its page."""
    link = '<a href="../exercises/{0}.html"><code>{0}</code></a>'
    return _EXERCISE.sub(lambda code: link.format(code[1]) if code[1] in EXERCISES else code[0], page)


def _section(guide: str, name: str) -> str:
    """The text under a heading of the third level."""
    return guide.partition(f"### {name}\n")[2].partition("\n#")[0]
