"""An exercise to derive on paper as a sheet: the start, ruled lines, the finish. Its key is the model derivation."""

import textwrap
from collections.abc import Callable
from html import escape
from typing import Any

from ..derive import Derivation, mark
from ..derive.marking import start_formulas
from ..derive.task import WITHOUT_SUM
from .html import document
from .text import escaped

_RULED = 22  # lines; those that have no room on the page are cut off
_TYPED = 12  # lines where everything is text
_LINE = '<span class="line">&nbsp;</span>'


def to_markdown(exercise: Derivation, student: str = "", answers: bool = False) -> str:
    """The sheet with empty lines; answers: with the model derivation and its hints on another page."""
    head = [exercise.statement, textwrap.indent(exercise.start, "    "), _find(exercise)]
    rules = ["    " + "_" * 70] * _TYPED
    finish = f"    {_finish(exercise, '_' * 20)}"
    name = f"Name: {escaped(student) if student else '_' * 30}"
    sheet = "\n\n".join([f"# {exercise.title}", exercise.name, name, *head, *rules, finish]) + "\n"
    if not answers:
        return sheet
    width = max(len(line) for line, _ in exercise.model)
    model = "\n".join(f"    {line:<{width}}    # {hint}" for line, hint in exercise.model)
    return sheet + "\n---\n\n" + "\n\n".join([f"# {exercise.title}: answers", exercise.name, *head, model]) + "\n"


def to_html(exercise: Derivation, student: str = "", answers: bool = False) -> str:
    """The same as a page that needs no other files, with its formulas set. Printed, each sheet is one A4 page.

    Raises ModuleNotFoundError without the library lark.
    """
    given = [f"<p>{escape(line)}</p>\n" for line in exercise.start.splitlines() if line.startswith("given ")]
    start = "".join(given + [f"<p>{formula}</p>\n" for formula in start_formulas(exercise)])
    head = f"<p>{escape(exercise.statement)}</p>\n<div>\n{start}</div>\n<p><b>{escape(_find(exercise))}</b></p>\n"
    rules = "<p></p>\n" * _RULED
    body = _article(
        exercise.title,
        f'<span class="label">{exercise.name}</span>\n<p class="name">Name: {escape(student) or _LINE}&nbsp;</p>',
        f'{head}<div class="ruled">\n{rules}</div>\n<p>{_finish(exercise, _LINE)}</p>\n',
    )
    if answers:
        steps = zip(mark(exercise, exercise.solution()).formulas, exercise.model, strict=True)
        lines = "".join(f"<li>{formula}<p>{escape(hint)}</p></li>\n" for formula, (_, hint) in steps)
        label = f'<span class="label">{exercise.name}</span>'
        body += _article(f"{exercise.title}: answers", label, f"{head}<ol>\n{lines}</ol>\n")
    return document(exercise.title, __package__, body)


def to_pdf(exercise: Derivation, student: str = "", answers: bool = False) -> bytes:
    """The same as a PDF. Raises ValueError for a name with letters that the font lacks."""
    from . import pdf  # here, because it imports matplotlib

    return pdf.written((student, _drawn(pdf, exercise, student, key)) for key in (False, True)[: 1 + answers])


FORMATS: dict[str, Callable[..., str | bytes]] = {"html": to_html, "pdf": to_pdf, "md": to_markdown}


def as_dict(exercise: Derivation, answers: bool = False) -> dict[str, Any]:
    """The same as JSON types."""
    told: dict[str, Any] = {"worksheet": exercise.name, "title": exercise.title, "statement": exercise.statement}
    told |= {"start": exercise.start.splitlines(), "find": list(exercise.finish)}
    return told | ({"model": [{"line": line, "hint": hint} for line, hint in exercise.model]} if answers else {})


def _article(title: str, header: str, body: str) -> str:
    head = f"<header>\n<h1>{escape(title)}</h1>\n{header}\n</header>\n"
    return f'<article class="derivation">\n{head}{body}</article>\n'


def _drawn(pdf: Any, exercise: Derivation, student: str, key: bool) -> Any:
    paper, left, right = pdf.Paper(), pdf.MARGIN, pdf.PAGE_WIDTH - pdf.MARGIN
    y = left + 5.0
    paper.text(left, y, exercise.title + (": answers" if key else ""), 15.0, weight="bold")
    paper.text(right, y, exercise.name, 8.5, ha="right", color=pdf.GREY)
    lines = ["", *textwrap.wrap(exercise.statement, 95), "", *exercise.start.splitlines(), "", _find(exercise)]
    for line in lines if key else [f"Name: {student or '_' * 30}", *lines]:
        y += 6.0
        paper.text(left, y, line, 10.0)
    y += 4.0
    if key:
        for line, hint in exercise.model:
            paper.text(left, y + 6.0, line, 10.0, color=pdf.ANSWER)
            paper.text(left + 5.0, y + 11.0, hint, 8.5)
            y += 13.5
        return paper.figure
    finish = pdf.PAGE_HEIGHT - pdf.MARGIN - 3.0
    while (y := y + 10.0) < finish - 8.0:
        paper.line([left, right], [y, y], 0.5, pdf.GREY)
    paper.text(left, finish, _finish(exercise, "_" * 20), 10.0)
    return paper.figure


def _find(exercise: Derivation) -> str:
    return f"Find: {', '.join(exercise.finish)}"


def _finish(exercise: Derivation, line: str) -> str:
    return "    ".join(f"{goal.removesuffix(WITHOUT_SUM)} = {line}" for goal in exercise.finish)
