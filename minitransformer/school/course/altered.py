"""The solution of an exercise with one thing changed, for each thing that can be changed in it.

The alternatives of all places stand in one function, which is compiled once:

    y = a * b if 7 not in __on else (lambda: a, lambda: b, lambda: a / b)[__on[7]]()

So to try one of them costs no more than a run of the solution. Solutions of other exercises that it calls are changed
as well.
"""

import ast
import copy
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .changes import SIZE, Scope, atoms, changes, copied, expression, is_atom
from .exercise import EXERCISES, Exercise


@dataclass(frozen=True)
class Change:
    """What is changed, in words, and which alternative is taken at which places."""

    said: str
    at: dict[int, int]
    likely: bool = True  # enough to be looked for together with another one


class Altered:
    """All changes of an exercise's solution; `run(change.at, inputs)` is what it then returns."""

    def __init__(self, exercise: Exercise) -> None:
        self._name = exercise.name
        self._arguments = exercise.arguments
        self._values: dict[str, dict[str, Any]] = {}
        self._names: dict[str, Any] = {"__note": self._values.__setitem__}
        functions = list(_with_callees(exercise, {}).values())
        for one in functions:
            self._names = one.reference.__globals__ | self._names
        trees = {one.name: ast.parse(one.solution()) for one in functions}
        for tree in trees.values():
            self._define(tree)
        inputs = exercise.trials(0)[0]
        self.run({}, inputs)
        seen, places = dict(self._values), itertools.count()
        self.changes: list[Change] = []
        for name, tree in trees.items():
            writer = _Writer(seen.get(name, {}), self._names["__sizes"], places)
            self._define(writer.rewritten(tree))
            within = "" if name == self._name else f" (in {name})"
            self.changes += [Change(said + within, at, likely) for said, at, likely in writer.found()]
        self.changes.sort(key=lambda change: not change.likely)

    def run(self, at: dict[int, int], inputs: tuple[Any, ...], given: dict[str, Any] | None = None) -> list[np.ndarray]:
        """The outputs of the solution with this change. Raises whatever the change makes it raise.

        given: values by name, from which it then computes the rest.
        """
        self._names |= {"__on": at, "__sizes": self.sizes(inputs), "__given": given or {}}
        returned = self._names[self._name](*inputs)
        return [np.asarray(x) for x in (returned if isinstance(returned, tuple) else (returned,))]

    def sizes(self, inputs: tuple[Any, ...]) -> dict[str, int]:
        """The integers among the inputs and the lengths of the arrays' axes, by how one writes them."""
        sizes = {name: x for name, x in zip(self._arguments, inputs, strict=True) if type(x) is int}
        for name, x in zip(self._arguments, inputs, strict=True):
            if isinstance(x, np.ndarray):
                sizes |= {f"{name}.shape[{i - x.ndim}]": n for i, n in enumerate(x.shape)}
                if x.ndim > 2:
                    sizes[f"{name}.shape[0] * {name}.shape[1]"] = x.shape[0] * x.shape[1]
        return sizes

    def values(self, inputs: tuple[Any, ...]) -> dict[str, np.ndarray]:
        """The arrays of the right solution by name: inputs, outputs and what lies between."""
        self.run({}, inputs)
        return {name: x for name, x in atoms(self._values[self._name]).items() if isinstance(x, np.ndarray)}

    def _define(self, tree: ast.Module) -> None:
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef)
        noting = ast.parse(f"__note({function.name!r}, locals())").body
        noted = copy.copy(function)
        noted.body = [*function.body[:-1], *noting, function.body[-1]]
        module = ast.fix_missing_locations(ast.Module([noted], []))
        exec(compile(module, "<a change>", "exec", dont_inherit=True), self._names)


@functools.lru_cache(maxsize=8)
def altered(exercise: Exercise) -> Altered:
    """The changes of an exercise's solution."""
    return Altered(exercise)


def _with_callees(exercise: Exercise, found: dict[str, Exercise]) -> dict[str, Exercise]:
    """The exercise, and those whose solutions it calls."""
    found[exercise.name] = exercise
    for name in exercise.reference.__code__.co_names:
        called = EXERCISES.get(name)
        if called and name not in found and exercise.reference.__globals__.get(name) is called.reference:
            _with_callees(called, found)
    return found


class _Writer(ast.NodeTransformer):
    """Puts the alternatives of each formula beside it; `found()`: each change in words, and its places.

    values: those of the function's names in a run; sizes: the lengths of all arguments' axes, by how one writes them.
    """

    def __init__(self, values: dict[str, Any], sizes: dict[str, int], places: Iterator[int]) -> None:
        self._single: list[tuple[str, dict[int, int], bool]] = []
        self._everywhere: dict[str, tuple[dict[int, int], bool]] = {}
        self._values, self._sizes, self._places = values, sizes, places
        self._line = ""

    def found(self) -> Iterator[tuple[str, dict[int, int], bool]]:
        """Each change at one place; then those that fit several places, at all of them."""
        yield from self._single
        for said, (places, likely) in self._everywhere.items():
            if len(places) > 1:
                yield said, places, likely

    def rewritten(self, tree: ast.Module) -> ast.Module:
        """The definition of a function, with its alternatives."""
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef)
        self._scope = Scope(self._values, [one.arg for one in function.args.args], self._sizes)
        new = copied(function)
        new.body = self._lines(function.body, outermost=True)
        return ast.Module([new], [])

    def _lines(self, body: list[ast.stmt], outermost: bool = False) -> list[ast.stmt]:
        late: dict[str, list[ast.stmt]] = {}
        new: list[ast.stmt] = []
        for line in body:
            targets = [node for one in getattr(line, "targets", []) for node in ast.walk(one)]
            named = {
                node.id: None for node in targets if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            written = [one.value if isinstance(one, ast.Subscript) else one for one in getattr(line, "targets", [])]
            self._line = ", ".join(map(ast.unparse, written)) or (
                "the loop" if isinstance(line, ast.For) else "the last line"
            )
            if outermost and isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                for name, other in self._with_later_names(line):
                    late.setdefault(name, []).append(other)
            new += self._one(line)
            self._scope.known |= set(named)
            new += [other for name in named for other in late.pop(name, [])]
            if outermost and isinstance(line, ast.Assign):
                new += [ast.parse(f"if {name!r} in __given: {name} = __given[{name!r}]").body[0] for name in named]
        return new

    def _one(self, line: ast.stmt) -> list[ast.stmt]:
        if isinstance(line, ast.For | ast.If | ast.FunctionDef):
            known, new = set(self._scope.known), copied(line)
            if isinstance(line, ast.FunctionDef):
                self._scope.known -= {one.arg for one in line.args.args}  # other arrays of the same name
            elif isinstance(line, ast.For):
                self._scope.known |= {node.id for node in ast.walk(line.target) if isinstance(node, ast.Name)}
            new.body = self._lines(line.body)
            self._scope.known = known | ({line.name} if isinstance(line, ast.FunctionDef) else set())
            return [new]
        others: list[tuple[str, ast.stmt]] = []
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        text = ast.unparse(target) if target is not None else ""
        if isinstance(line, ast.Expr) or isinstance(target, ast.Subscript):
            others.append((f"the line {ast.unparse(line)} is missing", ast.Pass()))
        if isinstance(line, ast.AugAssign):
            others.append((f"{text} is overwritten; it must be added to", ast.Assign([line.target], line.value)))
        if isinstance(line, ast.Assign) and isinstance(target, ast.Subscript):
            others.append((f"{text} is added to; it must be set", ast.AugAssign(target, ast.Add(), line.value)))
        if isinstance(line, ast.Return) and line.value and all(map(is_atom, getattr(line.value, "elts", [line.value]))):
            return [line]  # names of outputs
        changed = self.generic_visit(copied(line))
        assert isinstance(changed, ast.stmt)
        for said, other in others:
            changed = self._if_chosen(said, copied(other), changed)
        return [changed]

    def _with_later_names(self, line: ast.Assign) -> Iterator[tuple[str, ast.stmt]]:
        """The line with a name in it that gets its value later only, to be put there."""
        for i, node in enumerate(ast.walk(line.value)):
            for other in self._values if is_atom(node) else ():
                text = ast.unparse(node)
                if other not in self._scope.known and self._scope.same(text, other):
                    new = copied(line)
                    old = next(itertools.islice(ast.walk(new.value), i, None))
                    new.value = _Replaced(old, other).visit(new.value)
                    said = f"in {self._line}, {other} stands where {text} belongs"
                    yield other, self._if_chosen(said, new, likely=False)

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return self._with_alternatives(node)
        return super().visit(node)

    def _with_alternatives(self, node: ast.expr) -> ast.expr:
        place = next(self._places)
        alternatives: list[ast.expr] = []
        for one in changes(node, self._scope):
            self._single.append((f"in {self._line}, {one.said}", {place: len(alternatives)}, one.likely))
            if one.everywhere:
                self._everywhere.setdefault(one.everywhere, ({}, one.likely))[0][place] = len(alternatives)
            alternatives.append(one.node)
        text = ast.unparse(node)
        if not (SIZE.fullmatch(text) or is_atom(node)):  # these have no parts
            node = super().generic_visit(node) if not isinstance(node, ast.Call) else self._call(node)  # type: ignore[assignment]
        if not alternatives:
            return node
        functions = ", ".join("lambda: 0" for _ in alternatives)
        chosen = ast.parse(f"0 if {place} not in __on else ({functions},)[__on[{place}]]()", mode="eval").body
        assert isinstance(chosen, ast.IfExp) and isinstance(chosen.orelse, ast.Call)
        chosen.body = node
        for function, other in zip(chosen.orelse.func.value.elts, alternatives, strict=True):  # type: ignore[attr-defined]
            function.body = other
        return chosen

    def _call(self, node: ast.Call) -> ast.Call:
        """A call with alternatives in its arguments, and in the object of a method; its axes are left alone."""
        if is_atom(node.func) and ast.unparse(node.func) in self._scope.atoms:
            node.func = self.visit(node.func)
        elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in ("np", "np.add"):
            node.func.value = self.visit(node.func.value)
        if not (isinstance(node.func, ast.Attribute) and node.func.attr in ("swapaxes", "transpose")):
            node.args = [self.visit(one) for one in node.args]
        return node

    def _if_chosen(self, said: str, line: ast.stmt, *otherwise: ast.stmt, likely: bool = True) -> ast.If:
        """A new place, at which a whole line has one alternative."""
        place = next(self._places)
        self._single.append((said, {place: 0}, likely))
        return ast.If(expression(f"{place} in __on"), [line], [*otherwise])


class _Replaced(ast.NodeTransformer):
    """Puts a name in place of one node."""

    def __init__(self, old: ast.AST, name: str) -> None:
        self._old, self._new = old, ast.parse(name, mode="eval").body

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)
