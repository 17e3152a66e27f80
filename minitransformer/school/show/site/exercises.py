"""A page for each exercise: statement, editor, verdict, and three hints, each telling more than the one before.

For one on paper, the start, a field that marks each line, and a hint for each line.
"""

import ast
import html
import json
import re
from typing import Any

from ...course.derive import tasks
from ...course.derive.marking import start_formulas
from ...course.exercise import Exercise
from . import markdown, statement
from .frame import Site, template
from .notebook import Chapter, Place
from .siblings import Siblings, in_turn, linked, listed, module_of, on_paper

_SCRIPTS = ("python.js", "editor.js", "progress.js", "derive.js")


def write_exercises(site: Site, found: list[Place], siblings: Siblings) -> None:
    """Write a page for each exercise, and the list of all."""
    addresses = [(f"exercises/{place.exercise.name}.html", place.title) for place in found]
    papers = on_paper(found)
    for place, (path, _) in zip(found, addresses, strict=True):
        links = siblings.links([module_of(place.exercise.name)], leave_out=path)
        del links["Chapter"]  # its own is above
        same = [(f"exercises/{paper.name}.html", paper.title) for code, paper in papers if code is place]
        body = _page(place, linked(same, " · On paper:"), listed(links) + in_turn(addresses, path), site)
        site.page(path, place.exercise.title, body, (*_SCRIPTS, "exercise.js"), text=None)
        site.index(path, f"{place.exercise.title} (exercise)", markdown.shown(place.exercise.statement))
    body = template("exercises", progress=progress(found), found=found, papers=tasks())
    site.page("exercises/index.html", "Exercises", body, _SCRIPTS)


def write_derivations(site: Site, chapters: list[Chapter], found: list[Place]) -> None:
    """Write a page for each exercise that one derives on paper. found: those in code."""
    pairs = on_paper(found)
    addresses = [(f"exercises/{name}.html", exercise.title) for name, exercise in tasks().items()]
    for exercise, (path, _) in zip(tasks().values(), addresses, strict=True):
        (chapter,) = (each for each in chapters if each.number == exercise.chapter)
        codes = [(f"exercises/{code.exercise.name}.html", code.title) for code, paper in pairs if paper is exercise]
        hints = {f"Hint for step {n}": f"<p>{html.escape(hint)}</p>" for n, (_, hint) in enumerate(exercise.model, 1)}
        parts: dict[str, Any] = {"site": site, "chapter": chapter, "hints": hints, "start": start_formulas(exercise)}
        parts |= {"codes": linked(codes, " · In code:"), "near": in_turn(addresses, path)}
        body = template("derive", exercise=exercise, **parts)
        site.page(path, exercise.title, body, (*_SCRIPTS, "exercise.js"), text=None)
        site.index(path, f"{exercise.title} (on paper)", exercise.statement)


def progress(found: list[Place]) -> str:
    """The names and titles, from which progress.js says how many are right, and with which one to continue."""
    return json.dumps([[place.exercise.name, place.title] for place in found])


def _page(place: Place, paper: str, near: str, site: Site) -> str:
    exercise = place.exercise
    chapter = f'<a href="../chapters/{place.chapter.stem}.html">{html.escape(place.chapter.title)}</a>'
    given, wanted = (html.escape(", ".join(names)) for names in (exercise.arguments, exercise.outputs))
    where = f"Read {chapter}. You have {given} and return {wanted}: write the shape of each beside it."
    names = {*exercise.arguments, *exercise.outputs}
    hints = [where, statement.to_html(exercise.hint(), names), _outline(exercise)]
    told = statement.to_html(exercise.statement, names)
    parts: dict[str, Any] = {"statement": told, "letters": _letters(exercise.statement), "paper": paper, "near": near}
    parts["hints"] = {f"Hint {i} of 3": hint for i, hint in enumerate(hints, 1)}
    return template("exercise", site=site, place=place, exercise=exercise, **parts)


def _letters(text: str) -> str:
    """What the letters in the shapes of a statement count."""
    used = set(re.findall(r"\w+", " ".join(re.findall(r"\([^()]*,[^()]*\)", text))))
    return template("letters", used=used, formula=lambda letter: markdown.formula(statement.tex(letter), False))


def _outline(exercise: Exercise) -> str:
    """The last hint: the lines of a solution without what they compute."""
    tree = ast.parse(exercise.solution())
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    body = [each for each in function.body if not isinstance(each, ast.Return)]
    if not body:
        names = {part.id for part in ast.walk(function.body[-1]) if isinstance(part, ast.Name)} - {"np"}
        return f"One line is enough. It contains {html.escape(', '.join(sorted(names)))}."
    for node in ast.walk(tree):
        match node:
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Expr():
                node.value = ast.Constant(...)
            case ast.Return(value) if not isinstance(value, ast.Name | ast.Tuple):
                node.value = ast.Constant(...)
            case ast.FunctionDef():
                node.returns = None
                for argument in node.args.args:
                    argument.annotation = None
    outline = ast.unparse(tree)
    return f'The lines of one solution, without what they compute:<pre tabindex="0">{html.escape(outline)}</pre>'
