"""What can be changed at one place of a formula: the slips that are the same in every exercise.

Each function below takes a node of a solution's syntax tree and yields what may stand in its place by mistake, with a
sentence about it: another axis, a missing factor, a term with the wrong sign, an array of the same shape. No exercise
is named here. `altered.py` tries all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .operations import Found, binary, call, copied, expression, operations, written

_SUMS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum"}
_OFTEN = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 0.5, 0.9, 0.98, 0.999, 1.0, 2.0, 10000.0)  # what one writes for an argument
_AXES: dict[Any, str] = {
    0: "axis 0",
    1: "axis 1",
    -2: "the last axis but one",
    -1: "the last axis",
    None: "all axes together",
}
_AXES |= {(0, 1): "the first two axes", (-2, -1): "the last two axes", (0, 2): "the first and the third axis"}
_PAIRS = [("sin", "cos"), ("minimum", "maximum"), ("repeat", "tile"), ("zeros", "ones")]
_OTHERS = dict(_PAIRS) | {b: a for a, b in _PAIRS}
_LEFT_OUT = {"exp": "exp", "log": "the logarithm", "sqrt": "the square root", "abs": "the absolute value"}
_LEFT_OUT |= {"tanh": "tanh", "maximum": "the maximum", "minimum": "the minimum", "copy": "the copy", "erf": "erf"}


@dataclass(frozen=True)
class Alternative:
    """What may stand in a place, and what is then wrong, in words.

    everywhere: the same in words where it is done wherever it fits, or "". likely: it is no mere exchange of a name or
    a number, of which there are many.
    """

    said: str
    node: ast.expr
    everywhere: str
    likely: bool


@dataclass(frozen=True)
class Scope:
    """What is known where a formula stands: names by the name that they may be mistaken for, and all sizes.

    alike(text) yields the arrays (and numbers, and functions) that could stand in place of the one written so;
    factors(text) those that it could be multiplied by; numbers(text) other numbers made of this array, and the words
    for it; is_size and is_number: of an integer, a number; sizes: the lengths of axes, and integers, by how one writes
    them.
    """

    alike: Callable[[str], Iterable[str]]
    factors: Callable[[str], Iterable[str]]
    is_size: Callable[[str], bool]
    is_number: Callable[[str], bool]
    numbers: Callable[[str], Iterable[tuple[str, str]]]
    sizes: tuple[str, ...]


def is_atom(node: ast.AST) -> bool:
    """Whether a node is a name, or an entry of a dictionary by its key."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return isinstance(node.value, ast.Name) and isinstance(key, str)
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def changes(node: ast.expr, scope: Scope) -> Iterator[Alternative]:
    """All that may stand in place of this node by mistake, with what is then wrong in words."""
    for family in (_reduction, _function, _operation, _order, _size, _name, _divided, _index):
        for said, other, *everywhere in family(node, scope):
            yield Alternative(said, other, "".join(everywhere), family not in (_size, _name, _divided, _index))


def _operation(node: ast.expr, _: Scope) -> Found:
    return operations(node)


def _size(node: ast.expr, scope: Scope) -> Found:
    text = ast.unparse(node)
    if not scope.is_size(text):
        return
    for other in scope.sizes:
        if other != text:
            said = f"{other} stands where {text} belongs"
            yield said, expression(f"__sizes[{other!r}]"), f"{said}, wherever it occurs"
    for off in (1, -1):
        yield f"{text} is {'one too large' if off > 0 else 'one too small'}", expression(f"{text} + {off}")


def _name(node: ast.expr, scope: Scope) -> Found:
    if is_atom(node):
        text = ast.unparse(node)
        for new, said in scope.numbers(text):
            yield said, expression(new)
        for other in scope.alike(text):
            said = f"{other} stands where {text} belongs"
            yield said, expression(other), f"{said}, wherever it occurs"
        for number in _OFTEN if scope.is_number(text) else ():
            yield f"{number:g} stands where {text} belongs, whatever that is", ast.Constant(number)
        factors = list(scope.factors(text))
        if text in factors:
            less = expression(f"{text} - {text}.mean(axis=-1, keepdims=True)")
            yield f"the mean of {text} is subtracted from it, which does not belong there", less
        for other in factors:
            said = f"{text} is multiplied by {other}, which does not belong there"
            yield said, expression(f"{text} * {other}"), f"{said}, wherever it occurs"


def _reduction(node: ast.expr, _: Scope) -> Found:
    """A sum, a mean or a maximum: along another axis, one for the other, or none at all."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SUMS):
        return
    of, kind, over = node.func.value, node.func.attr, node.keywords
    word = f"the {_SUMS[kind]} of {written(of)}" if written(of) else f"the {_SUMS[kind]}"
    axis = next((one.value for one in over if one.arg == "axis"), None)
    if axis is not None:
        for other, there in _AXES.items():
            if ast.unparse(axis) != repr(other):
                new = copied(node)
                new.keywords = [
                    ast.keyword("axis", ast.Constant(other)) if one.arg == "axis" else one for one in new.keywords
                ]
                everywhere = f"all sums, means and maxima over {_axis(axis)} are taken over {there}"
                yield f"{word} is taken over {there}, not over {_axis(axis)}", new, everywhere
    for other in {"sum": ("mean",), "mean": ("sum",), "max": ("mean", "min"), "min": ("max",)}[kind]:
        new = copied(node)
        new.func = ast.Attribute(copied(of), other, ast.Load())
        yield f"{word.replace(_SUMS[kind], _SUMS[other], 1)} is taken, not its {_SUMS[kind]}", new
    if kind in ("sum", "mean"):
        yield f"{word} is not taken: the entries themselves stand there", copied(of)
    for place in axis.elts if isinstance(axis, ast.Tuple) else [axis] if axis is not None else []:
        for part, which in (("0, 1", "first"), ("-1, None", "last")):
            new = copied(node)
            new.func.value = expression(f"({ast.unparse(of)}).swapaxes(0, {ast.unparse(place)})")
            new.func.value = ast.Call(
                ast.Attribute(_part(new.func.value, part), "swapaxes", ast.Load()), [ast.Constant(0), place], []
            )
            yield f"{word} is of the {which} alone along {_axis(place)}", new
    if kind == "sum" and axis is not None:
        said = f"{word} is summed up step by step along {_axis(axis)}, as np.cumsum does"
        yield said, expression(f"np.cumsum({ast.unparse(of)}, axis={ast.unparse(axis)})")


def _part(node: ast.expr, bounds: str) -> ast.expr:
    return expression(f"({ast.unparse(node)})[slice({bounds})]")


def _axis(node: ast.expr) -> str:
    text = ast.unparse(node)
    return next((there for axis, there in _AXES.items() if repr(axis) == text), f"the axes {text.strip('()')}")


def _function(node: ast.expr, _: Scope) -> Found:
    """A function of NumPy: left out, or its counterpart; where: one side, or the condition turned around."""
    if not ((isinstance(node, ast.Call) and node.args) or (isinstance(node, ast.Call) and _named(node) in _LEFT_OUT)):
        return
    name, arguments = _named(node), node.args
    if name in _OTHERS:
        new = copied(node)
        new.func = expression(f"np.{_OTHERS[name]}")
        yield f"{_OTHERS[name]} stands where {name} belongs", new
        if name == "repeat":
            new.args[1] = ast.Tuple([new.args[1], ast.Constant(1), ast.Constant(1)], ast.Load())
            new.keywords = []
    if name in _LEFT_OUT:
        inner = arguments[0] if arguments else node.func.value  # type: ignore[attr-defined]
        of = f" of {written(inner)}" if written(inner) else ""
        yield f"{_LEFT_OUT[name]}{of} is not taken", copied(inner)
    if name == "sqrt":
        yield (
            f"{written(node) or 'the root'} is a square, not a root",
            binary(arguments[0], ast.Pow(), ast.Constant(2)),
        )
    if name == "exp":
        yield f"{written(node)} is taken with the other sign", call("np.exp", ast.UnaryOp(ast.USub(), arguments[0]))
    if name == "where" and len(arguments) == 3:
        condition, a, b = arguments
        said = written(condition) or "the condition"
        yield f"where {said} holds and where it does not are exchanged", call("np.where", condition, b, a)
        yield f"{said} is not asked: {written(a) or 'the first case'} stands everywhere", copied(a)
        for value in (0.0, 1.0, -1.0):
            yield f"where {said} does not hold, {value:g} stands", call("np.where", condition, a, ast.Constant(value))
        yield f"where {said} does not hold, 1 stands", call("np.where", condition, a, ast.Constant(1.0))
        added = binary(a, ast.Add(), condition)
        yield f"{said} is added as 0 and 1; it must decide what is hidden", added
        yield f"the entries are multiplied by {said}, as 0 and 1", binary(a, ast.Mult(), condition)
    if name == "arange":
        for first, word in ((1, "counted from 1, not from 0"), (0, "counted from 0, not from 1"), (2, "one too high")):
            if len(arguments) == 1 and first:
                stop = binary(arguments[0], ast.Add(), ast.Constant(first))
                yield f"{written(node)} is {word}", call("np.arange", ast.Constant(first), stop)
            elif len(arguments) == 2 and not first:
                stop = binary(arguments[1], ast.Sub(), arguments[0])
                yield f"{written(node)} is {word}", call("np.arange", stop)
        if len(arguments) == 3:
            start, stop, step = arguments
            counted = binary(call("np.arange", start, stop, step), ast.FloorDiv(), step)
            yield f"{written(node)} counts 0, 1, 2, ... in place of 0, 2, 4, ...", counted


def _named(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _divided(node: ast.expr, scope: Scope) -> Found:
    """A sum that is divided by a number of terms."""
    summed = isinstance(node, ast.Call) and _named(node) == "sum"
    if summed or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)):
        for size in scope.sizes:
            said = f"{written(node) or 'a sum'} is divided by {size}, which does not belong there"
            yield said, binary(node, ast.Div(), expression(f"__sizes[{size!r}]"))


def _index(node: ast.expr, _: Scope) -> Found:
    """A number in a formula, or a place in an array: off by one, or another sign."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Tuple):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for i, part in enumerate(parts):
            for shift, word in ((1, "after"), (-1, "before")) if isinstance(part, ast.Name) else ():
                there = ast.unparse(part)
                moved = f"({there} + {shift}) % {ast.unparse(node.value)}.shape[{i}]"
                places = ", ".join(moved if j == i else ast.unparse(one) for j, one in enumerate(parts))
                new = expression(f"{ast.unparse(node.value)}[{places}]")
                yield f"the entry {word} the one at {there} is looked up", new
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        for other in dict.fromkeys((node.value + 1, node.value - 1, -node.value, node.value * 2, node.value / 2, 0)):
            if other != node.value and (isinstance(node.value, float) or other == int(other)):
                number = type(node.value)(other)
                yield f"{number:g} stands where {node.value:g} belongs", ast.Constant(number)


def _order(node: ast.expr, _: Scope) -> Found:
    """Two things in a list, one for the other: halves put together, matrices stacked."""
    if isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) == 2:
        a, b = node.elts
        exchanged = type(node)([copied(b), copied(a)], ast.Load())
        yield f"{written(a) or 'the first'} and {written(b) or 'the second'} are in the wrong order", exchanged
        if isinstance(node, ast.Tuple) and all(isinstance(x, ast.Subscript) for x in (a, b)):
            text = [ast.unparse(x.value) for x in (a, b)]  # type: ignore[attr-defined]
            pairs = expression(f"({text[0]}[..., ::2], {text[1]}[..., 1::2])")
            yield "neighbours are taken as a pair, where the halves are meant", pairs
