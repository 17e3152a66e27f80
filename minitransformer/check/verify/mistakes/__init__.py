"""Mistakes people make: in the library's own code and in the reference solutions of the exercises.

Each is described once, in one of the text files here, or in the mistakes.txt or the folder `mistakes` of the room that
its target is in. Many parts of the project use these descriptions: the tests of the checker, which must reject each
mistake; the exercises, which name a student's mistake; the stepper's menu; the annotated code of the site; notebooks;
and the bug hunt.

    @ core.ops.softmax:softmax
    gradients: softmax; softmax along another axis, with temperature

    softmax-no-sum: The term -sum_i dy_i y_i is missing. It comes from the denominator, which all entries share.
    - y * (dy - (dy * y).sum(axis=axis, keepdims=True))
    + y * dy

A line "@ target" opens a section. It names the function that contains the mistakes below it; several targets are
functions that share these mistakes. "gradients: case; case" or "values: case; case" says where the mistakes show (see
Mistake): for the section or, after the edits of a mistake, for that mistake. A mistake begins with its name and its
sentence, which may continue in indented lines. Its edits follow: lines "- old" and "+ new", where several lines in a
row form one snippet, the second and later ones indented as in the file. Lines that begin with "#" are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ....core.arrays import rooms
from .mistake import Mistake

__all__ = ["MISTAKES", "Mistake", "mistakes_in", "read"]

_HEAD = re.compile(r"([\w-]+): (.+)")
_CASES = re.compile(r"(gradients|values):(?: (.+))?")


def read(text: str, where: str) -> Iterator[Mistake]:
    """The mistakes that a text describes. Raises ValueError, which names the file `where` and the unreadable line."""
    found: list[tuple[list[str], dict[str, Any], list[tuple[list[str], list[str]]]]] = []  # targets, fields, edits
    targets: list[str] = []
    shared: dict[str, Any] = {}
    fields: dict[str, Any] = shared  # those of the section, then of the mistake that is read
    edits: list[tuple[list[str], list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        is_open = fields is not shared
        if line.startswith("@ "):
            targets, shared = line[2:].split(), {}
            fields = shared
        elif match := _CASES.fullmatch(line):
            fields |= {"caught_by": match[1], "cases": tuple(match[2].split("; ")) if match[2] else ()}
        elif (match := _HEAD.fullmatch(line)) and targets:
            fields, edits = {**shared, "name": match[1], "sentence": match[2]}, []
            found.append((targets, fields, edits))
        elif line.startswith("    ") and is_open and not edits:
            fields["sentence"] += f" {line.strip()}"
        elif line[:1] == "-" and is_open:
            if not edits or edits[-1][1]:
                edits.append(([], []))
            edits[-1][0].append(line[2:])
        elif line[:1] == "+" and is_open and edits:
            edits[-1][1].append(line[2:])
        elif line and not line.startswith("#"):
            raise ValueError(f"{where}, line {number}: this is not part of a mistake: {line!r}")
    for targets, fields, edits in found:
        pairs = tuple(("\n".join(old), "\n".join(new)) for old, new in edits)
        yield from (Mistake(target=target, edits=pairs, **fields) for target in targets)


def _all() -> Iterator[Mistake]:
    for path in rooms.files("mistakes.txt", "mistakes/*.txt"):
        yield from read(path.read_text(encoding="utf-8"), f"{path.parent.name}/{path.name}")


_by_target: dict[str, list[Mistake]] = {}
for _mistake in _all():
    _by_target.setdefault(_mistake.target, []).append(_mistake)

# The mistakes in the library's own code, by name.
MISTAKES: dict[str, Mistake] = {
    mistake.name: mistake
    for target, mistakes in _by_target.items()
    for mistake in mistakes
    if not (target.startswith("school.course.exercises.") or ".lesson:" in target)
}


def mistakes_in(target: str) -> tuple[Mistake, ...]:
    """The mistakes in a function of the package, such as "core.ops.softmax:softmax"."""
    return tuple(_by_target.get(target, ()))
