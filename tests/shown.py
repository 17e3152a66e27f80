"""What a package shows of others (arrays/lazy.py) is imported only when a user asks for it: the rules leave it out."""

from __future__ import annotations

import ast

READS = "__getattr__, __dir__ = at_first_use(__name__)"


def without_shown(file: str, source: str) -> str:
    """The source of a package without the names that are imported at their first use; of any other file, the source.

    They stand under `if TYPE_CHECKING:`, with READS alone under `else:`, and in `__all__`, each on a line of its own.
    """
    if file.rpartition("/")[2] != "__init__.py":
        return source
    lines, names = source.splitlines(), set[str]()
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and [ast.unparse(each) for each in node.orelse] == [READS]:
            assert ast.unparse(node.test) == "TYPE_CHECKING"
            names |= {f'"{alias.name}",' for line in node.body for alias in getattr(line, "names", [])}
            lines[node.lineno - 1 : node.end_lineno] = [""] * len(lines[node.lineno - 1 : node.end_lineno])
    return "\n".join(line for line in lines if line.strip() not in names)
