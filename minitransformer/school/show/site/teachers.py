"""For teachers: the guide with its plans, worksheets, slides for each chapter, and the notebooks to download."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ....core.arrays.files import read_json, write
from ..stepper.examples import EXAMPLES
from . import markdown
from .frame import Site, template
from .notebook import Chapter, linked
from .slides import write_slides
from .weeks import linked_exercises, linked_weeks, write_weeks
from .worksheets import write_worksheets

_COMMANDS = "A class that opens a link|Preparing the room|Handing in and grading|Answers".split("|")  # last, folded
_ANSWERS = "\n## The notebooks\n"  # from here on the guide has the answers


def write_teachers(site: Site, chapters: list[Chapter], source: Path, address: str) -> None:
    """Write the guide (the public site has no answers), the slides and the notebooks.

    source: the folder of the repository. address: of the site, for the line that installs the package.
    """
    pages = {chapter.number: f"{markdown.CHAPTERS}{chapter.stem}.html" for chapter in chapters}
    guide = linked((source / "docs" / "teaching.md").read_text(encoding="utf-8"), pages)
    public, answers, rest = guide.replace("| notebooks |", "| chapters |").partition(_ANSWERS)
    text = public + (answers + rest if site.instructor else "")
    own = template("own", chapters=chapters, answers=template("answers", wheel=site.wheel), instructor=site.instructor)
    title, end, rest = markdown.render(text).partition("</h1>\n")
    first, *parts = re.split(r"(?=<h2 )", linked_weeks(linked_exercises(rest + own)))
    parts.sort(key=_has_commands)
    contents = _contents(re.findall(r'<h([23]) id="([^"]+)">(.*?)</h', "".join(parts)))
    steps = EXAMPLES["attention"].record()
    back = next(step.index for step in steps.steps if steps.calls[step.call].backward)
    tomorrow = template("tomorrow", instructor=site.instructor, step=back)
    body = f"{title}{end}{tomorrow}{first}{contents}" + "".join(
        part.replace("<h2", "<details><summary><h2", 1).replace("</h2>", "</h2></summary>", 1) + "</details>\n"
        if _has_commands(part)
        else part
        for part in parts
    )
    write_worksheets(site)
    write_weeks(site, chapters, guide)
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


def _contents(headings: list[tuple[str, str, str]]) -> str:
    """A list of links to the parts of the page."""
    items = "".join(f'<li class="level{n}"><a href="#{name}">{heading}</a></li>\n' for n, name, heading in headings)
    return f'<nav class="contents" aria-label="On this page"><ul class="columns">{items}</ul></nav>\n'


def _download(site: Site, path: Path, address: str, line: str) -> None:
    """A notebook whose first cell installs the package, so that it opens in a hosted service as well."""
    notebook = read_json(path)
    text = f"# On a machine without minitransformer, remove the # from the next line:\n# {line}"
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "id": "install", "metadata": {}}
    notebook["cells"].insert(1, cell | {"outputs": [], "source": text})
    write(site.made(address), json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
