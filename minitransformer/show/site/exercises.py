"""A page for each exercise: statement, editor, verdict, and three hints, each telling more than the one before."""

from __future__ import annotations

import ast
import html
import itertools
import json
import re
from dataclasses import dataclass

from ...course.exercise import Exercise
from ...course.exercises import EXERCISES
from . import markdown
from .chapters import Chapter, source_of
from .frame import Site

_FILES = (
    '<button type="button" class="save" hidden>Save my work</button>\n'
    '<label hidden>Open saved work <input type="file" class="open" accept=".ipynb"></label>'
)
_SCRIPTS = ("python.js", "editor.js", "progress.js")


@dataclass(frozen=True)
class Place:
    """Where an exercise belongs: its chapter, and its number there, such as "7.1", or "" if it has none."""

    exercise: Exercise
    chapter: Chapter
    number: str

    @property
    def title(self) -> str:
        return f"{self.number} {self.exercise.title}".lstrip()


def places(chapters: list[Chapter]) -> list[Place]:
    """All exercises in the order of the chapters.

    An exercise belongs to the first chapter that has an empty cell for it; otherwise to one whose text names it;
    otherwise to that of its theme, the exercises in the same file.
    """
    found: dict[str, Place] = {}
    for chapter in chapters:
        for name, number in chapter.numbered(empty=True).items():
            found.setdefault(name, Place(EXERCISES[name], chapter, number))
    for chapter in chapters:
        for name in re.findall(r"`(\w+)`", " ".join(map(source_of, chapter.cells))):
            if name in EXERCISES:
                found.setdefault(name, Place(EXERCISES[name], chapter, ""))
    themes = {place.exercise.reference.__module__: place.chapter for place in reversed(found.values())}
    for name, exercise in EXERCISES.items():
        if (theme := themes.get(exercise.reference.__module__)) is not None:
            found.setdefault(name, Place(exercise, theme, ""))
    return sorted(found.values(), key=lambda place: chapters.index(place.chapter))


def write_exercises(site: Site, chapters: list[Chapter]) -> None:
    """Write a page for each exercise, and the list of all."""
    found = places(chapters)
    for place, following in itertools.zip_longest(found, found[1:]):
        body = _page(place, following, site.instructor)
        path = f"exercises/{place.exercise.name}.html"
        site.page(path, place.exercise.title, body, (*_SCRIPTS, "exercise.js"), place.exercise.statement)
    groups = ""
    for chapter, members in itertools.groupby(found, key=lambda place: place.chapter):
        items = "".join(
            f'<li data-exercise="{place.exercise.name}"><a href="{place.exercise.name}.html">'
            f'{html.escape(place.title)}</a> <span class="state"></span></li>\n'
            for place in members
        )
        groups += f'<section><h2><a href="../chapters/{chapter.stem}.html">{html.escape(chapter.title)}</a></h2>\n'
        groups += f"<ul>{items}</ul></section>\n"
    body = (
        "<h1>Exercises</h1>\n<p>Write a derivation as code; the check says which term is wrong. Your work stays in "
        "this browser. Save it as a file to hand it in: the file holds your code for these exercises, and nothing "
        "else. Tasks in other cells of the chapters and predictions are for yourself.</p>\n"
        f'<div class="buttons">{_FILES}</div>\n{progress(found)}<div class="columns" id="exercise-list">{groups}</div>'
    )
    site.page("exercises/index.html", "Exercises", body, _SCRIPTS)


def progress(found: list[Place]) -> str:
    """The line that says how many exercises are right, and with which one to go on."""
    data = html.escape(json.dumps([[place.exercise.name, place.title] for place in found]), quote=True)
    return f'<p id="progress" data-exercises="{data}" hidden></p>\n'


def _page(place: Place, following: Place | None, instructor: bool) -> str:
    exercise = place.exercise
    chapter = f'<a href="../chapters/{place.chapter.stem}.html">{html.escape(place.chapter.title)}</a>'
    given, wanted = (html.escape(", ".join(names)) for names in (exercise.arguments, exercise.outputs))
    stub = f"def {exercise.name}({given}):\n    # your derivation here\n    raise NotImplementedError\n"
    where = f"Read {chapter}. You have {given} and return {wanted}: write the shape of each beside it."
    hints = [where, markdown.docstring(exercise.hint()), _outline(exercise)]
    shown = "".join(
        f'<details class="hint"><summary>Hint {i} of 3</summary>{hint}</details>\n' for i, hint in enumerate(hints, 1)
    )
    if instructor:
        solution = html.escape(exercise.solution())
        shown += f'<details><summary>Solution</summary><pre tabindex="0">{solution}</pre></details>\n'
    next_one = ""
    if following is not None:
        next_one = f'Next: <a href="{following.exercise.name}.html">{html.escape(following.title)}</a>. '
    return f"""<article data-exercise="{exercise.name}"><p class="note">Chapter {chapter}</p>
<h1>{html.escape(place.title)}</h1>
<div class="two"><section aria-label="Statement"><p><code>{html.escape(exercise.signature)}</code></p>
<div>{markdown.docstring(exercise.statement)}</div>
<h2>Hints</h2>
{shown}</section>
<section aria-label="Your answer"><pre class="code" tabindex="0">{stub}</pre>
<div class="buttons"><button type="button" id="check" hidden>Check</button>
<button type="button" id="reset" hidden>Start again</button>
{_FILES}</div>
<p class="note"><code>np</code> is NumPy. Shift+Enter checks. What you save holds your code for the exercises with a
check, to hand in.</p>
<div id="verdict" class="output" role="status"></div>
<p id="next" hidden>{next_one}Back to chapter {chapter}.</p></section></div></article>"""


def _outline(exercise: Exercise) -> str:
    """The last hint: the lines of a solution without what they compute."""
    tree = ast.parse(exercise.solution())
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    body = [each for each in function.body if not isinstance(each, ast.Return)]
    if not body:
        names = {part.id for part in ast.walk(function.body[-1]) if isinstance(part, ast.Name)} - {"np"}
        return f"One line is enough. It contains {html.escape(', '.join(sorted(names)))}."
    outline = ast.unparse(ast.fix_missing_locations(_Blank().visit(tree)))
    return f'The lines of one solution, without what they compute:<pre tabindex="0">{html.escape(outline)}</pre>'


class _Blank(ast.NodeTransformer):
    """Replaces the right side of every statement by three dots."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = ast.Constant(...)
        return node

    visit_AugAssign = visit_AnnAssign = visit_Expr = visit_Assign  # type: ignore[assignment]

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if not isinstance(node.value, ast.Name | ast.Tuple):
            node.value = ast.Constant(...)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
        self.generic_visit(node)
        return node
