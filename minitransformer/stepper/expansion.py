"""Where does this number come from? The right-hand side of its line, written out with the numbers of one cell.

    scores = (q @ k.swapaxes(-1, -2)) * factor
    scores[1, 2] = (2·0 + 2·4 + 2·0) · 0.7071

The line's syntax tree is walked from the top, asking of each node: which cells of its parts make up this one cell? For
element-wise arithmetic it is the cell at the same place (broadcasting aside), for a product of matrices a row and a
column, for a sum the cells along an axis, and for whatever only moves numbers about (a transpose, a reshape, an index) the cell that
was moved here. To find that one, the same move is made with an array that holds each cell's own place.
"""

from __future__ import annotations

import ast
import copy
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .recording import Bound, Call, Recording, Step

Index = tuple[int, ...]

_OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**",
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.BitAnd: "&",
}  # fmt: skip
_FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sin", "cos", "erf")
_REDUCTIONS = ("sum", "mean", "max", "min")
_MOVES = ("reshape", "swapaxes", "transpose", "take_along_axis", "broadcast_to")
_PURE = ("arange", "causal_mask", "full", "isfinite", "len", "ones", "ones_like", "zeros", "zeros_like")
_KNOWN: dict[str, Any] = {name: getattr(math, name) for name in _FUNCTIONS} | {"inf": math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Expansion:
    """How one cell was computed. `text` is Python that evaluates to the number; `pretty` is the same to look at.

    cells: the (title, index) of every recorded number it was computed from.
    """

    title: str
    index: Index
    text: str
    pretty: str
    cells: tuple[tuple[str, Index], ...]

    def value(self) -> float:
        """The number that `text` evaluates to."""
        return float(eval(self.text, {"__builtins__": {"abs": abs, "max": max, "min": min}}, _KNOWN))

    def __str__(self) -> str:
        place = "[" + ", ".join(map(str, self.index)) + "]" if self.index else ""
        return f"{self.title.rpartition('.')[2]}{place} = {self.pretty}"


class NotExpandable(ValueError):
    """The line computes the name in a way that cannot be written out, such as the arguments a call came with."""


def expand(recording: Recording, step: Step, bound: Bound, index: Sequence[int]) -> Expansion:
    """Write out the cell `index` of what `step` bound. A result of an inner call is written out where it was computed.

    Raises NotExpandable for an argument, for a number drawn at random, and for an array of which only a summary was kept.
    """
    cell = tuple(int(i) for i in index)
    if bound.value.array is None:
        raise NotExpandable(f"of {bound.title} only a summary was recorded")
    if len(cell) != bound.value.array.ndim:
        raise ValueError(f"{bound.title} has {bound.value.array.ndim} axes, got the index {cell}")
    if (filled := _filled_in_place(recording, step, bound, cell)) is not None:
        return filled
    node, inner = _right_hand_side(recording, step, bound.name)
    if inner is not None:
        return expand(recording, *inner, cell)
    assert node is not None
    walk = _Walk(recording, step)
    text = walk.cell(node, cell, _exactly)
    pretty = walk.cell(node, cell, _prettily)
    return Expansion(bound.title, cell, text, _trim(pretty).replace(" * ", "·"), tuple(dict.fromkeys(walk.cells)))


def _filled_in_place(recording: Recording, step: Step, bound: Bound, cell: Index) -> Expansion | None:
    """The two ways in which our ops fill an array: scatter_add(dtable, ids, rows), and dtable[start:stop] = rows."""
    statement = _statement(step.source)
    walk = _Walk(recording, step)
    if (
        isinstance(statement, ast.Expr)
        and isinstance(call := statement.value, ast.Call)
        and _called(call) == "scatter_add"
    ):
        ids, rows = call.args[1:]
        places = [(int(n), *cell[1:]) for n in np.flatnonzero(walk.value(ids) == cell[0])]
        source = rows
    elif isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Subscript):
        held, shape = walk.placed(target)
        places = [tuple(int(i) for i in np.unravel_index(held[cell], shape))] if held[cell] >= 0 else []
        source = statement.value
    else:
        return None
    texts = [
        " + ".join(walk.cell(source, place, number) for place in places) or "0.0" for number in (_exactly, _prettily)
    ]
    return Expansion(bound.title, cell, texts[0], texts[1].replace(" * ", "·"), tuple(dict.fromkeys(walk.cells)))


def _exactly(number: Any) -> str:
    return repr(number.item() if hasattr(number, "item") else number)


def _prettily(number: Any) -> str:
    number = number.item() if hasattr(number, "item") else number
    return f"{number:.4f}".rstrip("0").rstrip(".").replace("-0", "0") if number == 0 else f"{number:.4g}"


def _trim(text: str) -> str:
    """Without the brackets around the whole."""
    while text.startswith("(") and text.endswith(")") and _closes_at(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closes_at(text: str) -> int:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i
    return -1


def _statement(source: str) -> ast.stmt | None:
    """The step's statement; None for the head of a compound one."""
    try:
        return ast.parse(textwrap.dedent(source)).body[0]
    except (SyntaxError, IndexError):
        return None


def _right_hand_side(recording: Recording, step: Step, name: str) -> tuple[ast.expr | None, tuple[Step, Bound] | None]:
    """The expression that `name` was bound to in this step; or, if an inner call returned it, where that was bound."""
    statement = _statement(step.source)
    if isinstance(statement, ast.AugAssign):
        return ast.BinOp(copy.deepcopy(_as_load(statement.target)), statement.op, statement.value), None
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        raise NotExpandable(f"{name} was not computed here, but came with the call")
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    value = statement.value
    if isinstance(target, ast.Tuple | ast.List):
        names = [part.id if isinstance(part, ast.Name) else "" for part in target.elts]
        position = names.index(name) if name in names else -1
        if isinstance(value, ast.Tuple) and position >= 0:
            return value.elts[position], None
    else:
        position = 0
    if isinstance(value, ast.Call) and (inner := _inner_calls(recording, step)):
        return None, returned(recording, inner[-1], position)
    if isinstance(target, ast.Name):
        return value, None
    raise NotExpandable(f"{name} is one of several results of a computation that is not an op")


def _as_load(target: ast.expr) -> ast.expr:
    loaded = copy.deepcopy(target)
    for node in ast.walk(loaded):
        if hasattr(node, "ctx"):
            node.ctx = ast.Load()
    return loaded


def _inner_calls(recording: Recording, step: Step) -> list[Call]:
    """The calls that ran inside this step's statement, in order."""
    before = [other.index for other in recording.steps if other.call == step.call and other.index < step.index]
    since = before[-1] if before else -1
    indices = {other.call for other in recording.steps if since < other.index < step.index}
    return [call for call in recording.calls if call.index in indices and call.parent == step.call]


def returned(recording: Recording, call: Call, position: int = 0) -> tuple[Step, Bound]:
    """Where the call bound what it returned: of `return a, b` the name at `position`."""
    steps = [step for step in recording.steps if step.call == call.index]
    for step in reversed(steps):
        statement = _statement(step.source)
        if isinstance(statement, ast.Return):
            value = statement.value
            if isinstance(value, ast.IfExp):
                value = value.body
            part = value.elts[position] if isinstance(value, ast.Tuple) and position < len(value.elts) else value
            if isinstance(part, ast.Name):
                for other in reversed(steps):
                    for bound in other.bound:
                        if bound.name == part.id:
                            return other, bound
            break
    raise NotExpandable(f"what {call.label} returned has no name there")


class _Walk:
    """Writes out cells of the expressions of one step."""

    def __init__(self, recording: Recording, step: Step) -> None:
        self.recording, self.step = recording, step
        self.names = recording.names_before(step)
        self.titles = {b.name: b.title for s in recording.steps[: step.index] for b in s.bound if self._visible(s)}
        self.cells: list[tuple[str, Index]] = []
        self._inner = _inner_calls(recording, step)
        self._values: dict[int, Any] = {}

    def _visible(self, step: Step) -> bool:
        call = self.recording.calls[self.step.call]
        return step.call in (call.index, call.forward_call)

    def value(self, node: ast.expr) -> Any:
        """The value of a subexpression, from the recorded numbers; calls of pullbacks are not run again."""
        if id(node) not in self._values:
            self._values[id(node)] = self._evaluate(node)
        return self._values[id(node)]

    def _evaluate(self, node: ast.expr) -> Any:
        recorded = self._recorded_calls(node)
        names = self.names | {f"_result_{i}": value for i, value in enumerate(recorded.values())}
        replaced = _Replace({key: f"_result_{i}" for i, key in enumerate(recorded)}).visit(_marked(node))
        return eval(compile(ast.fix_missing_locations(ast.Expression(replaced)), "<line>", "eval"), names)

    def _recorded_calls(self, node: ast.expr) -> dict[int, Any]:
        """The results of traced calls inside the node, by the order in which they stand in the statement."""
        found: dict[int, Any] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
                match = self._traced(inner)
                if match is not None:
                    found[id(inner)] = match[1].value.array
        return found

    def _traced(self, node: ast.Call) -> tuple[Step, Bound] | None:
        """Where the traced call that this node made bound its result, if it made one."""
        statement = _statement(self.step.source)
        assert statement is not None
        calls = [c for c in ast.walk(statement) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
        calls = [c for c in calls if c.func.id.endswith("backward")]  # type: ignore[attr-defined]
        calls.sort(key=lambda c: (c.lineno, c.col_offset))
        places = [(c.lineno, c.col_offset) for c in calls]
        if (node.lineno, node.col_offset) not in places or len(places) != len(self._inner):
            return None
        return returned(self.recording, self._inner[places.index((node.lineno, node.col_offset))])

    def cell(self, node: ast.expr, index: Index, number: Callable[[Any], str]) -> str:
        """The text of one cell of the node's value."""
        if isinstance(node, ast.IfExp):
            return self.cell(node.body if self.value(node.test) else node.orelse, index, number)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return f"(-{self.cell(node.operand, index, number)})"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self._product(node, index, number)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self._between(node.left, node.op, node.right, index, number)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
            return self._between(node.left, node.ops[0], node.comparators[0], index, number)
        if isinstance(node, ast.Call):
            return self._call(node, index, number)
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "T"):
            return self._moved(node, node.value, index, number)
        return self._leaf(node, index, number)

    def _leaf(self, node: ast.expr, index: Index, number: Callable[[Any], str]) -> str:
        match = self._traced(node) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if isinstance(node, ast.Call) and match is None and _called(node) not in _PURE:
            raise NotExpandable(
                f"{ast.unparse(node)} cannot be written out"
            )  # it may draw at random, or change something
        value = np.asarray(self.value(node))
        place = _under(value.shape, index)
        if isinstance(node, ast.Name) and node.id in self.titles:
            self.cells.append((self.titles[node.id], place))
        elif match is not None:
            self.cells.append((match[1].title, place))
        if value.dtype.kind not in "fiub":
            raise NotExpandable(f"{ast.unparse(node)} is no number")
        text = number(value[place])
        return f"({text})" if text.startswith("-") else text

    def _between(
        self, left: ast.expr, operator: ast.AST, right: ast.expr, index: Index, number: Callable[[Any], str]
    ) -> str:
        sides = [self.cell(side, _under(np.shape(self.value(side)), index), number) for side in (left, right)]
        return f"({sides[0]} {_OPERATORS[type(operator)]} {sides[1]})"

    def _product(self, node: ast.BinOp, index: Index, number: Callable[[Any], str]) -> str:
        left, right = np.shape(self.value(node.left)), np.shape(self.value(node.right))
        *batch, i, j = index
        terms = []
        for k in range(left[-1]):
            a = self.cell(node.left, (*_under(left[:-2], tuple(batch)), i, k), number)
            b = self.cell(node.right, (*_under(right[:-2], tuple(batch)), k, j), number)
            terms.append(f"{a} * {b}")
        return "(" + " + ".join(terms) + ")"

    def _call(self, node: ast.Call, index: Index, number: Callable[[Any], str]) -> str:
        function, name = node.func, _called(node)
        of_array = isinstance(function, ast.Attribute) and not _is_library(function.value)
        base = function.value if of_array else (node.args[0] if node.args else None)  # type: ignore[union-attr]
        if base is None:
            return self._leaf(node, index, number)
        if name in _FUNCTIONS or name == "abs":
            return f"{name}({_trim(self.cell(base, index, number))})"
        if name == "where":
            chosen = (
                node.args[1] if np.broadcast_to(self.value(base), np.shape(self.value(node)))[index] else node.args[2]
            )
            return self.cell(chosen, _under(np.shape(self.value(chosen)), index), number)
        if name in ("maximum", "minimum"):
            parts = [self.cell(a, _under(np.shape(self.value(a)), index), number) for a in node.args]
            return f"{name[:3]}({', '.join(parts)})"
        if name in _REDUCTIONS and of_array:
            return self._reduced(node, base, name, index, number)
        if name == "astype" and np.asarray(self.value(base)).dtype.kind == "f":
            return self.cell(base, index, number)
        if name in _MOVES:
            return self._moved(node, base, index, number)
        return self._leaf(node, index, number)

    def _reduced(self, node: ast.Call, base: ast.expr, name: str, index: Index, number: Callable[[Any], str]) -> str:
        places = np.empty(np.shape(self.value(base)), dtype=object)
        for place in np.ndindex(places.shape):
            places[place] = [place]
        moved = self._again(_summed(node), base, places)
        chosen = moved[index] if isinstance(moved, np.ndarray) else moved
        cells = [self.cell(base, place, number) for place in chosen]
        if name in ("max", "min"):
            return f"{name}({', '.join(cells)})" if len(cells) > 1 else cells[0]
        total = "(" + " + ".join(cells) + ")"
        return total if name == "sum" else f"({total} / {len(cells)})"

    def _moved(self, node: ast.expr, base: ast.expr, index: Index, number: Callable[[Any], str]) -> str:
        shape = np.shape(self.value(base))
        places = np.arange(math.prod(shape)).reshape(shape)
        source = np.asarray(self._again(node, base, places))[index]
        return self.cell(base, tuple(int(i) for i in np.unravel_index(int(source), shape)), number)

    def placed(self, target: ast.Subscript) -> tuple[np.ndarray, tuple[int, ...]]:
        """For `x[i:j] = rows`: the number of the cell of `rows` that each cell of x got, or -1, and the shape of rows."""
        held = np.full(np.shape(self.value(_as_load(target.value))), -1)
        names = self.names | {"_base": held}
        shape = np.shape(eval(ast.unparse(ast.Subscript(ast.Name("_base"), target.slice, ast.Load())), names))
        names["_new"] = np.arange(math.prod(shape)).reshape(shape)
        exec(
            ast.unparse(ast.Assign([ast.Subscript(ast.Name("_base"), target.slice)], ast.Name("_new"), lineno=1)), names
        )
        return held, shape

    def _again(self, node: ast.expr, base: ast.expr, stand_in: np.ndarray) -> Any:
        """The node's value with `stand_in` in place of its base."""
        replaced = _Replace({id(base): "_base"}).visit(_marked(node))
        code = compile(ast.fix_missing_locations(ast.Expression(replaced)), "<line>", "eval")
        return eval(code, self.names | {"_base": stand_in})


def _called(node: ast.Call) -> str:
    """The name of the function that a node calls: "exp" for xp.exp(x)."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _summed(node: ast.Call) -> ast.Call:
    """The reduction as a sum along the same axes: of lists of places it gives the places that meet in a cell."""
    assert isinstance(node.func, ast.Attribute)
    keywords = [keyword for keyword in node.keywords if keyword.arg in ("axis", "keepdims")]
    return ast.Call(ast.Attribute(node.func.value, "sum", ast.Load()), node.args, keywords)


def _is_library(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("xp", "np", "math")


def _under(shape: Sequence[int], index: Index) -> Index:
    """The index in an array of this shape that is broadcast to where `index` is."""
    tail = index[len(index) - len(shape) :] if shape else ()
    return tuple(0 if size == 1 else i for size, i in zip(shape, tail, strict=True))


class _Replace(ast.NodeTransformer):
    """Puts names in place of nodes, found by the identity that `_marked` wrote into the copy."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        if getattr(node, "_original", None) in self.names:
            return ast.copy_location(ast.Name(self.names[node._original], ast.Load()), node)  # type: ignore[attr-defined]
        return super().visit(node)


def _marked(node: ast.expr) -> ast.expr:
    """A deep copy in which every node knows the identity of the node it is a copy of."""
    duplicate = copy.deepcopy(node)
    for original, copied in zip(ast.walk(node), ast.walk(duplicate), strict=True):
        copied._original = id(original)  # type: ignore[attr-defined]
    return duplicate
