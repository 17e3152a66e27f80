"""A hand-in: a notebook or a Python file, read as text and never run here."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LARGEST = 50_000_000  # bytes; a notebook with many pictures has some millions


@dataclass(frozen=True)
class HandIn:
    """The code cells of a hand-in, in order; a Python file is one. name: of the file."""

    name: str
    cells: tuple[str, ...]

    def defined(self) -> list[str]:
        """The names that the cells bind at the top level (or in an `if` or `try` there): functions, variables."""
        found: dict[str, None] = {}
        for cell in self.cells:
            tree = _parsed(cell)
            if tree is not None:
                found.update(dict.fromkeys(_bound(tree.body)))
        return list(found)


def read(path: Path) -> HandIn:
    """The hand-in in a file. Raises OSError where it cannot be read, ValueError for what is no notebook or Python."""
    if path.suffix not in (".ipynb", ".py"):
        raise ValueError(f"{path}: a hand-in is a notebook, .ipynb, or a Python file, .py")
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"{path} is larger than {_LARGEST // 1_000_000} MB")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise OSError(f"cannot read {path}: {error.strerror or error}") from error
    return HandIn(path.name, _cells(path, text) if path.suffix == ".ipynb" else (text,))


def _cells(path: Path, text: str) -> tuple[str, ...]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a notebook: it is not JSON") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError(f"{path} is not a notebook: it has no list of cells (format 4)")
    return tuple(
        _without_magics(_source(cell)) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"
    )


def _source(cell: dict[str, object]) -> str:
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _without_magics(cell: str) -> str:
    """The cell as plain Python. %%bash and its like are another language: nothing of such a cell is left."""
    if _parsed(cell) is not None:
        return cell
    lines = cell.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and lines[first].startswith("%%"):
        magic = lines[first][2:].split()[:1]
        if magic not in (["time"], ["timeit"], ["capture"], ["prun"]):
            return ""
        lines[first] = ""
    return "\n".join(_plain(line) for line in lines)


def _plain(line: str) -> str:
    """A line without its magic; `pass` keeps the indented block that it may stand in."""
    content = line.strip()
    is_magic = content.startswith(("%", "!", "?")) or (content.endswith("?") and not content.startswith("#"))
    _, equals, value = content.partition("=")
    is_magic |= bool(equals) and value.lstrip().startswith(("%", "!"))
    return line[: len(line) - len(line.lstrip())] + "pass" if is_magic else line


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a student's "\d"
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in statement.names)
        for node in ast.iter_child_nodes(statement):
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        for block in ("body", "orelse", "finalbody"):
            yield from _bound([s for s in getattr(statement, block, []) if isinstance(s, ast.stmt)])
        for handler in getattr(statement, "handlers", []):
            yield from _bound(handler.body)
