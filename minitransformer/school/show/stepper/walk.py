"""Write out one cell of an expression in the source of a recorded step, with the recorded numbers."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import math
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....check.trace.calls import Binding, Call
from ....check.trace.recorder import Returned
from . import expressions as ex
from .steps import Step, Steps, Summarised, as_seen
from .terms import FUNCTIONS, OPERATORS, Term, joined, total

_CHOICES = {"maximum": "max", "minimum": "min"}
_REDUCTIONS = {"sum", "mean", "max", "min"}
_MOVES = {"reshape", "swapaxes", "transpose", "take_along_axis", "broadcast_to", "squeeze", "expand_dims"}
_MOVES |= {"asarray", "ascontiguousarray", "moveaxis", "repeat"}
_CONSTANTS = {"arange", "causal_mask", "full", "ones", "ones_like", "zeros", "zeros_like"}
_HARMLESS = set("all any array array_module astype clip device_of float int isfinite isinstance len".split())
_HARMLESS |= {"concatenate", "cumsum", "range", "slice", "stack", "str", "tril", "tuple", "type", "where"}
_HARMLESS |= {*FUNCTIONS, *_CHOICES, *_REDUCTIONS, *_MOVES, *_CONSTANTS}


def walk_of(recording: Steps, step: Step) -> Walk:
    """The walk through this step's expressions."""
    return recording.kept(step.index, lambda: Walk(recording, step))


class Walk:
    """Writes out cells of the expressions of one step."""

    def __init__(self, recording: Steps, step: Step) -> None:
        self.recording, self.step = recording, step
        self.statement = ex.read(step.source)
        self.names = recording.names_before(step)
        self.bound: dict[str, Binding] = recording.visible(step)
        self.reads_attributes = False  # of objects that may have changed since, such as parameters
        self._values: dict[Any, Any] = {}
        self._moved: dict[Any, np.ndarray] = {}

    @functools.cached_property
    def made(self) -> dict[ast.AST, Call]:
        """The recorded calls of the statement, by their node."""
        inner = self.recording.calls_in(self.step)
        parts = [part for part in self.statement.everything if isinstance(part, ex.Applied)] if inner else []
        waiting = [(part.node, _code_of(self.callee(part))) for part in parts]
        made: dict[ast.AST, Call] = {}
        for call in inner:
            found = next((i for i, (_, code) in enumerate(waiting) if code is call.code), None)
            if found is not None and (node := waiting[found][0]) is not None:
                made[node] = call
                waiting = waiting[found + 1 :]
        return made

    def call_of(self, part: ex.Expression) -> Call | None:
        """The recorded call that a part of the line made."""
        return self.made.get(part.node) if part.node is not None else None

    def applied(self, call: Call) -> ex.Applied | None:
        """The part of the line that made a call; None if it was not found."""
        parts = (part for part in self.statement.everything if isinstance(part, ex.Applied))
        return next((part for part in parts if self.call_of(part) is call), None)

    def callee(self, part: ex.Applied) -> Any:
        """The object that is called; None if it cannot be found without calling anything."""
        node = None if part.function is None else part.function.node
        if not isinstance(node, ast.expr) or any(isinstance(inside, ast.Call) for inside in ast.walk(node)):
            return None
        try:
            return eval(_compiled(node), self.names)
        except Exception:  # a name that is bound by the statement itself, as in a comprehension
            return None

    def value(self, part: ex.Expression) -> Any:
        """The value of an expression, from the recorded numbers. Recorded calls are not run again."""
        assert part.node is not None
        if part.node not in self._values:
            is_name = isinstance(part, ex.Name) and part.id in self.names
            self._values[part.node] = self.names[part.id] if is_name else self._evaluated(part, {})  # type: ignore[attr-defined]
        return self._values[part.node]

    def _evaluated(self, whole: ex.Expression, instead: dict[int, Any]) -> Any:
        """The value of an expression. instead: values to use for nodes inside it, by the id of the node."""
        for part in ex.everything(whole):
            if isinstance(part, ex.Applied) and id(part.node) not in instead:
                call = self.call_of(part)
                if call is not None:
                    instead = instead | {id(part.node): _plain(call.results)}
                elif not self._is_harmless(part):
                    raise ex.NotExpandable(f"{part.text} cannot be computed again")
        names = self.names | {f"_instead_{i}": value for i, value in enumerate(instead.values())}
        memo = {key: ast.Name(f"_instead_{i}", ast.Load()) for i, key in enumerate(instead)}
        assert isinstance(whole.node, ast.expr)
        replaced = copy.deepcopy(whole.node, memo)  # the copy has these in place of the nodes with the ids
        try:
            with np.errstate(all="ignore"):  # what overflowed overflows again
                return eval(_compiled(replaced), names)
        except Exception as error:
            raise ex.NotExpandable(f"{whole.text} cannot be computed again: {error}") from error

    def _is_harmless(self, part: ex.Applied) -> bool:
        """Whether a call can be made again: it draws nothing at random, and changes nothing."""
        return part.name in _HARMLESS or hasattr(self.callee(part), "cache_info")

    def shape(self, part: ex.Expression) -> tuple[int, ...]:
        """The shape of an expression's value."""
        value = self.value(part)
        return value.shape if isinstance(value, Summarised) else np.shape(value)

    def chosen(self, part: ex.Expression) -> ex.Expression:
        """The side of `a if test else b` that was taken; any other expression as it is."""
        match part:
            case ex.Operation("if", (test, yes, no)):
                return self.chosen(yes if self.value(test) else no)
        return part

    def cell(self, whole: ex.Expression, index: ex.Index) -> Term:
        """One cell of an expression's value. Raises NotExpandable."""
        whole = self.chosen(whole)
        match whole:
            case ex.Operation("negative", (part,)):
                term = self.cell(part, index)
                constant = isinstance(term, ex.Number) and term.serial is None
                return ex.Number(-term.value) if constant else ex.Operation("negative", (term,))  # type: ignore[attr-defined]
            case ex.Operation("@", (left, right)):
                return self._product(left, right, index)
            case ex.Operation(symbol, (left, right)) if symbol in OPERATORS:
                return joined(symbol, self.under(left, index), self.under(right, index))
            case ex.Applied() if self.call_of(whole) is None:
                return self._applied(whole, index)
            case ex.Member(base, "T" | "mT"):
                return self._moved_here(whole, base, index)
            case ex.Operation("[]", (base, _)) if not isinstance(self.value(base), tuple | list):
                return self._moved_here(whole, base, index)
        return self._leaf(whole, index)

    def under(self, part: ex.Expression, index: ex.Index) -> Term:
        """The cell that broadcasting an expression's value puts at `index`."""
        return self.cell(part, under(self.shape(part), index))

    def _leaf(self, part: ex.Expression, index: ex.Index) -> Term:
        value = self.value(part)
        if isinstance(value, Summarised):
            raise ex.NotExpandable(f"only a summary of {part.text} was recorded")
        value = np.asarray(value)
        if value.dtype.kind not in "fiub":
            raise ex.NotExpandable(f"{part.text} is not a number")
        place = under(value.shape, index)
        number = value[place].item()
        if isinstance(part, ex.Name) and part.id in self.bound:
            return ex.Number(number, self.bound[part.id].title, place, self.bound[part.id].serial)
        returned = self._returned(part)
        if isinstance(returned, Returned) and returned.serial is not None:
            return ex.Number(number, self.recording.binding(returned.serial)[1].title, place, returned.serial)
        if value.shape and any(isinstance(inside, ex.Member) for inside in ex.everything(part)):
            self.reads_attributes = True
        return ex.Number(number)

    def _returned(self, part: ex.Expression) -> Any:
        """What a recorded call returned or, for `call(...)[0]`, a part of that."""
        call = self.call_of(part)
        if call is not None:
            return call.results
        match part:
            case ex.Operation("[]", (of, at)) if isinstance(whole := self._returned(of), tuple):
                return whole[self.value(at)]
        return None

    def _product(self, left: ex.Expression, right: ex.Expression, index: ex.Index) -> Term:
        rows, columns = self.shape(left), self.shape(right)
        places = list(index)
        column = (places.pop(),) if len(columns) > 1 else ()
        row = (places.pop(),) if len(rows) > 1 else ()
        batch = tuple(places)
        terms = []
        for k in range(rows[-1]):
            a = self.cell(left, (*under(rows[:-2], batch), *row, k))
            b = self.cell(right, (*under(columns[:-2], batch), k, *column))
            terms.append(ex.Operation("*", (a, b)))
        return total(tuple(terms))

    def _applied(self, whole: ex.Applied, index: ex.Index) -> Term:
        if not whole.operands or not self._is_harmless(whole):
            raise ex.NotExpandable(f"{whole.text} cannot be written out")
        name, (base, *rest) = whole.name, whole.operands
        if name in FUNCTIONS:
            return ex.Applied(name, (self.cell(base, index),))
        if name == "where":
            test = bool(np.broadcast_to(self.value(base), self.shape(whole))[index])
            return self.under(rest[not test], index)
        if name in _CHOICES:
            return ex.Applied(_CHOICES[name], tuple(self.under(part, index) for part in whole.operands))
        if name == "clip":
            low, high = (self.under(part, index) for part in rest)
            return ex.Applied("min", (ex.Applied("max", (self.cell(base, index), low)), high))
        if name in ("stack", "concatenate") and ex.is_joined(base, ","):
            axis = self.value(whole.options["axis"]) % len(index) if "axis" in whole.options else 0
            at = list(index)
            if name == "stack":
                return self.cell(ex.inner(base)[at.pop(axis)], tuple(at))
            for part in ex.inner(base):
                if at[axis] < self.shape(part)[axis]:
                    return self.cell(part, tuple(at))
                at[axis] -= self.shape(part)[axis]
        if name == "tril":
            return self.cell(base, index) if index[-1] <= index[-2] else ex.Number(0.0)
        if name == "cumsum" and "axis" in whole.options:
            axis = self.value(whole.options["axis"]) % len(index)
            places = ((*index[:axis], k, *index[axis + 1 :]) for k in range(index[axis] + 1))
            return total(tuple(self.cell(base, place) for place in places))
        if name in _REDUCTIONS:
            return self._reduced(name, base, rest[0] if rest else whole.options.get("axis"), index)
        if name == "astype":
            return self._converted(whole, base, index)
        if name in _MOVES:
            return self._moved_here(whole, base, index)
        return self._leaf(whole, index)

    def _converted(self, whole: ex.Applied, base: ex.Expression, index: ex.Index) -> Term:
        term = self.cell(base, index)
        if isinstance(term, ex.Number):
            return ex.Number(np.asarray(self.value(whole))[index].item(), term.title, term.index, term.serial)
        if np.asarray(self.value(whole)).dtype.kind != "f":
            raise ex.NotExpandable(f"{whole.text} cannot be written out")
        return term

    def _reduced(self, name: str, base: ex.Expression, along: ex.Expression | None, index: ex.Index) -> Term:
        shape = self.shape(base)
        axis = None if along is None else self.value(along)
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
        if name in ("max", "min"):
            return ex.Applied(name, parts) if len(parts) > 1 else parts[0]
        return total(parts) if name == "sum" else ex.Operation("/", (total(parts), ex.Number(len(parts))))

    def _moved_here(self, whole: ex.Expression, base: ex.Expression, index: ex.Index) -> Term:
        shape = self.shape(base)
        if whole.node not in self._moved:
            places = np.arange(math.prod(shape)).reshape(shape)
            self._moved[whole.node] = np.asarray(self._evaluated(whole, {id(base.node): places}))
        source = np.unravel_index(int(self._moved[whole.node][index]), shape)
        return self.cell(base, tuple(int(i) for i in source))

    def placed(self, base: ex.Expression, at: ex.Expression) -> tuple[np.ndarray, tuple[int, ...]]:
        """For `x[i:j] = rows`: the flat index in `rows` of what each cell of x gets, or -1; and the shape of `rows`."""
        held = np.full(self.shape(base), -1)
        names = self.names | {"_base": held}
        assert isinstance(at.node, ast.expr)
        into = ast.Subscript(ast.Name("_base", ast.Load()), at.node, ast.Load())
        shape = np.shape(eval(_compiled(into), names))
        names["_new"] = np.arange(math.prod(shape)).reshape(shape)
        exec(f"{ast.unparse(into)} = _new", names)
        return held, shape


def under(shape: Sequence[int], index: ex.Index) -> ex.Index:
    """The index of the cell that broadcasting an array of this shape puts at `index`."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, tail, strict=True))


def _plain(results: Any) -> Any:
    if isinstance(results, tuple):
        return tuple(map(_plain, results))
    return None if results is None else as_seen(results.value)


def _code_of(callee: Any) -> types.CodeType | None:
    """The code that runs when this is called; looks inside decorated ops, partials, methods and modules."""
    match callee:
        case object(__wrapped__=inner) | functools.partial(func=inner) | types.MethodType(__func__=inner):
            return _code_of(inner)
    if not isinstance(callee, types.FunctionType | type):
        callee = inspect.getattr_static(type(callee), "__call__", None)
    return getattr(callee, "__code__", None)


def _compiled(node: ast.expr) -> types.CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(node)), "<expression>", "eval")
