"""Rooms around the core: the core works without them, imports none, and finds those that exist.

A room is a folder beside this one. It may have

    names.json      {"ops": {"name": "module", ...}, ...}: what users also find in a room of the core, and which of its
                    own modules has it
    earlier.json    what an earlier version's saved configs had: see models/earlier.py
    cases.py        cases for the checker
    mistakes.txt    mistakes for the checker, or several files in a folder mistakes
    lesson.py       exercises for the course
    example.py      examples for the stepper
    sentences.txt   what the stepper says about its lines
    page.md         a chapter of the site

Its folders may have these files, too, so everything that belongs to one idea can be in one folder.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]


def files(*patterns: str) -> Iterator[Path]:
    """The files of these names in all rooms, in order."""
    return iter(sorted(path for pattern in patterns for path in _PACKAGE.rglob(pattern)))


def load(name: str) -> None:
    """Import every module whose file has this name; each enters what it brings."""
    for path in files(name):
        import_module(module_of(path))


def module_of(path: Path) -> str:
    """The dotted name of the module in a file of the package."""
    return ".".join([_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts])


@functools.cache
def names_for(room: str) -> dict[str, str]:
    """What the rooms around bring to a room of the core: each name, with the module that has it."""
    return {
        name: f"{module_of(path.parent)}.{module}"
        for path in files("names.json")
        for name, module in json.loads(path.read_text(encoding="utf-8")).get(room, {}).items()
    }


def brought(room: str, name: str) -> Any:
    """The object of this name that another room adds to a room, such as `minitransformer.ops`. Or AttributeError."""
    module = names_for(room.rpartition(".")[2]).get(name)
    if module is None:
        raise AttributeError(f"module {room!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
