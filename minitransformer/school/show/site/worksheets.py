"""The page that makes worksheets, and what its Python makes: one document for a class, with a page for each student."""

import re
from dataclasses import dataclass

from ....core.arrays.files import write
from ...course import examination
from ...course.derive import tasks
from ...course.worksheets import KINDS, make, page, ruled, to_html
from .frame import Site, template

MOST = 200  # students
_READY = 12  # pages of a sheet that is printed as it is
_HEAD = '<link rel="icon" href="data:,">\n<style>@media print { nav { display: none } }</style>\n<title>'
_BACK = """<body>
<nav style="padding: 0.75rem 1rem"><a href="../index.html">minitransformer</a> ›
<a href="../teachers/worksheets.html">Worksheets</a></nav>"""
_SEEDS = (1, 2, 3)  # of the papers that are printed as they are


def write_worksheets(site: Site) -> None:
    """Write the page. Only the instructor's has a button for the key."""
    body = template(
        "worksheets",
        kinds=KINDS,
        needs=site.needs(),
        most=MOST,
        ready=_READY,
        sheets=_write_ready(site),
        instructor=site.instructor,
    )
    site.page("teachers/worksheets.html", "Worksheets", body, ("python.js", "worksheets.js"))


def _write_ready(site: Site) -> dict[str, str]:
    """Write a sheet of each kind and some papers, the instructor's also with answers; return their files and titles."""
    made = {}
    for answers in (False, True) if site.instructor else (False,):
        end = "-answers" if answers else ""
        for kind, about in KINDS.items():
            made[f"{kind}{end}"] = document(kind, 0, about.sizes[0], _READY, answers).html
        made |= {f"{name}{end}": ruled.to_html(one, answers=answers) for name, one in tasks().items()}
        for seed in _SEEDS:
            questions = examination.chosen(range(1, 13), 12, seed)
            paper = examination.paper(questions, seed, answers)
            made[f"examination-{seed}{end}"] = examination.to_html(paper)
            concepts = examination.concepts_paper(seed, answers)
            made[f"concepts-{seed}{end}"] = examination.to_html(concepts)
    for name, text in made.items():
        write(site.made(f"sheets/{name}.html"), text.replace("<title>", _HEAD, 1).replace("<body>", _BACK, 1))
    return {name: re.sub("[-_]", " ", name) for name in sorted(made)}


@dataclass(frozen=True)
class Document:
    """A finished HTML document, which a cell shows as such."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def document(kind: str, seed: int, size: int, students: int, key: bool) -> Document:
    """The sheets of a class, each with the next seed and a line for the name, or their answers.

    Raises ValueError for an unknown kind, size or number of students.
    """
    if not 1 <= students <= MOST:
        raise ValueError(f"the number of students must be from 1 to {MOST}, got {students}")
    return Document(to_html(page(make(kind, each, size), key) for each in range(seed, seed + students)))
