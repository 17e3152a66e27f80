"""An examination paper as Markdown, which a terminal shows as well, and as a page that prints."""

import html
import re
from collections.abc import Iterable, Sequence

from ..worksheets.html import document
from ..worksheets.numbers import Draw
from .question import QUESTIONS, OpenQuestion, Question

_CELL, _MTD = re.compile(r"\S+ ?"), r"<mtd><mn>\g<0></mn></mtd>"
# x, d, W, h′, x₁, dx: a letter on its own, a gradient's with its d; "a", "A" and "I" only beside a sign.
_LETTER = re.compile(
    r"(?<![\w<&;/])(?!do\b(?! ?[=·]))(?:d?[b-zB-HJ-Zα-ωΓ-Ω]|[aAI](?=[₀-₉′²]| ?[=·+−]))[′ᵀ²³₀-₉]*(?![\w;>’'])"
    r"|(?<=[·+−] )[aA](?!\w)"
)
_NAMED = re.compile(r"\S+ = \[")


def chosen(weeks: Iterable[int], count: int, seed: int) -> list[Question]:
    """`count` questions of these weeks, in the order of the term; each week gets about as many as the others.

    Raises ValueError if there are fewer.
    """
    draw = Draw(f"paper/{seed}")
    left = {week: [q for q in QUESTIONS.values() if q.week == week] for week in dict.fromkeys(weeks)}
    available = sum(map(len, left.values()))
    if not 1 <= count <= available:
        raise ValueError(f"these weeks have {available} questions, so ask for 1 to {available}, not {count}")
    taken: list[Question] = []
    while len(taken) < count:
        open_weeks = [week for week, questions in left.items() if questions]
        for week in draw.several(open_weeks, min(len(open_weeks), count - len(taken))):
            question = draw.choose(left[week])
            left[week].remove(question)
            taken.append(question)
    return sorted(taken, key=lambda question: (question.week, question.name))


def paper(questions: Sequence[Question | OpenQuestion], seed: int, answers: bool = False) -> str:
    """The paper as Markdown: a heading with the marks for each question, and its worked answer if that is wanted."""
    total = sum(question.marks for question in questions)
    parts = [
        f"# Examination{': answers' if answers else ''}",
        f"Seed {seed}, {total} marks. {'' if answers else 'Name: ' + '_' * 30}".strip(),
    ]
    for i, question in enumerate(questions, 1):
        asked = question.asked(seed)
        week = "" if question.week is None else f"week {question.week}, "
        title = f"{question.name}, {week}" if answers else ""
        parts += [f"## {i} ({title}{question.marks} marks)", asked.text]
        if answers:
            parts.append("\n".join(f"> {line}".rstrip() for line in asked.worked.split("\n")))
    return "\n\n".join(parts) + "\n"


def to_html(markdown: str) -> str:
    """A paper as one page without other files. It knows what `paper` writes: headings, texts, matrices, answers."""
    title = markdown.partition("\n")[0].removeprefix("# ")
    return document(title, __package__, f"<main>\n{_blocks(markdown)}</main>\n")


def _blocks(text: str) -> str:
    out = []
    for part in re.split(r"\n\n+", text.strip("\n")):
        level = len(part) - len(part.lstrip("#"))
        if part.startswith(">"):
            inner = "\n".join(line.removeprefix(">").removeprefix(" ") for line in part.split("\n"))
            out.append(f"<blockquote>\n{_blocks(inner)}</blockquote>\n")
        elif level and part[level] == " ":
            out.append(f"<h{level}>{html.escape(part[level + 1 :])}</h{level}>\n")
        elif part.startswith("    "):
            lines = [line.removeprefix("    ") for line in part.split("\n")]
            out.append(
                _matrices(lines) if _NAMED.search(lines[0]) else f"<pre>{html.escape(chr(10).join(lines))}</pre>\n"
            )
        else:
            out.append(f"<p>{'<br>'.join(map(_typeset, part.split(chr(10))))}</p>\n")
    return "".join(out)


def _typeset(line: str) -> str:
    """A line of text: its letters of mathematics in italics, and code as code."""
    pieces = html.escape(line, quote=False).split("`")
    pieces[::2] = [_LETTER.sub(r"<var>\g<0></var>", piece) for piece in pieces[::2]]
    pieces[1::2] = [f"<code>{piece}</code>" for piece in pieces[1::2]]
    return "".join(pieces)


def _matrices(lines: list[str]) -> str:
    """The matrices that `block` drew side by side, as a formula."""
    starts = [match.start() for match in _NAMED.finditer(lines[0])]
    out = []
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        name = lines[0][start:end].partition(" = ")[0]
        drawn = [line[start:end].partition("[")[2].partition("]")[0].replace("-", "−").split() for line in lines]
        rows = "".join(f"<mtr>{_CELL.sub(_MTD, ' '.join(row))}</mtr>" for row in drawn if row)
        bracketed = f"<mo>[</mo><mtable>{rows}</mtable><mo>]</mo>"
        out.append(f"<math><mi>{html.escape(name)}</mi><mo>=</mo>{bracketed}</math>")
    return f'<p class="matrices">{"".join(out)}</p>\n'
