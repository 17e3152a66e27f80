"""The modules of the code that have a page, and where it is."""

import ast
import functools
import re
from importlib import import_module
from pathlib import Path

ROOMS = ("core.ops", "core.layers", "core.models", "ideas.before", "ideas.after", "ideas.published")
_NO_CODE = {"__init__", "cases", "lesson", "example"}  # what fills the sockets of other rooms; a lesson has solutions
# Of the published families, whose files are mostly names, those that have a part of their own.
_HAS_PARTS = re.compile(r"^ +def (__call__|backward)\(", re.MULTILINE)


def address_of(module: str, name: str = "") -> str:
    """Where the code of a module ("core.ops.softmax") or of a name in it is shown."""
    return f"code/{module.replace('.', '-')}.html" + (f"#{name}" if name else "")


def shown_modules() -> list[str]:
    """The modules that have a page, such as "core.ops.softmax"."""
    found = []
    for room in ROOMS:
        folder = Path(str(import_module(f"minitransformer.{room}").__file__)).parent
        is_whole = room != "ideas.published"
        files = [path for path in folder.rglob("*.py") if is_whole or _HAS_PARTS.search(path.read_text("utf-8"))]
        paths = sorted(path.relative_to(folder).with_suffix("") for path in files)
        found += [".".join((room, *path.parts)) for path in paths if path.name not in _NO_CODE]
    return found


def file_of(module: str) -> str:
    """The file of a module such as "core.ops.softmax"."""
    return str(import_module(f"minitransformer.{module}").__file__)


@functools.cache
def public_names() -> list[tuple[str, str]]:
    """(module, name) of each function and class that the modules define for others."""
    found = []
    for module in shown_modules():
        body = ast.parse(Path(file_of(module)).read_text(encoding="utf-8")).body
        names = (node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        found += [(module, name) for name in names if not name.startswith("_")]
    return found
