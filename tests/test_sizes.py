"""How large the house may grow: three numbers of lines, with slack.

Whoever needs more lines than that removes others, or raises a number on purpose.
"""

import ast
import re
from pathlib import Path

import minitransformer

PACKAGE = Path(minitransformer.__file__).parent
MOST = {"core": 7_000, "package": 72_500, "tests": 54_300}
IDEA = 400  # of an idea in a folder of ideas/
RECIPE = 60  # of a family, beside its tables


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


def lines_of_recipe(path: Path) -> tuple[int, int]:
    """The lines of code of a family's file, and how many families it has.

    Left out: imports, docstrings, comments, tables, which are what is assigned at the top, and what is about files of
    another layout, in functions whose names say gguf.
    """
    text = path.read_text(encoding="utf-8")
    tree, lines, families = ast.parse(text), set(), 0
    for node in tree.body:
        if isinstance(node, ast.Assign) and {"FAMILY", "FAMILIES"} & {getattr(each, "id", "") for each in node.targets}:
            families = len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and "gguf" not in node.name:
            docs = [
                each for each in ast.walk(node) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            ]
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            words = {line for each in docs for line in range(each.lineno, each.end_lineno + 1)}
            lines |= set(range(first, node.end_lineno + 1)) - words
    code = [line for i, line in enumerate(text.splitlines(), 1) if i in lines]
    return sum(bool(line.split("#")[0].strip()) for line in code), families


NO_PAPER = {"granitemoehybrid", "nanochat", "olmo_hybrid", "qwen3_5", "qwen3_next"}  # only models and code


def test_a_recipe_is_one_page_and_says_where_its_paper_has_it() -> None:
    files = list((PACKAGE / "ideas" / "published").glob("*.py"))
    found = {path.stem: lines_of_recipe(path) for path in files}
    places = {path.stem: str(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))).lower() for path in files}
    recipes = {name: lines / families for name, (lines, families) in found.items() if families}
    assert len(recipes) > 30 and all(lines <= RECIPE for lines in recipes.values()), recipes
    assert {name for name in recipes if not re.search("section|appendix|equation", places[name])} <= NO_PAPER
