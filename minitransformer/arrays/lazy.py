"""Names that a package shows although another one has them. Each is imported at its first use.

    if TYPE_CHECKING:
        from ..published.opening import load
    else:
        __getattr__, __dir__ = at_first_use(__name__)

Types, editors and grep find `load` in these lines. So does Python, which reads them when the package is asked for a
name that it does not have yet. So `import minitransformer` stays quick, and a room of the core imports none of those
around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def at_first_use(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package. A name that does not stand under its `if` raises AttributeError."""
    module = sys.modules[package]
    places: dict[str, str] = {}  # each name, and the module that has it

    def shown() -> dict[str, str]:
        if not places:
            with open(str(module.__file__), encoding="utf-8") as file:
                places.update(shown_in(file.read(), package))
        return places

    def imported(name: str) -> Any:
        if name.startswith("__") or name not in shown():  # Python itself asks for `__path__` and the like
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        place = places[name]
        if place == package or not hasattr(import_module(place), name):
            import_module(f"{place}.{name}")  # a module, which becomes an attribute of the one around it
        setattr(module, name, vars(sys.modules[place])[name])
        return vars(module)[name]

    return imported, lambda: sorted({*vars(module), *shown()})


def shown_in(source: str, package: str) -> dict[str, str]:
    """The names that the source of a package imports under `if TYPE_CHECKING:`, each with the module that has it."""
    import ast  # only here: `import minitransformer` does without
    from importlib.util import resolve_name

    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    return {
        alias.name: resolve_name("." * line.level + (line.module or ""), package)
        for block in blocks
        if ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
