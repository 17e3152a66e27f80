"""What can be changed at one place of a formula: the slips that are the same in every exercise.

Each function below takes a node of a solution's syntax tree and yields what may stand in its place by mistake, with a
sentence about it: another axis, a missing factor, a term with the wrong sign, an array of the same shape. No exercise
is named here. `altered.py` tries all of them.
"""

import ast
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

SIZE = re.compile(r"len\(\w+\)|\w+\.shape\[-?\d\]")
Found = Iterator[tuple[str, ast.expr] | tuple[str, ast.expr, str]]  # the third as in Alternative
_LONGEST = 44  # characters of a formula in a sentence
_SUMS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum"}
_OFTEN = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 0.5, 0.9, 0.98, 0.999, 1.0, 2.0, 10000.0)  # what one writes for an argument
_AXES: dict[Any, str] = {0: "axis 0", 1: "axis 1", -2: "the last axis but one", -1: "the last axis"}
_AXES |= {
    None: "all axes together",
    (0, 1): "the first two axes",
    (-2, -1): "the last two axes",
    (0, 2): "the first and the third axis",
}


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


class Scope:
    """What is known where a formula stands.

    values: those of the function's names in a run; sizes: the lengths of all arguments' axes, by how one writes them;
    known: the names that have a value at the present line.
    """

    def __init__(self, values: dict[str, Any], arguments: list[str], sizes: Iterable[str]) -> None:
        self.values, self.atoms, self._arguments = values, atoms(values), arguments
        self.sizes, self.known = tuple(sizes), set(arguments)

    def _here(self, text: str) -> Any:
        """The value of what is written so, if it has one at this line."""
        return self.atoms.get(text) if text.partition("[")[0] in self.known else None

    def same(self, text: str, other: str) -> bool:
        """Whether two different values could stand in each other's place."""
        a, b = self.atoms.get(text), self.atoms.get(other)
        if text == other:
            return False
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a.shape == b.shape and a.dtype.kind == b.dtype.kind
        return (callable(a) and callable(b)) or (isinstance(a, float) and isinstance(b, float))

    def alike(self, text: str) -> Iterator[str]:
        """The arrays (and numbers, and functions) that could stand in place of the one written so."""
        yield from (other for other in self.atoms if other.partition("[")[0] in self.known and self.same(text, other))

    def factors(self, text: str) -> Iterator[str]:
        """The arguments that one could multiply this array by, without another shape."""
        here = self._here(text)
        if isinstance(here, np.ndarray) and here.dtype.kind == "f":
            for other in self._arguments:
                x = self.values.get(other)
                shape = x.shape if isinstance(x, np.ndarray) else ()
                fits = all(n in (1, m) for n, m in zip(shape[::-1], here.shape[::-1], strict=False))
                if 0 < len(shape) <= here.ndim and fits:
                    yield other

    def numbers(self, text: str) -> Iterator[tuple[str, str]]:
        """Other numbers made of this array, and the words for them."""
        x = self._here(text)
        if isinstance(x, np.ndarray) and x.ndim and x.dtype.kind == "f":
            yield f"{text} * {text}", f"{text} is squared, which does not belong there"
            for axis, along in ((0, "axis 0"), (-1, "its last axis"), (-2, "its last axis but one"))[: x.ndim + 1]:
                yield f"np.flip({text}, {axis})", f"{text} runs backwards along {along}"
        elif isinstance(x, np.ndarray) and x.ndim and x.dtype.kind == "i":
            yield f"{text}[:1]", f"only the first of {text} is used, for all"

    def is_number(self, text: str) -> bool:
        """Whether it is a name of a float."""
        return text in self.known and isinstance(self.values.get(text), float)

    def is_size(self, text: str) -> bool:
        """Whether it is the length of an axis, or a name of an integer."""
        return bool(SIZE.fullmatch(text)) or (text in self.known and type(self.values.get(text)) is int)


def atoms(values: dict[str, Any]) -> dict[str, Any]:
    """Values by what one writes for them: names, and entries of dictionaries."""
    entries = {f"{name}[{key!r}]": y for name, x in values.items() if isinstance(x, dict) for key, y in x.items()}
    return values | entries


def is_atom(node: ast.AST) -> bool:
    """Whether a node is a name, or an entry of a dictionary by its key."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return isinstance(node.value, ast.Name) and isinstance(key, str)
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def written(node: ast.AST) -> str:
    """A formula as one reads it, or what it is in words if it is too long."""
    text = ast.unparse(node).replace("np.", "").replace(", keepdims=True", "")
    return text if len(text) <= _LONGEST else ""


def copied(node: Any) -> Any:
    """A copy of a syntax tree, whose parts can be changed. (copy.deepcopy takes four times as long.)"""
    if isinstance(node, list):
        return [copied(one) for one in node]
    if not isinstance(node, ast.AST) or isinstance(node, ast.expr_context | ast.operator | ast.cmpop | ast.unaryop):
        return node
    return type(node)(**{name: copied(value) for name, value in ast.iter_fields(node)})


def expression(text: str) -> ast.expr:
    """The expression that a text writes."""
    return ast.parse(text, mode="eval").body


def changes(node: ast.expr, scope: Scope) -> Iterator[Alternative]:
    """All that may stand in place of this node by mistake, with what is then wrong in words."""
    for family in (_reduction, _slip, _size, _name, _divided, _index):
        for said, other, *everywhere in family(node, scope):
            yield Alternative(said, other, "".join(everywhere), family not in (_size, _name, _divided, _index))


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
        for part, which in ((":1", "first"), ("-1:", "last")):
            new, turn = copied(node), f"swapaxes(0, {ast.unparse(place)})"
            new.func.value = expression(f"({ast.unparse(of)}).{turn}[{part}].{turn}")
            yield f"{word} is of the {which} alone along {_axis(place)}", new
    if kind == "sum" and axis is not None:
        said = f"{word} is summed up step by step along {_axis(axis)}, as np.cumsum does"
        yield said, expression(f"np.cumsum({ast.unparse(of)}, axis={ast.unparse(axis)})")


def _axis(node: ast.expr) -> str:
    text = ast.unparse(node)
    return next((there for axis, there in _AXES.items() if repr(axis) == text), f"the axes {text.strip('()')}")


def _named(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _divided(node: ast.expr, scope: Scope) -> Found:
    """A sum that is divided by a number of terms."""
    summed = isinstance(node, ast.Call) and _named(node) == "sum"
    if summed or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)):
        for size in scope.sizes:
            said = f"{written(node) or 'a sum'} is divided by {size}, which does not belong there"
            yield said, ast.BinOp(copied(node), ast.Div(), expression(f"__sizes[{size!r}]"))


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


@functools.cache
def _slips() -> dict[str, list[tuple[ast.expr, ast.expr, str]]]:
    """The table of slips.txt, by what stands at the top of the formula."""
    slips: dict[str, list[tuple[ast.expr, ast.expr, str]]] = {}
    lines = resources.files(__package__).joinpath("slips.txt").read_text(encoding="utf-8").splitlines()
    for line in (line for line in lines if not line.startswith("#")):
        for sign in "+-" if "±" in line else "+":
            pattern, instead, said = line.replace("±", sign).split(" | ")
            slips.setdefault(_head(expression(pattern)), []).append((expression(pattern), expression(instead), said))
    return slips


def _slip(node: ast.expr, _: Scope) -> Found:
    """A term or a factor, a sign, a bracket, the order of a product, a function: see slips.txt."""
    for pattern, instead, said in _slips().get(_head(node), ()):
        found: dict[str, ast.expr] = {".": node}
        if _fits(pattern, node, found) and not (said.startswith("the minus") and isinstance(found["a"], ast.Constant)):
            words = {"a": "the first part", "b": "the second part"} | dict(re.findall(r"\{(.):(.*?)\}", said))
            read = {letter: written(part) or words.get(letter, "") for letter, part in found.items()}
            sentence = re.sub(r"(\{.):.*?\}", r"\1}", said).replace("{.}", "{0}").format(read.pop("."), **read)
            yield sentence, _filled(copied(instead), found)


def _head(node: ast.AST) -> str:
    """The operator, or the name of the function and how many arguments it has."""
    if isinstance(node, ast.Call):
        return f"{_named(node)} {len(node.args)}"
    return type(node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", node)).__name__


def _fits(pattern: ast.expr, node: ast.expr, found: dict[str, ast.expr]) -> bool:
    """Whether a formula has this form; found: what its letters stand for."""
    if isinstance(pattern, ast.Name):
        found[pattern.id] = node
        return True
    if isinstance(pattern, ast.NamedExpr):
        return _fits(pattern.target, node, found) and _fits(pattern.value, node, found)
    if _head(pattern) != _head(node):
        return False
    parts = [one.args if isinstance(one, ast.Call) else list(ast.iter_child_nodes(one)) for one in (pattern, node)]
    if isinstance(pattern, ast.Call) and not pattern.args:  # a method
        parts = [[one.func.value] for one in (pattern, node)]  # type: ignore[attr-defined]
    ours, theirs = ([part for part in each if isinstance(part, ast.expr)] for each in parts)
    return len(ours) == len(theirs) and all(map(_fits, ours, theirs, itertools.repeat(found)))


def _filled(tree: Any, found: dict[str, ast.expr]) -> Any:
    """The tree with these formulas in the place of its letters."""
    if isinstance(tree, ast.Name) and tree.id in found:
        return copied(found[tree.id])
    for name, value in ast.iter_fields(tree):
        if isinstance(value, ast.expr):
            setattr(tree, name, _filled(value, found))
        elif isinstance(value, list):
            setattr(tree, name, [_filled(part, found) for part in value])
    return tree
