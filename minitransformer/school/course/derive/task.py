"""Exercises that one derives on paper: what is given, what to find, and a derivation with a hint for each line.

Each is a file in tasks/: a title with its chapter, the statement, the start (indented), a line `Find: ...`, and a model
derivation, in which the comment of a line is its hint. A new file is a new exercise.
"""

import difflib
import functools
import html
import re
from dataclasses import dataclass
from importlib import resources

_FILE = re.compile(r"# (.+?) \(chapter (\d+)\)\n\n(.+?)\n\n((?:    .+\n)+)\nFind: (.+)\n\n((?:    .+\n)+)", re.DOTALL)
_HINT = re.compile(r"\s+#\s+")
WITHOUT_SUM = " without a sum"


@dataclass(frozen=True)
class Derivation:
    """An exercise: `print` it for the statement.

    start: the lines that are given, which an answer goes on from. finish: what an answer must find, such as "dx".
    """

    name: str
    title: str
    statement: str
    start: str
    finish: tuple[str, ...]
    model: tuple[tuple[str, str], ...]  # lines and their hints
    chapter: int  # the notebook that it belongs to

    def hint(self, line: int = 1) -> str:
        """The hint for a line of the model derivation, counted from 1, without the line."""
        if not 1 <= line <= len(self.model):
            raise ValueError(f"{self.name} has hints for the lines 1 to {len(self.model)}, got {line}")
        return self.model[line - 1][1]

    def solution(self) -> str:
        """A derivation that is right."""
        return "\n".join(line for line, _ in self.model)

    def __str__(self) -> str:
        start = "\n".join(f"    {line}" for line in self.start.splitlines())
        return f"{self.title}\n\n{self.statement}\n\n{start}\n\nFind: {', '.join(self.finish)}"

    def _repr_html_(self) -> str:
        title, statement, start = (html.escape(text) for text in (self.title, self.statement, self.start))
        return f"<p><b>{title}</b></p><p>{statement}</p><pre>{start}</pre><p>Find: {', '.join(self.finish)}</p>"


def read(name: str, text: str) -> Derivation:
    """An exercise from the text of its file. Raises ValueError if it has not the form that is told above."""
    match = _FILE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{name}: expected `# Title (chapter 3)`, a statement, the start, `Find: ...` and a derivation"
        )
    title, chapter, statement, start, finish, model = match.groups()
    lines = [_HINT.split(line[4:], maxsplit=1) for line in model.splitlines()]
    if any(len(each) != 2 for each in lines):
        raise ValueError(f"{name}: each line of the derivation needs a hint behind #")
    found = tuple((each[0], each[1]) for each in lines)
    start = "\n".join(line[4:] for line in start.splitlines())
    return Derivation(name, title, " ".join(statement.split()), start, tuple(finish.split(", ")), found, int(chapter))


@functools.cache
def tasks() -> dict[str, Derivation]:
    """All exercises by name, such as "derive_softmax", in the order of the course."""
    folder = resources.files(__package__).joinpath("tasks")
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".md")), key=lambda path: path.name)
    names = [f"derive_{path.name[3:-3]}" for path in paths]
    return {name: read(name, path.read_text(encoding="utf-8")) for name, path in zip(names, paths, strict=True)}


def task(name: str) -> Derivation:
    """The exercise with that name. Raises ValueError for an unknown name, with the nearest known one."""
    if name not in tasks():
        near = difflib.get_close_matches(str(name), tasks(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "minitransformer.course.derivations() lists them"
        raise ValueError(f"there is no derivation {name!r}; {hint}")
    return tasks()[name]
