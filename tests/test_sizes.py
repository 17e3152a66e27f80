"""How large the house may grow: three numbers of lines, with slack.

Whoever needs more lines than that removes others, or raises a number on purpose.
"""

import ast
from pathlib import Path

import minitransformer

PACKAGE = Path(minitransformer.__file__).parent
MOST = {"core": 7_000, "package": 74_000, "tests": 64_000}
IDEA = 400  # of an idea in a folder of ideas/


def lines_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py"))


def test_core_package_and_tests_are_not_too_large() -> None:
    core = lines_in(PACKAGE / "core")
    found = {"core": core, "package": lines_in(PACKAGE), "tests": lines_in(Path(__file__).parent)}
    assert core > 1000 and all(found[part] <= most for part, most in MOST.items()), f"{found}, at most {MOST}"
    ideas = {path.name: lines_in(path) for path in (PACKAGE / "ideas" / "after").iterdir() if path.is_dir()}
    assert all(lines <= IDEA for lines in ideas.values()), ideas


def test_multi_head_attention_is_one_page() -> None:
    page = (PACKAGE / "core" / "layers" / "attention.py").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 165
    lines = [node.lineno for node in ast.walk(ast.parse(page)) if isinstance(node, ast.stmt)]
    assert len(lines) == len(set(lines)), "one statement, one line"
