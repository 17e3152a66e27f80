"""From a docstring to its equations, and from a file derivations.txt to what is said about them.

An equation stands on an indented line and has a sign = between spaces. Two spaces or more end it; a line
that begins with + or - goes on with it:

    scores  = scale · q kᵀ            (T_q, T_k)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...core.arrays import rooms

_OPERATORS = "=+-−*/·⊙"
_EQUATION = re.compile(r"\s{4,}.*\s\+?=\s")
_SIGN = re.compile(r"\S\s+\+?=(\s|$)|^=\s")
_GOES_ON = re.compile(r"\s{6,}[+-] ")


def equations(path: Path) -> list[tuple[int, str]]:
    """The equations in the docstring of a file, each with the number of its line."""
    return _read(path)[0]


def untold(path: Path, about: list[Notes]) -> list[tuple[int, str]]:
    """The lines of sentences with a sign = that no note says, each with its number."""
    found = dict(_read(path)[1])
    for text in [text for each in about for text in (*each.said, *each.words)]:
        number = _line_of(path, text, found.items())
        found[number] = found[number].replace(text, "", 1)
    return [(number, line.strip()) for number, line in found.items() if _SIGN.search(line)]


@functools.cache
def _read(path: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The equations of a docstring, and the other lines with a sign =."""
    source = path.read_text(encoding="utf-8")
    docstring = source.split('"""', 2)[1] if source.startswith('"""') else ""  # ast.parse of all files takes a second
    found: list[tuple[int, str]] = []
    sentences: list[tuple[int, str]] = []
    last = 0
    for number, line in enumerate(docstring.split("\n"), 1):
        if found and number == last + 1 and _GOES_ON.match(line):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
            last = number
        elif _EQUATION.match(line):
            found.append((number, _without_remarks(line)))
            last = number
        elif _SIGN.search(line):
            sentences.append((number, line))
    return found, sentences


def _without_remarks(line: str) -> str:
    """The parts of a line that have a sign =, joined by semicolons. Spaces beside a sign or in brackets end none."""
    parts, depth, start = [], 0, 0
    line = line.strip()
    for gap in re.finditer(r"[(\[{]|[)\]}]|\s{2,}", line):
        if not gap[0].isspace():
            depth += 1 if gap[0] in "([{" else -1
        elif depth == 0 and line[gap.start() - 1] not in _OPERATORS and line[gap.end()] not in _OPERATORS:
            parts.append(line[start : gap.start()])
            start = gap.end()
    parts.append(line[start:])
    return "; ".join(part.rstrip(",;").replace("+=", "=") for part in parts if re.search(r"(^|\s)\+?=\s", part))


@dataclass
class Notes:
    """What a file derivations.txt says about a passage: an op, or some lines of a docstring."""

    module: str
    op: str = ""
    automatic: bool = False  # whether there is no file that says anything
    begins: str = ""  # the first equation of the passage begins with this text
    before: list[str] = field(default_factory=list)  # lines for the checker, such as `given m: (T_q, T_k)`
    renamed: dict[str, str] = field(default_factory=dict)
    maps: dict[str, str] = field(default_factory=dict)
    dots: str = ""  # the size that `...` stands for in the op's declaration
    ones: list[str] = field(default_factory=list)  # arrays that the op takes as all ones
    one_hot: dict[str, str] = field(default_factory=dict)  # an array, and the argument with the ids that it stands for
    after: list[str] = field(default_factory=list)  # lines for the checker below the passage
    said: list[str] = field(default_factory=list)  # equations within its sentences
    words: list[str] = field(default_factory=list)  # signs = in sentences that claim nothing to be tried


@functools.cache
def notes() -> dict[str, list[Notes]]:
    """All notes by module, in the order of the file.

    @ core.ops.attention: attention     the passage derives this op, whose declaration gives the shapes
    from scores =                       it begins with this equation; without, a later one has only what is said
    given m: (T_q, T_k)                 anything else that `verify.derivation` reads, before the passage
    read loss as L                      a name that means something else in the notation
    map norm as tanh, f as σ            functions that may be any, and those as which they are tried
    dots N                              what `...` is in the declaration
    ones m                              an array that the op takes as ones
    one-hot O for ids                   an array that the op takes as ids
    after y = relu(x)                   what `verify.derivation` reads below the passage
    said dA = dC Bᵀ                     an equation within a sentence of the docstring, tried below the passage
    words k = 1: a case                 a sign = in a sentence that claims nothing to be tried, and why
    """
    found: dict[str, list[Notes]] = {}
    for path in rooms.files("derivations.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("@ "):
                module, _, op = line[2:].partition(":")
                passage = Notes(module.strip(), op.strip())
                found.setdefault(passage.module, []).append(passage)
            elif line.strip() and not line.startswith("#"):
                _note(passage, line.strip())
    return found


def _note(passage: Notes, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "from":
        passage.begins = rest
    elif word == "read" and (pair := re.fullmatch(r"(.+) as (.+)", rest)):
        passage.renamed[pair[1]] = pair[2]
    elif word == "map":
        passage.maps.update(re.findall(r"(\w+) as (\w+)", rest))
    elif word == "dots":
        passage.dots = rest
    elif word == "ones":
        passage.ones += rest.split()
    elif word == "after":
        passage.after.append(rest)
    elif word == "said":
        passage.said += rest.split("; ")
    elif line.startswith("one-hot ") and (pair := re.fullmatch(r"one-hot (\w+) for (\w+)", line)):
        passage.one_hot[pair[1]] = pair[2]
    elif word == "words" and ": " in rest:
        passage.words += rest.rpartition(": ")[0].split("; ")
    else:
        passage.before.append(line)


def passages(path: Path, about: list[Notes]) -> Iterator[tuple[Notes, list[tuple[int, str]]]]:
    """The passages of a docstring, each with its equations. A docstring without notes is one passage."""
    found, sentences = equations(path), _read(path)[1]
    shown = [each for n, each in enumerate(about) if each.begins or (found and not n)]
    starts = [next((n for n, (_, text) in enumerate(found) if text.startswith(each.begins)), None) for each in shown]
    if starts and starts[0]:
        raise ValueError(f"derivations.txt: {about[0].module} begins before {about[0].begins!r}")
    for each, start, end in zip(shown, starts, [*starts, len(found)][1:], strict=True):
        if start is None or end is None or start >= end:
            raise ValueError(f"derivations.txt: {each.module} has no equation that begins with {each.begins!r} there")
        yield each, found[start:end] + [(_line_of(path, text, sentences), text) for text in each.said]
    for each in [each for each in about if each.said and each not in shown]:
        yield each, [(_line_of(path, text, sentences), text) for text in each.said]


def _line_of(path: Path, text: str, sentences: Iterable[tuple[int, str]]) -> int:
    """The line of a file on which an equation stands within a sentence, and does not go on."""
    whole = re.compile(rf"(?<![^\s(]){re.escape(text)}(?=$|[,;:.)]|\s{{2,}}| [a-z]{{2,}}\b)")
    if not (number := next((number for number, line in sentences if whole.search(line)), 0)):
        raise ValueError(f"derivations.txt: {path.name} does not say {text!r}")
    return number
