"""Wrong versions of an op that nobody wrote down: its source with one operator, number or operand changed."""

import ast
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

_SWAPPED: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


def mutants_of(op: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Every mutant of an op that can be compiled; many fail when they run, and some do the same as the op."""
    module: Any = inspect.getmodule(inspect.unwrap(op))
    source = inspect.getsource(module)
    name = inspect.unwrap(op).__name__
    places = len(list(_changes(_function(ast.parse(source), name))))
    for place in range(places):
        tree = ast.parse(source)
        list(_changes(_function(tree, name)))[place]()
        made = types.ModuleType(module.__name__)
        made.__package__, made.__file__ = module.__package__, module.__file__
        exec(compile(ast.fix_missing_locations(tree), f"mutant {place}", "exec", dont_inherit=True), made.__dict__)
        yield getattr(made, name)


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _changes(function: ast.FunctionDef) -> Iterator[Callable[[], None]]:
    """For each place in the body, a function that changes the syntax tree there."""
    for node in [inner for statement in function.body for inner in ast.walk(statement)]:
        if isinstance(node, ast.BinOp):
            if type(node.op) in _SWAPPED:
                yield lambda node=node: setattr(node, "op", _SWAPPED[type(node.op)]())
            yield lambda node=node: vars(node).update(left=node.right, right=node.left)
            yield lambda node=node: setattr(node, "right", node.left)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield lambda node=node: setattr(node, "value", node.value * 1.1 if type(node.value) is float else -3)
            yield lambda node=node: setattr(node, "value", node.value + 1)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
            yield lambda node=node: node.value.elts.reverse()
