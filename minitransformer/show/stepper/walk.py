"""Write out one cell of an expression in the source of a recorded step, with the recorded numbers."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import math
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...trace.calls import Binding, Call
from ...trace.lines import Returned
from .sources import name_called, parse
from .steps import Step, Steps, Summarised
from .terms import Applied, Index, Number, Operation, Term, joined, total

OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.BitAnd: "&",
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_FUNCTIONS = {"abs", "exp", "log", "sqrt", "tanh", "sin", "cos", "erf", "erfc"}
_CHOICES = {"maximum": "max", "minimum": "min"}
_REDUCTIONS = {"sum", "mean", "max", "min"}
_MOVES = {"reshape", "swapaxes", "transpose", "take_along_axis", "broadcast_to", "squeeze", "expand_dims"}
_MOVES |= {"ascontiguousarray", "moveaxis", "repeat"}
_CONSTANTS = {"arange", "causal_mask", "full", "ones", "ones_like", "zeros", "zeros_like"}
_HARMLESS = set("all any array array_module asarray astype clip device_of float int isfinite isinstance len".split())
_HARMLESS |= {"concatenate", "range", "stack", "str", "tuple", "where"}
_HARMLESS |= {*_FUNCTIONS, *_CHOICES, *_REDUCTIONS, *_MOVES, *_CONSTANTS}


class NotExpandable(ValueError):
    """The number was not computed by a line that can be written out; the message says what it is instead."""


def walk_of(recording: Steps, step: Step) -> Walk:
    """The walk through this step's expressions, made at the first request."""
    if step.index not in recording.workings:
        recording.workings[step.index] = Walk(recording, step)
    walk: Walk = recording.workings[step.index]
    return walk


class Walk:
    """Writes out cells of the expressions of one step."""

    def __init__(self, recording: Steps, step: Step) -> None:
        self.recording, self.step = recording, step
        self.statement = parse(step.source)
        self.names = recording.names_before(step)
        self.bound: dict[str, Binding] = recording.visible(step)
        self.reads_attributes = False  # of objects that may have changed since, such as parameters
        self._values: dict[ast.expr, Any] = {}
        self._moved: dict[ast.expr, np.ndarray] = {}

    @functools.cached_property
    def made(self) -> dict[ast.Call, Call]:
        """The recorded calls of the statement, by their node."""
        inner = self.recording.calls_in(self.step)
        if self.statement is None or not inner:
            return {}
        waiting = [(node, _code_of(self.callee(node))) for node in _in_order(self.statement)]
        made = {}
        for call in inner:
            found = next((i for i, (_, code) in enumerate(waiting) if code is call.code), None)
            if found is not None:
                made[waiting[found][0]] = call
                waiting = waiting[found + 1 :]
        return made

    def node_of(self, call: Call) -> ast.Call | None:
        """The node that made a call; None if it was not found."""
        return next((node for node, made in self.made.items() if made is call), None)

    def callee(self, node: ast.Call) -> Any:
        """The object that a node calls; None if it cannot be found without calling anything."""
        if any(isinstance(part, ast.Call) for part in ast.walk(node.func)):
            return None
        try:
            return eval(_compiled(node.func), self.names)
        except Exception:  # a name that is bound by the statement itself, as in a comprehension
            return None

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, from the recorded numbers. Recorded calls are not run again."""
        if node not in self._values:
            is_name = isinstance(node, ast.Name) and node.id in self.names
            self._values[node] = self.names[node.id] if is_name else self._evaluated(node, {})  # type: ignore[attr-defined]
        return self._values[node]

    def _evaluated(self, node: ast.expr, instead: dict[int, Any]) -> Any:
        """The value of a node. instead: values to use for nodes inside it, by the id of the node."""
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and id(part) not in instead:
                if part in self.made:
                    instead = instead | {id(part): _plain(self.made[part].results)}
                elif not self._is_harmless(part):
                    raise NotExpandable(f"{ast.unparse(part)} cannot be computed again")
        names = self.names | {f"_instead_{i}": value for i, value in enumerate(instead.values())}
        memo = {key: ast.Name(f"_instead_{i}", ast.Load()) for i, key in enumerate(instead)}
        replaced = copy.deepcopy(node, memo)  # the copy has these in place of the nodes with the ids
        try:
            with np.errstate(all="ignore"):  # what overflowed overflows again
                return eval(_compiled(replaced), names)
        except Exception as error:
            raise NotExpandable(f"{ast.unparse(node)} cannot be computed again: {error}") from error

    def _is_harmless(self, node: ast.Call) -> bool:
        """Whether a call can be made again: it draws nothing at random, and changes nothing."""
        return name_called(node) in _HARMLESS or hasattr(self.callee(node), "cache_info")

    def shape(self, node: ast.expr) -> tuple[int, ...]:
        """The shape of an expression's value."""
        value = self.value(node)
        return value.shape if isinstance(value, Summarised) else np.shape(value)

    def chosen(self, node: ast.expr) -> ast.expr:
        """The side of `a if test else b` that was taken; any other node as it is."""
        while isinstance(node, ast.IfExp):
            node = node.body if self.value(node.test) else node.orelse
        return node

    def cell(self, node: ast.expr, index: Index) -> Term:
        """One cell of the node's value. Raises NotExpandable."""
        node = self.chosen(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.cell(node.operand, index)
            constant = isinstance(inner, Number) and inner.serial is None
            return Number(-inner.value) if constant else Operation("negative", (inner,))  # type: ignore[union-attr]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self._product(node, index)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return self._joined(OPERATORS[type(node.op)], (node.left, node.right), index)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
            return self._joined(OPERATORS[type(node.ops[0])], (node.left, node.comparators[0]), index)
        if isinstance(node, ast.Call):
            return self._leaf(node, index) if node in self.made else self._call(node, index)
        is_array = isinstance(node, ast.Subscript) and not isinstance(self.value(node.value), tuple | list)
        if is_array or (isinstance(node, ast.Attribute) and node.attr in ("T", "mT")):
            return self._moved_here(node, node.value, index)  # type: ignore[attr-defined]
        return self._leaf(node, index)

    def _leaf(self, node: ast.expr, index: Index) -> Term:
        value = self.value(node)
        if isinstance(value, Summarised):
            raise NotExpandable(f"only a summary of {ast.unparse(node)} was recorded")
        value = np.asarray(value)
        if value.dtype.kind not in "fiub":
            raise NotExpandable(f"{ast.unparse(node)} is not a number")
        place = under(value.shape, index)
        number = value[place].item()
        if isinstance(node, ast.Name) and node.id in self.bound:
            return Number(number, self.bound[node.id].title, place, self.bound[node.id].serial)
        returned = self._returned(node)
        if isinstance(returned, Returned) and returned.serial is not None:
            return Number(number, self.recording.binding(returned.serial)[1].title, place, returned.serial)
        if any(isinstance(part, ast.Attribute) for part in ast.walk(node)) and value.shape:
            self.reads_attributes = True
        return Number(number)

    def _returned(self, node: ast.expr) -> Any:
        """What a recorded call returned or, for `call(...)[0]`, a part of that."""
        if isinstance(node, ast.Call) and node in self.made:
            return self.made[node].results
        whole = self._returned(node.value) if isinstance(node, ast.Subscript) else None
        return whole[self.value(node.slice)] if isinstance(whole, tuple) else None  # type: ignore[attr-defined]

    def _joined(self, symbol: str, sides: Sequence[ast.expr], index: Index) -> Term:
        return joined(symbol, *(self.cell(side, under(self.shape(side), index)) for side in sides))

    def _product(self, node: ast.BinOp, index: Index) -> Term:
        left, right = self.shape(node.left), self.shape(node.right)
        places = list(index)
        column = (places.pop(),) if len(right) > 1 else ()
        row = (places.pop(),) if len(left) > 1 else ()
        batch = tuple(places)
        terms = []
        for k in range(left[-1]):
            a = self.cell(node.left, (*under(left[:-2], batch), *row, k))
            b = self.cell(node.right, (*under(right[:-2], batch), k, *column))
            terms.append(Operation("*", (a, b)))
        return total(tuple(terms))

    def _call(self, node: ast.Call, index: Index) -> Term:
        name = name_called(node)
        on_array = isinstance(node.func, ast.Attribute) and not _is_library(node.func.value)
        base = node.func.value if on_array else node.args[0] if node.args else None  # type: ignore[attr-defined]
        if base is None or not self._is_harmless(node):
            raise NotExpandable(f"{ast.unparse(node)} cannot be written out")
        if name in _FUNCTIONS:
            return Applied(name, (self.cell(base, index),))
        if name == "where":
            test = bool(np.broadcast_to(self.value(base), self.shape(node))[index])
            chosen = node.args[1 if test else 2]
            return self.cell(chosen, under(self.shape(chosen), index))
        if name in _CHOICES:
            parts = tuple(self.cell(argument, under(self.shape(argument), index)) for argument in node.args)
            return Applied(_CHOICES[name], parts)
        if name == "clip":
            low, high = node.args[not on_array :]
            largest = Applied("max", (self.cell(base, index), self.cell(low, under(self.shape(low), index))))
            return Applied("min", (largest, self.cell(high, under(self.shape(high), index))))
        if name == "stack" and isinstance(base, ast.List | ast.Tuple):
            axis = next((self.value(keyword.value) for keyword in node.keywords if keyword.arg == "axis"), 0)
            axis %= len(index)
            return self.cell(base.elts[index[axis]], (*index[:axis], *index[axis + 1 :]))
        if name == "concatenate" and isinstance(base, ast.List | ast.Tuple):
            axis = next((self.value(keyword.value) for keyword in node.keywords if keyword.arg == "axis"), 0)
            axis %= len(index)
            at = list(index)
            for part in base.elts:
                if at[axis] < self.shape(part)[axis]:
                    return self.cell(part, tuple(at))
                at[axis] -= self.shape(part)[axis]
        if name in _REDUCTIONS:
            return self._reduced(node, base, node.args if on_array else node.args[1:], index)
        if name == "astype":
            return self._converted(node, base, index)
        if name in _MOVES:
            return self._moved_here(node, base, index)
        return self._leaf(node, index)

    def _converted(self, node: ast.Call, base: ast.expr, index: Index) -> Term:
        term = self.cell(base, index)
        if isinstance(term, Number):
            return Number(np.asarray(self.value(node))[index].item(), term.title, term.index, term.serial)
        if np.asarray(self.value(node)).dtype.kind != "f":
            raise NotExpandable(f"{ast.unparse(node)} cannot be written out")
        return term

    def _reduced(self, node: ast.Call, base: ast.expr, arguments: Sequence[ast.expr], index: Index) -> Term:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        shape = self.shape(base)
        axis_node = arguments[0] if arguments else given.get("axis")
        axis = None if axis_node is None else self.value(axis_node)
        axes = range(len(shape)) if axis is None else [a % len(shape) for a in np.atleast_1d(axis).astype(int)]
        kept_places = iter(index)
        keeps = len(index) == len(shape)
        ranges: list[Sequence[int]] = []
        for i, size in enumerate(shape):
            if i not in axes:
                ranges.append((next(kept_places),))
            else:
                ranges.append(range(size))
                if keeps:
                    next(kept_places)
        parts = tuple(self.cell(base, place) for place in itertools.product(*ranges))
        name = name_called(node)
        if name in ("max", "min"):
            return Applied(name, parts) if len(parts) > 1 else parts[0]
        return total(parts) if name == "sum" else Operation("/", (total(parts), Number(len(parts))))

    def _moved_here(self, node: ast.expr, base: ast.expr, index: Index) -> Term:
        shape = self.shape(base)
        if node not in self._moved:
            places = np.arange(math.prod(shape)).reshape(shape)
            self._moved[node] = np.asarray(self._evaluated(node, {id(base): places}))
        source = np.unravel_index(int(self._moved[node][index]), shape)
        return self.cell(base, tuple(int(i) for i in source))

    def placed(self, target: ast.Subscript) -> tuple[np.ndarray, tuple[int, ...]]:
        """For `x[i:j] = rows`: the flat index in `rows` of what each cell of x gets, or -1; and the shape of `rows`."""
        held = np.full(self.shape(as_read(target.value)), -1)
        names = self.names | {"_base": held}
        into = ast.Subscript(ast.Name("_base", ast.Load()), target.slice, ast.Load())
        shape = np.shape(eval(_compiled(into), names))
        names["_new"] = np.arange(math.prod(shape)).reshape(shape)
        exec(f"{ast.unparse(into)} = _new", names)
        return held, shape


def under(shape: Sequence[int], index: Index) -> Index:
    """The index of the cell that broadcasting an array of this shape puts at `index`."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, tail, strict=True))


def as_read(target: ast.expr) -> ast.expr:
    """The target of an assignment as an expression that reads it."""
    read = copy.deepcopy(target)
    for node in ast.walk(read):
        if hasattr(node, "ctx"):
            node.ctx = ast.Load()
    return read


def _plain(results: Any) -> Any:
    if isinstance(results, tuple):
        return tuple(map(_plain, results))
    if results is None:
        return None
    return Summarised(results.value) if results.value.array is None else results.value.plain()


def _in_order(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement, in the order in which they run: arguments first."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    if isinstance(node, ast.Call):
        yield node


def _code_of(callee: Any) -> types.CodeType | None:
    """The code that runs when this is called; looks inside decorated ops, partials, methods and modules."""
    while True:
        if isinstance(callee, functools.partial):
            callee = callee.func
        elif isinstance(callee, types.MethodType):
            callee = callee.__func__
        elif hasattr(callee, "__wrapped__"):
            callee = inspect.unwrap(callee)
        else:
            break
    if not isinstance(callee, types.FunctionType) and not isinstance(callee, type):
        callee = inspect.getattr_static(type(callee), "__call__", None)
    return getattr(callee, "__code__", None)


def _is_library(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("xp", "np", "numpy", "math")


def _compiled(node: ast.expr) -> types.CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(node)), "<expression>", "eval")
