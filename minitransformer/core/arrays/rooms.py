"""Rooms around the core: the core works without them, imports none, and finds those that exist.

A room is a folder beside this one. It may have

    earlier.json    what an earlier version's saved configs had: see core/models/earlier.py
    opening.py      forms in which models lie on a disk: see core/models/opening.py
    cases.py        cases for the checker
    mistakes.txt    mistakes for the checker, or several files in a folder mistakes
    lesson.py       exercises for the course
    example.py      examples for the stepper
    sentences.txt   what the stepper says about its lines
    page.md         a chapter of the site

So everything that belongs to one idea can be in one folder.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def files(*patterns: str) -> Iterator[Path]:
    """The files of these names in all folders, in order."""
    return iter(sorted(path for pattern in patterns for path in _PACKAGE.rglob(pattern)))


def load(name: str) -> None:
    """Import every module whose file has this name; each enters what it brings."""
    for path in files(name):
        import_module(module_of(path))


def module_of(path: Path) -> str:
    """The dotted name of the module in a file of the package."""
    return ".".join([_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts])
