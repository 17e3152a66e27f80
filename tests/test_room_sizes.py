"""Each folder of the package has a budget of lines of code, in room_sizes.toml; it only falls.

A line counts if it is neither blank nor a comment nor part of a docstring.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

import minitransformer

PACKAGE = Path(minitransformer.__file__).parent
TABLE = tomllib.loads(Path(__file__).with_name("room_sizes.toml").read_text(encoding="utf-8"))
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines_of_code(source: str) -> int:
    prose: set[int] = set()
    texts: set[int] = set()  # of several lines, where an empty line counts, and # begins no comment
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            prose |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            texts |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return len(({i for i, line in lines if line and not line.startswith("#")} | texts) - prose)


def room_of(path: Path) -> str:
    """The folder that a file counts in. An idea in a folder of later/ counts there, and so costs no older idea."""
    first, *rest = path.relative_to(PACKAGE).parts
    return f"later/{rest[0]}" if first == "later" and len(rest) > 1 else first if rest else "top"


def sizes() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        found[room_of(path)] = found.get(room_of(path), 0) + lines_of_code(path.read_text(encoding="utf-8"))
    return found


def test_only_code_counts() -> None:
    prose = '"""Two\nlines."""\n\nx = 1  # one\n# a comment\n\n'
    source = prose + 'def f():\n    """Prose."""\n    return (\n        x\n    )\n'
    assert lines_of_code(source) == 5  # x = 1, def, return (, x, )


@pytest.mark.slow
def test_rooms_keep_to_their_budgets() -> None:
    budgets, problems = TABLE["lines"], []
    for room, found in {**dict.fromkeys(budgets, 0), **sizes()}.items():
        if room.startswith("later/"):
            if found > TABLE["idea"]["lines"]:
                problems.append(f"{room} has {found} lines, too many for one idea")
        elif room not in budgets:
            problems.append(f"{room} has no budget in tests/room_sizes.toml")
        elif found > budgets[room]:
            said = f"{room} has {found} lines; its budget is {budgets[room]}"
            problems.append(f"{said}. Delete some, or raise it with a sentence")
        elif budgets[room] > found + 40:
            problems.append(f"{room} has {found} lines: lower its budget of {budgets[room]}")
    assert not problems, "\n".join(problems)


def test_multi_head_attention_is_one_page() -> None:
    page = (PACKAGE / "layers" / "attention.py").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 165
    lines = [node.lineno for node in ast.walk(ast.parse(page)) if isinstance(node, ast.stmt)]
    assert len(lines) == len(set(lines)), "one statement, one line"


def test_a_raised_budget_says_why() -> None:
    assert TABLE["raised"].keys() <= TABLE["lines"].keys()
    assert all(why.endswith(".") and len(why.split()) > 4 for why in TABLE["raised"].values())
