"""A class: its list of names, and a folder with a sheet and a form for each student, and one key for the teacher."""

import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from ....core.arrays.files import write
from .form import to_form
from .html import to_html
from .layout import page
from .sheet import Sheet
from .text import to_markdown

KEY = "answer-key"

Document = list[tuple[Sheet, bool]]  # the content of each page: a sheet, or (True) its answers


def _markdown(document: Document) -> str:
    return "\n---\n\n".join(to_markdown(sheet, key) for sheet, key in document)


def _pdf(document: Document) -> bytes:
    from .pdf import to_pdf  # here, because it imports matplotlib

    return to_pdf(page(sheet, key) for sheet, key in document)


FORMATS: dict[str, Callable[[Document], str | bytes]] = {
    "pdf": _pdf,
    "html": lambda document: to_html(page(sheet, key) for sheet, key in document),
    "md": _markdown,
}


def names(text: str) -> list[str]:
    """The names of a class list, one per line; empty lines and lines that begin with # do not count.

    Raises ValueError for an empty list, and for a name that occurs twice.
    """
    found = [tidy_name(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for name in found:
        if found.count(name) > 1:
            raise ValueError(f"the class list has {name!r} twice; change one, because a name determines the numbers")
    if not found:
        raise ValueError("the class list has no names; write one per line")
    return found


def tidy_name(name: str) -> str:
    """The name as one line, with one encoding for each accented letter: two encodings would give two sheets."""
    printable = "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in name)
    return unicodedata.normalize("NFC", " ".join(printable.split()))


def hand_out(sheets: Iterable[Sheet], folder: Path, form: str) -> list[Path]:
    """Write for each student NAME.pdf (or .html, .md) and the form NAME.txt, and for the teacher answer-key.pdf.

    Returns the paths, the key's last. Raises ValueError where a form is in the way that is not blank.
    """
    folder.mkdir(parents=True, exist_ok=True)
    taken = {KEY}
    written, keys = [], []
    for sheet in sheets:
        stem, blank = _stem(sheet.student, taken), to_form(sheet)
        answers = folder / f"{stem}.txt"
        if answers.exists() and answers.read_bytes() != blank.encode():
            raise ValueError(
                f"{answers} is not the blank form of these sheets, so it may be filled in; choose another folder"
            )
        for path, content in ((folder / f"{stem}.{form}", FORMATS[form]([(sheet, False)])), (answers, blank)):
            write(path, content)
            written.append(path)
        keys.append((sheet, True))
    key = folder / f"{KEY}.{form}"
    write(key, FORMATS[form](keys))
    return [*written, key]


def _stem(name: str, taken: set[str]) -> str:
    """An unused file name for a student, unused even on systems that ignore case."""
    words = "".join(letter if letter.isalnum() else " " for letter in name).split()
    plain = "-".join(words)[:60] or "student"
    stem, number = plain, 1
    while stem.casefold() in taken:
        number += 1
        stem = f"{plain}-{number}"
    taken.add(stem.casefold())
    return stem
