"""A page for each exercise that one derives on paper: the start, a field that marks each line, hints for each line."""

from __future__ import annotations

import html

from ...course.derive import tasks
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
        codes = [(f"exercises/{code.exercise.name}.html", code.title) for code, paper in pairs if paper is exercise]
        hints = {f"Hint for step {n}": f"<p>{html.escape(hint)}</p>" for n, (_, hint) in enumerate(exercise.model, 1)}
        parts = {"start": start_formulas(exercise), "hints": hints, "codes": linked(codes, " · In code:")}
        parts |= {"site": site, "chapter": chapter, "keys": _SYMBOLS, "near": in_turn(addresses, path)}
        body = template("derive", exercise=exercise, **parts)
        site.page(path, exercise.title, body, (*SCRIPTS, "exercise.js"), text=None)
        site.index(path, f"{exercise.title} (on paper)", exercise.statement)
