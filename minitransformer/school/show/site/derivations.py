"""A page for each exercise that one derives on paper: the start, a field that marks each line, hints for each line."""

from __future__ import annotations

import html

from ...course.derive import Derivation, tasks
from ...course.derive.marking import start_formulas
from .exercises import SCRIPTS
from .frame import Site, template
from .notebook import Chapter, Place
from .siblings import in_turn, linked, on_paper

_SYMBOLS = (  # what a key shows and puts in, and its name
    ("∂", "partial derivative"), ("∑", "sum"), ("δ", "delta"), ("_", "subscript"), ("=", "equals"), ("(", "bracket"),
    (")", "end of bracket"), ("/", "divided by"), ("-", "minus"), ("^", "power"), ("ᵀ", "transpose"),
    ("⊙", "entry by entry"), ("√", "root"), ("σ", "sigma"), ("γ", "gamma"), ("β", "beta"), ("μ", "mu"),
    ("ε", "epsilon"), ("θ", "theta"), ("Φ", "capital phi"), ("φ", "phi"), ("≤", "at most"),
)  # fmt: skip


def write_derivations(site: Site, chapters: list[Chapter], found: list[Place]) -> None:
    """Write a page for each exercise. found: those in code."""
    pairs = on_paper(found)
    addresses = [(f"exercises/{name}.html", exercise.title) for name, exercise in tasks().items()]
    for exercise, (path, _) in zip(tasks().values(), addresses, strict=True):
        (chapter,) = (each for each in chapters if each.number == exercise.chapter)
        link = f'<a href="../chapters/{chapter.stem}.html">{html.escape(chapter.title)}</a>'
        codes = [(f"exercises/{code.exercise.name}.html", code.title) for code, paper in pairs if paper is exercise]
        body = _page(exercise, link + linked(codes, " · In code:"), in_turn(addresses, path), site)
        site.page(path, exercise.title, body, (*SCRIPTS, "exercise.js"), text=None)
        site.index(path, f"{exercise.title} (on paper)", exercise.statement)


def _page(exercise: Derivation, chapter: str, near: str, site: Site) -> str:
    given = [line for line in exercise.start.splitlines() if line.startswith("given ")]
    hints = {f"Hint for step {n}": f"<p>{html.escape(hint)}</p>" for n, (_, hint) in enumerate(exercise.model, 1)}
    return template(
        "derive",
        name=exercise.name,
        chapter=chapter,
        title=exercise.title,
        statement=exercise.statement,
        given=given,
        start=start_formulas(exercise),
        text=exercise.start,
        find=", ".join(exercise.finish),
        hints=hints,
        solution=exercise.solution() if site.instructor else "",
        keys=_SYMBOLS,
        needs=site.needs(),
        near=near,
    )
