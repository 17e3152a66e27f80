"""Find the expression behind a name: the part of a statement that is assigned to it, or passed as that argument."""

from __future__ import annotations

import ast
import types
from typing import TypeAlias

from .walk import NotExpandable, as_read

Path: TypeAlias = tuple[int, ...]  # which part of the value, if it has several: in `a, (b, c)`, b is at (1, 0)


def assigned(statement: ast.stmt | None, name: str, title: str) -> tuple[ast.expr, Path]:
    """The expression that the statement assigns to `name`, and the path into its value. Raises NotExpandable."""
    if isinstance(statement, ast.AugAssign):
        return ast.BinOp(as_read(statement.target), statement.op, statement.value), ()
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for target in targets:
        value = statement.value  # type: ignore[union-attr]
        path = _path_to(target, name)
        if value is not None and path is not None:
            return part_of(value, path)
    for part in ast.walk(statement) if statement is not None else ():
        if isinstance(part, ast.NamedExpr) and part.target.id == name:
            return part.value, ()
    raise NotExpandable(f"{title} was not computed by a line of its own")


def _path_to(target: ast.expr, name: str) -> Path | None:
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if not isinstance(target, ast.Tuple | ast.List):
        return None
    starred = next((i for i, part in enumerate(target.elts) if isinstance(part, ast.Starred)), len(target.elts))
    for i, part in enumerate(target.elts):
        inner = _path_to(part, name)
        if inner is not None:
            return (i if i < starred else i - len(target.elts), *inner)
    return None


def part_of(value: ast.expr, path: Path) -> tuple[ast.expr, Path]:
    """The element that a path leads to in tuples that the source writes out, and the rest of the path."""
    while path and isinstance(value, ast.Tuple | ast.List):
        if any(isinstance(part, ast.Starred) for part in value.elts) or path[0] >= len(value.elts):
            break
        value, path = value.elts[path[0]], path[1:]
    return value, path


def arguments(code: types.CodeType) -> tuple[str, ...]:
    """The names of a function's arguments, without *args and **kwargs."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def argument_in(node: ast.Call, code: types.CodeType, name: str) -> ast.expr | None:
    """The expression that a call of this code passes as the argument `name`; None if it is not written there."""
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [argument for argument in code.co_varnames[: code.co_argcount] if argument != "self"]
    if name not in positional:
        return None
    before = node.args[: positional.index(name) + 1]
    if len(before) <= positional.index(name) or any(isinstance(part, ast.Starred) for part in before):
        return None
    return before[-1]
