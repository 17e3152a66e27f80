"""The notebooks, read: their cells, their mentions of each other as links, and where each exercise belongs."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....core.arrays import rooms
from ....core.arrays.files import read_json
from ...course.exercise import Exercise
from ...course.exercises import EXERCISES
from . import markdown

PICTURE = "The picture that this cell draws"
# "notebook 2", "notebooks 2 (VJPs), 6 and 8 to 12"
_ABOUT = r"(?:\s+\([^()]*\))?"
_MENTIONED = re.compile(rf"\b([Nn])otebook(s?)(\s+)(\d+{_ABOUT}(?:(?:,|\s+and|\s+to)\s+\d+{_ABOUT})*)")
_STUB = re.compile(r"^def (\w+)\(", re.MULTILINE)
_NUMBER = re.compile(r"^### (\d+\.\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Chapter:
    """A notebook. stem: the name of its file without the ending. The page of an idea is one without code and number."""

    stem: str
    cells: list[dict[str, Any]]

    @functools.cached_property
    def title(self) -> str:
        return markdown.headings(source_of(self.cells[0]))[0][2]

    @property
    def number(self) -> int:
        """The number of the notebook; 0 for the page of an idea."""
        return int(self.stem.partition("_")[0]) if self.stem[0].isdecimal() else 0

    def pictures(self) -> list[tuple[str, str]]:
        """The addresses of the pictures that its cells draw, each with what it shows in words."""
        found = []
        for cell in self.cells:
            for i, output in enumerate(cell.get("outputs", [])):
                if "image/png" in output.get("data", {}):
                    found.append(picture_of(self, f"{cell['id']}-{i}", output))
        return found

    def numbered(self, empty: bool = False) -> dict[str, str]:
        """The exercises in its cells, each with the number in the heading above it, such as "7.1", or "".

        empty: only those whose function is still to be written, not those that are to be repaired.
        """
        found, number = {}, ""
        for cell in self.cells:
            numbers = _NUMBER.findall(source_of(cell)) if cell["cell_type"] == "markdown" else []
            number = numbers[-1] if numbers else number
            if (name := exercise_in(cell)) and (not empty or "NotImplementedError" in source_of(cell)):
                found[name] = number
        return found


def read(folder: Path) -> list[Chapter]:
    """The notebooks of a folder, in order. Raises ValueError if it has none, or for a file that is not a notebook."""
    found = []
    paths = sorted(folder.glob("[0-9]*.ipynb"))
    pages = {int(path.stem.partition("_")[0]): f"{markdown.CHAPTERS}{path.stem}.html" for path in paths}
    for path in paths:
        cells = read_json(path).get("cells")
        if not cells or cells[0].get("cell_type") != "markdown":
            raise ValueError(f"{path} is not a notebook of the course: it must begin with a cell of text")
        for cell in cells:
            if cell["cell_type"] == "markdown":
                cell["source"] = linked(source_of(cell), pages)
                cell["metadata"]["slides"] = [linked(text, pages) for text in cell["metadata"].get("slides", [])]
        found.append(Chapter(path.stem, cells))
    if not found:
        raise ValueError(f"{folder} has no notebooks; --source names the folder of the repository, which has them")
    return found


def read_ideas() -> list[Chapter]:
    """The pages that ideas bring, each as a chapter of one cell: `page.md` in the folder of the idea."""
    found = []
    for path in rooms.files("page.md"):
        cell = {"cell_type": "markdown", "id": path.parent.name, "metadata": {}}
        found.append(Chapter(path.parent.name, [cell | {"source": path.read_text(encoding="utf-8")}]))
    return found


def linked(text: str, pages: dict[int, str]) -> str:
    """The text with its mentions of notebooks as links to the chapters of the site. pages: address of each number."""

    def chapters(match: re.Match[str]) -> str:
        word = f"{'C' if match[1] == 'N' else 'c'}hapter{match[2]}{match[3]}"
        if match[4].isdecimal():
            return f"[{word}{match[4]}]({pages[int(match[4])]})"
        return word + re.sub(r"(?<!\S)\d+(?![^(]*\))", lambda n: f"[{n[0]}]({pages[int(n[0])]})", match[4])

    return _MENTIONED.sub(chapters, text)


def picture_of(chapter: Chapter, name: str, output: dict[str, Any]) -> tuple[str, str]:
    """The address of a picture that a cell draws, and what it shows in words."""
    words = output.get("metadata", {}).get("image/png", {}).get("alt") or PICTURE
    return f"pictures/{chapter.stem}-{name}.png", words


def source_of(cell: dict[str, Any]) -> str:
    """The text of a cell. In a notebook a text may be a list of lines."""
    return "".join(cell["source"])


def exercise_in(cell: dict[str, Any]) -> str:
    """The exercise whose function a cell of code defines, or ""."""
    if cell["cell_type"] != "code":
        return ""
    return next((name for name in _STUB.findall(source_of(cell)) if name in EXERCISES), "")


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
