"""Long code and imports are folded in a chapter; a line says what they do."""

import ast
from collections.abc import Iterator, Sequence

_Import = ast.Import | ast.ImportFrom
MOST_LINES = 12  # shown without asking
_MOST_NAMES = 4
_OF_PICTURES = ("plt", "xp", "figure", "axes", "ax", "image")


def summary(code: str, draws: bool = False) -> str:
    """What a cell does, if it is to be folded: it has more than 12 lines, or three imports or more; else "".

    draws: whether its outputs have a picture.
    """
    tree = ast.parse(code).body
    imports = [node for node in tree if isinstance(node, _Import)]
    n_lines = len(code.splitlines())
    if n_lines <= MOST_LINES and len(imports) < 3:
        return ""
    said = "; ".join(_deeds(code, tree, imports, draws))
    return f"{said[:1].upper()}{said[1:]} ({n_lines} lines)"


def _deeds(code: str, tree: Sequence[ast.stmt], imports: Sequence[_Import], draws: bool) -> Iterator[str]:
    packages = [a.name.partition(".")[0] for node in imports if isinstance(node, ast.Import) for a in node.names]
    parts = [a.asname or a.name for node in imports if isinstance(node, ast.ImportFrom) for a in node.names]
    if imports:
        yield f"imports {_listed([*packages, *parts])}"
    if defined := [node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)]:
        yield f"defines {_listed(defined)}"
    if computed := list(dict.fromkeys(_computed(tree))):
        yield f"{'sets' if imports else 'computes'} {_listed(computed)}"
    if draws:
        yield "draws a picture"
    elif "print(" in code or "display(" in code:
        yield "shows numbers"


def _computed(tree: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that statements outside of functions give a value; single letters and parts of pictures say nothing."""
    for target in (target for node in tree if isinstance(node, ast.Assign) for target in node.targets):
        stored = (n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        yield from (name for name in stored if len(name) > 1 and name not in _OF_PICTURES)


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
