"""What a pullback captured stays as it was.

A closure captures variables, not values. So a name that a pullback reads from a function around it is bound once on
every way through that function, and not again in between, not even by a comprehension: some Pythons (3.12.1 and 3.13.0
among them) lose a variable from two functions up when a list comprehension on the way reuses its name. And nothing that
a pullback holds, be it the function's own or one that it got from an op it called, is written to afterwards, nor by the
pullback itself; only a parameter's .grad is there to be added to. These tests read the syntax of the package's files.
"""

import ast
import math
import re
import symtable
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tiers import in_one

PACKAGE = Path(__file__).parent.parent / "minitransformer"
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))
}

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
MUTATING_METHODS = set("append clear extend fill insert pop popitem put remove reverse setdefault sort update".split())
MUTATING_FUNCTIONS = set("at copyto fill_diagonal place put put_along_axis putmask scatter_add shuffle".split())

Captured = dict[str, list[ast.AST]]  # a captured name, and the functions from the pullback out to the one that owns it


def violations(source: str) -> list[str]:
    """A line for each name that is bound again or written to although a pullback holds it."""
    found = set()
    captures: list[tuple[ast.AST, set[str], ast.AST]] = []  # (function, names a pullback holds, where it got them)
    if not re.search("backward|pullback|lambda", source):
        return []  # it has no pullback
    tree = ast.parse(source)
    for pullback, captured in pullbacks(source, tree):
        for name, functions in captured.items():
            captures.append((functions[-1], {name}, pullback))
            if sum(most_bindings(function, name) for function in functions) > 1:
                found.add(f"{name}: bound more than once, and the pullback in line {pullback.lineno} captured it")
        for name, node in mutations(ast.walk(pullback)):
            if name in captured:
                found.add(f"{name}: changed in line {node.lineno} by a pullback that captured it")
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            captures += [(function, names, node) for names, node in held_by_called(function)]
    changed = {owner: list(mutations(own_nodes(owner))) for owner, _, _ in captures}
    for owner, names, capture in captures:
        for name, node in changed[owner]:
            if name in names and (node.lineno > capture.lineno or in_one_loop(owner, node, capture)):
                found.add(f"{name}: changed in line {node.lineno}, but a pullback captured it in line {capture.lineno}")
    return sorted(found)


def in_one_loop(function: ast.AST, *nodes: ast.AST) -> bool:
    return any(set(nodes) <= set(ast.walk(loop)) for loop in own_nodes(function) if isinstance(loop, LOOPS))


def pullbacks(source: str, tree: ast.AST) -> Iterator[tuple[ast.AST, Captured]]:
    """Every pullback defined inside a function, with what it captured."""
    returned: set[ast.AST] = set()
    nodes: dict[tuple[str, int], list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Return):
            returned |= {part for part in ast.walk(node) if isinstance(part, ast.Lambda)}
        if isinstance(node, SCOPES):
            nodes.setdefault((getattr(node, "name", "lambda"), node.lineno), []).append(node)

    def visit(table: symtable.SymbolTable, around: list[ast.AST]) -> Iterator:
        here = nodes.get((table.get_name(), table.get_lineno()))
        if here and isinstance(table, symtable.Function):
            node = here.pop(0)
            if around and (is_pullback(table.get_name()) or (isinstance(node, ast.Lambda) and node in returned)):
                captured = {}
                for name in table.get_frees():
                    owners = [i for i, function in enumerate(around, start=1) if owns(function, name)]
                    if owners:  # else it is a class's own, such as the __class__ behind super()
                        captured[name] = [node, *around[: owners[0]]]
                yield node, captured
            around = [node, *around]
        for child in table.get_children():
            yield from visit(child, around)

    return visit(symtable.symtable(source, "<source>", "exec"), [])


def is_pullback(name: str | None) -> bool:
    return name is not None and name.endswith(("backward", "pullback"))


def held_by_called(function: ast.FunctionDef) -> Iterator[tuple[set[str], ast.AST]]:
    """For each `y, f_backward = f(x)`: the names y and x, whose values f's pullback may hold from then on."""
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call):
            given = [base_name(target) for target in node.targets[0].elts]
            if any(map(is_pullback, given)):
                taken = [*node.value.args, *(keyword.value for keyword in node.value.keywords)]
                yield {*given, *(argument.id for argument in taken if isinstance(argument, ast.Name))}, node


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """Everything below a node, except inside nested functions and classes."""
    found = list(ast.iter_child_nodes(node))
    for child in found:  # which grows meanwhile
        if not isinstance(child, SCOPES):
            found += ast.iter_child_nodes(child)
    return found


def parameters(function: ast.AST, name: str) -> list[ast.arg]:
    return [node for node in ast.walk(function.args) if isinstance(node, ast.arg) and node.arg == name]


def body(function: ast.AST) -> list[ast.stmt]:
    return [ast.Expr(function.body)] if isinstance(function, ast.Lambda) else function.body


def owns(function: ast.AST, name: str) -> bool:
    """Whether a name is a variable of this function, and not just of a comprehension in it."""
    comprehensions = [node.target for node in own_nodes(function) if isinstance(node, ast.comprehension)]
    theirs = {part for target in comprehensions for part in ast.walk(target)}
    bound = {place for statement in body(function) for place in bindings(statement, name)}
    return bool(parameters(function, name) or bound - theirs)


def most_bindings(function: ast.AST, name: str) -> float:
    """How often one run of a function can bind a name, its parameters included."""
    return len(parameters(function, name)) + _most_bindings(body(function), name)[0]


def _most_bindings(body: list[ast.stmt], name: str) -> tuple[float, float]:
    """The most often that a run of `body` binds a name: among all runs, and among those that reach the end of it."""
    most, reaching = 0.0, 0.0
    for statement in body:
        branches: list[list[ast.stmt]] = [[]]
        if isinstance(statement, ast.If):
            always, branches = [statement.test], [statement.body, statement.orelse]
        elif isinstance(statement, ast.With):
            always, branches = statement.items, [statement.body]
        elif isinstance(statement, ast.Try):
            handled = [[*statement.body, *handler.body] for handler in statement.handlers]
            ways = [[*statement.body, *statement.orelse], *handled]
            always, branches = [], [[*way, *statement.finalbody] for way in ways]
        elif isinstance(statement, ast.Match):
            always = [statement.subject, *(case.pattern for case in statement.cases)]
            branches = [[], *(case.body for case in statement.cases)]
        elif isinstance(statement, LOOPS):
            always = [statement, statement]  # it may come round again
        else:
            always = [statement]
        before = reaching + sum(len(bindings(part, name)) for part in always)
        runs = [_most_bindings(branch, name) for branch in branches]
        most = max(most, before + max(run[0] for run in runs))
        reaching = -math.inf if isinstance(statement, ENDS) else before + max(run[1] for run in runs)
    return most, reaching


def bindings(node: ast.AST, name: str) -> list[ast.AST]:
    """The places in a piece of code that bind or delete a name."""

    def binds(part: ast.AST) -> bool:
        if isinstance(part, ast.Name):
            return part.id == name and not isinstance(part.ctx, ast.Load)
        if isinstance(part, ast.alias):
            return (part.asname or part.name.split(".")[0]) == name
        return getattr(part, "name", None) == name  # a nested def or class, `except ... as`, `case ... as`

    return [part for part in (node, *([] if isinstance(node, SCOPES) else own_nodes(node))) if binds(part)]


def mutations(nodes: Iterable[ast.AST]) -> Iterator[tuple[str | None, ast.AST]]:
    """(name, node) for each place that writes into what a name refers to."""
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            yield base_name(node.target), node
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield base_name(node), node
        elif isinstance(node, ast.Call):
            yield from ((base_name(keyword.value), node) for keyword in node.keywords if keyword.arg == "out")
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in MUTATING_FUNCTIONS and node.args:
                yield base_name(node.args[0]), node
            if called in MUTATING_METHODS and isinstance(node.func, ast.Attribute):
                receiver = base_name(node.func.value)
                yield (
                    (None if receiver == "xp" else receiver),
                    node,
                )  # x.sort() sorts x, but xp.sort(x) makes a new array


def base_name(node: ast.AST) -> str | None:
    """The name that a[i].b or a.reshape(n)[i] starts from; None where the path leads through .grad."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return None
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        else:
            return None
    return node.id


@pytest.mark.slow
def test_no_captured_name_is_bound_again_or_changed() -> None:
    assert {name: found for name, source in SOURCES.items() if (found := violations(source))} == {}


@pytest.mark.slow
def test_every_pullback_is_looked_at() -> None:
    for name, source in SOURCES.items():
        if "def backward" in source:
            tree = ast.parse(source)
            written = {node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "backward"}
            written = {node for node in written if not node.decorator_list}  # a property of that name is no pullback
            assert written <= {pullback for pullback, _ in pullbacks(source, tree)}, name


def test_pullbacks_are_found_in_the_ops() -> None:
    source = SOURCES["core/ops/attention.py"]
    ((_, captured),) = pullbacks(source, ast.parse(source))
    assert {"q", "k", "v", "kept", "softmax_backward", "dropout_backward"} <= set(captured)


# What stands in `def f(x, t):`, and the name that must be reported.
BROKEN = {
    "bound again before": ("y", "y = x\ny = y + 1\ndef backward(dy):\n  return dy * y"),
    "a parameter bound again": ("x", "x = x + 1\ndef backward(dy):\n  return dy * x"),
    "a default filled in": ("t", "if t is None:\n  t = 1.0\ndef backward(dy):\n  return dy * t"),
    "bound in two ifs": ("y", "if t:\n  y = 1\nif x:\n  y = 2\ndef backward(dy):\n  return dy * y"),
    "bound in an else": ("y", "y = 1\nif t:\n  pass\nelse:\n  y = 2\nreturn x, lambda dy: dy * y"),
    "bound in a case's body": ("y", "y = 1\nmatch x:\n  case 0:\n    y = 2\nreturn x, lambda dy: dy * y"),
    "bound before a return": ("y", "y = 1\nif t:\n  y = 2\n  return x, lambda dy: dy * y"),
    "bound in a try and its handler": ("y", "try:\n  y = g(x)\nexcept E:\n  y = 0\nreturn x, lambda dy: dy * y"),
    "bound by a with and in it": ("y", "with x as y:\n  y = 1\nreturn x, lambda dy: dy * y"),
    "bound by an import": ("y", "y = 1\nimport y.z\nreturn x, lambda dy: dy * y"),
    "bound by a loop": ("y", "for y in x:\n  pass\ndef backward(dy):\n  return dy * y"),
    "bound by a walrus": ("y", "y = 1\nz = [(y := part) for part in x]\nreturn z, lambda dy: dy * y"),
    "bound by a comprehension": ("y", "y = [y for y in x]\ndef backward(dy):\n  return dy * y"),
    "bound by a comprehension on the way": (
        "t",
        "def g():\n  z = {t: 1 for t in x}\n  def backward(dy):\n    return t\n  return z, backward",
    ),
    "bound by a comprehension in the pullback": ("t", "def backward(dy):\n  return [t for t in x], t"),
    "bound by a comprehension in a lambda": ("t", "return x, lambda dy: ([t for t in x], t)"),
    "bound by a nested function": ("y", "y = 1\ndef y():\n  pass\nreturn x, lambda dy: dy * y"),
    "deleted": ("y", "y = x\ndef backward(dy):\n  return dy * y\ndel y"),
    "captured two functions up": ("x", "x = x + 1\ndef g():\n  def backward(dy):\n    return x\n  return backward"),
    "captured by a pullback of another name": ("x", "x = 1\ndef inner_backward(dy):\n  return x"),
    "added to": ("y", "y = g(x)\ndef backward(dy):\n  return dy * y\ny += 1"),
    "written to": ("y", "y = g(x)\ndef backward(dy):\n  return dy * y\ny[0] = 1"),
    "given as out": ("y", "y = g(x)\ndef backward(dy):\n  return dy * y\nxp.exp(x, out=y)"),
    "a list that grows": ("y", "y = []\ndef backward(dy):\n  return dy * y\ny.append(x)"),
    "written to as the loop comes round": ("y", "y = [0]\nfor i in x:\n  y[0] = i\n  def backward(dy):\n    return y"),
    "set by the pullback": ("y", "y = g(x)\ndef backward(dy):\n  nonlocal y\n  y = dy\n  return y"),
    "added to by the pullback": ("y", "y = g(x)\ndef backward(dy):\n  nonlocal y\n  y += dy\n  return y"),
    "written to by the pullback": ("y", "y = g(x)\ndef backward(dy):\n  y[0] = dy\n  return y"),
    "multiplied into by the pullback": ("y", "y = g(x)\ndef backward(dy):\n  y[...] *= dy\n  return y"),
    "scattered into by the pullback": ("y", "y = g(x)\ndef backward(dy):\n  scatter_add(y, t, dy)\n  return y"),
    "given as out by the pullback": ("y", "y = g(x)\ndef backward(dy):\n  return xp.multiply(dy, y, out=y)"),
    "an attribute set by the pullback": ("t", "def backward(dy):\n  t.seen = dy\n  return dy"),
    "an op's output": ("y", "y, softmax_backward = softmax(x)\ny *= 2\nreturn y, softmax_backward"),
    "an op's input": ("x", "y, g_backward = g(x)\nx[0] = 0\nreturn y, g_backward"),
    "an op's option": ("t", "y, g_backward = g(x, mask=t)\nt[0] = 0\nreturn y, g_backward"),
    "a layer's output as the loop comes round": ("y", "for g in x:\n  y[0] = 1\n  y, pullback = g(y)\nreturn y"),
}


@in_one("case", BROKEN)
def test_checker_rejects(case: str) -> None:
    name, body = BROKEN[case]
    found = violations("def f(x, t):\n" + textwrap.indent(body, "    "))
    assert {line.partition(":")[0] for line in found} == {name}
