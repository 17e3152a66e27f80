"""A line as a paper writes it: S = QKᵀ/√d_k for `scores = (q @ k.swapaxes(-1, -2)) * factor`.

symbols.py has the symbols. The rules here rewrite the syntax tree, one node at a time, for the call that was recorded:

    a if test else b, xp.where(test, a, b)    the one that was taken, if it was the same everywhere
    a * factor, with factor = 1.0 / b         a / b; a number of the function's own is written out
    a * a                                     a²
    linear(x, w, b), and a layer that is one  x w + b
    f(x, mask, rng), f another function       f(x): of the arguments only the arrays, of a layer its weight
    axis=-1, axis=-2                          j, i; axes before these two are h and b

A line that only gives an array another name has no formula.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, tostring

import numpy as np

from . import elements as ml
from . import mathml
from .sources import name_called
from .steps import Step, Steps, Summarised
from .symbols import symbol, symbols_of
from .walk import NotExpandable, walk_of

_AXES = ("j", "i", "h", "b")
_PROJECTIONS = {"query": "q", "key": "k", "value": "v"}  # papers call their weights W_Q, W_K and W_V
_LINEAR = ("Linear", "linear")
_SAME = ("ascontiguousarray", "asarray", "copy", "_as_tuple")


def paper(recording: Steps, step: Step, is_head: bool = False) -> Element | None:
    """The formula as a <math> element; None for a line that computes nothing new."""
    return PaperFormula(recording, step).line(is_head)


class PaperFormula(mathml.Formula):
    """leaves: what stands for an attribute or a size, by the text of its symbol."""

    def __init__(self, recording: Steps, step: Step) -> None:
        super().__init__(recording.scalars(step))
        self.recording, self.step = recording, step
        self.walk = walk_of(recording, step)
        self.symbols = symbols_of(recording)
        self.seen = self.walk.bound
        self.bound = {bound.name: bound for bound in step.bound}
        self.leaves: list[tuple[Element, ast.expr]] = []

    def line(self, is_head: bool = False) -> Element | None:
        call = self.recording.calls[self.step.call]
        if is_head:
            arrays = [self.symbols.of(b) for b in self.step.bound if b.value.shape]
            if call.parent is not None or not arrays:
                return None
            name = "backward" if call.backward else spaced(call.name)
            return mathml.block([ml.word(name), ml.bracketed(*ml.separated(arrays))])
        if self.walk.statement is None or not any(self.symbols.first(b) is b for b in self.step.bound):
            return None
        parts = self.statement(self.walk.statement)
        return None if parts is None else mathml.block(parts)

    def statement(self, node: ast.stmt) -> list[Element] | None:
        if isinstance(node, ast.Return):
            return None
        if not isinstance(node, ast.Assign):
            return super().statement(node)
        equations = self._linear_gradients(node)
        if equations:
            return equations
        value = self.rewritten(node.value)
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            kept = [(t, v) for t, v in zip(target.elts, value.elts, strict=True) if not _is_pullback(t)]
            target = ast.Tuple([t for t, _ in kept], ast.Store())
            value = ast.Tuple([_unmoved(v) for _, v in kept], ast.Load())
        left, right = self._targets(target), self._values(_unmoved(value))
        same = list(map(_text, left)) == list(map(_text, right))  # bias = self.bias.value
        return None if same else [*left, ml.sign("="), *right]

    def _targets(self, node: ast.expr) -> list[Element]:
        if isinstance(node, ast.Tuple):  # without *dbias, where there is none
            node = ast.Tuple([t for t in node.elts if not self._is_nothing(t)], ast.Store())
        return super()._targets(node)

    def _is_nothing(self, node: ast.expr) -> bool:
        name = node.value if isinstance(node, ast.Starred) else node
        return isinstance(name, ast.Name) and (name.id == "_" or (name is not node and name.id not in self.bound))

    def expression(self, node: ast.expr, within: int = 0) -> Element:
        return super().expression(self.rewritten(node), within)

    # ---- Rules: each returns another node, or None where it has nothing to say. ----

    def rewritten(self, node: ast.expr) -> ast.expr:
        for rule in (self._chosen, self._passed, self._number, self._quotient, self._square, self._linear):
            other = rule(node)
            if other is not None:
                return self.rewritten(other)
        return node

    def _value(self, node: ast.expr) -> Any:
        """The node's value in this call; None if it was not recorded whole."""
        try:
            value = self.walk.value(node)
        except NotExpandable:
            return None
        return None if isinstance(value, Summarised) else value

    def _is_array(self, node: ast.expr) -> bool:
        """Whether the node's value is an array, or several, as far as that can be told."""
        try:
            return _holds_arrays(self.walk.value(node))
        except NotExpandable:
            return True

    def _chosen(self, node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.IfExp):
            test = self._value(node.test)
            return None if test is None or np.ndim(test) else node.body if test else node.orelse
        if isinstance(node, ast.Call) and name_called(node) == "where" and len(node.args) == 3:
            test = self._value(node.args[0])
            if test is not None and np.size(test) and np.all(test == np.ravel(test)[0]):
                return node.args[1] if np.all(test) else node.args[2]
        return None

    def _passed(self, node: ast.expr) -> ast.expr | None:
        same = isinstance(node, ast.Call) and name_called(node) in _SAME and bool(node.args)
        return node.args[0] if same else None  # type: ignore[attr-defined]

    def _number(self, node: ast.expr) -> ast.expr | None:
        """What a number of the function's own was computed from, if that is only sizes and arguments."""
        bound = self.seen.get(node.id) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None
        if bound is None or bound.value.shape or bound.value.dtype != "float":
            return None
        step = self.recording.binding(bound.serial)[0]
        walk = walk_of(self.recording, step)
        if not isinstance(walk.statement, ast.Assign) or not isinstance(walk.statement.targets[0], ast.Name):
            return None
        value = walk.chosen(walk.statement.value)
        return value if self._is_single(value) or _is_size(value) else None

    def _quotient(self, node: ast.expr) -> ast.expr | None:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            return None
        right = self.rewritten(node.right)
        if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Div) and _is_one(right.left):
            return ast.BinOp(node.left, ast.Div(), right.right)
        return None

    def _square(self, node: ast.expr) -> ast.expr | None:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Name)):
            return None
        twice = ast.dump(node.left) == ast.dump(node.right)
        return ast.BinOp(node.left, ast.Pow(), ast.Constant(2)) if twice else None

    def _linear(self, node: ast.expr) -> ast.expr | None:
        if not isinstance(node, ast.Call) or node not in self.walk.made:
            return None
        call = self.walk.made[node]
        if call.backward or call.name not in _LINEAR:
            return None
        arguments = list(node.args)
        if call.name == "Linear":
            arguments += [_parameter(node.func, "weight"), _parameter(node.func, "bias")]
        product: ast.expr = ast.BinOp(arguments[0], ast.MatMult(), arguments[1])
        biased = len(arguments) > 2 and self._value(arguments[2]) is not None
        return ast.BinOp(product, ast.Add(), arguments[2]) if biased else product

    def _linear_gradients(self, node: ast.Assign) -> list[Element] | None:
        """dX = dY Wᵀ, dW = Xᵀ dY, db = Σ dY for the pullback of a linear map that this call's forward pass made."""
        call = self.walk.made.get(node.value) if isinstance(node.value, ast.Call) else None
        if call is None or not call.backward or self.recording.calls[call.forward_call].name not in _LINEAR:
            return None
        maker = self.recording.calls[call.forward_call]
        around = self.recording.step_around(maker)
        made = None if around is None else walk_of(self.recording, around).node_of(maker)
        if made is None or maker.parent != self.recording.calls[self.step.call].forward_call:
            return None
        x, *parameters = made.args
        if maker.name == "Linear":
            parameters = [_parameter(made.func, "weight"), _parameter(made.func, "bias")]
        given = [p for p in parameters if self._value(p) is not None]
        dy = node.value.args[0]  # type: ignore[attr-defined]
        n_axes = np.ndim(self._value(dy))
        if not 2 <= n_axes <= len(_AXES):
            return None
        back = self.expression(ast.BinOp(dy, ast.MatMult(), ast.Attribute(given[0], "T", ast.Load())))
        outer = self.expression(ast.BinOp(ast.Attribute(x, "T", ast.Load()), ast.MatMult(), dy))
        told = [back, _summed(_AXES[2:n_axes], outer), _summed(_AXES[1:n_axes], self.expression(dy))]
        names = self._targets(node.targets[0])[::2]
        names += [ml.gradient(self.expression(each)) for each in given[len(names) - 1 :]]
        out: list[Element] = []
        for name, value in zip(names, told, strict=False):
            out += [*([ml.sign(",")] if out else []), name, ml.sign("="), value]
        return out

    def _weight_of(self, node: ast.expr) -> ast.expr | None:
        """The weight of a layer that is passed to a call: it tells Q = heads(W_Q, X) from K = heads(W_K, X)."""
        weight = _parameter(node, "weight") if isinstance(node, ast.Attribute) else None
        return weight if weight is not None and np.ndim(self._value(weight)) == 2 else None

    # ---- What papers write otherwise. ----

    def _name(self, node: ast.Name) -> tuple[list[Element], int]:
        where = self.bound if isinstance(node.ctx, ast.Store) else self.seen
        bound = where.get(node.id) or self.seen.get(node.id)
        return super()._name(node) if bound is None else ([self.symbols.of(bound)], mathml.TIGHT)

    def _attribute(self, node: ast.Attribute) -> tuple[list[Element], int]:
        if node.attr == "value" and isinstance(node.value, ast.Attribute):
            return [self._leaf(self._parameter_symbol(node.value), node)], mathml.TIGHT
        parts, tightness = super()._attribute(node)
        if isinstance(self._value(node), int | float) and len(parts) == 1:
            self._leaf(parts[0], node)
        return parts, tightness

    def _leaf(self, element: Element, node: ast.expr) -> Element:
        self.leaves.append((element, node))
        return element

    def _parameter_symbol(self, node: ast.Attribute) -> Element:
        """W for self.weight, and W with the layer's name for self.output.weight."""
        value = self._value(ast.Attribute(node, "value", ast.Load()))
        letter = symbol(node.attr, np.ndim(value))
        owner = ast.unparse(node.value).rpartition(".")[2]
        if owner == "self":
            return letter
        subject = self.symbols.subject(self.recording.calls[self.step.call])
        return ml.indexed(letter, subject if subject is not None else symbol(_PROJECTIONS.get(owner, owner), 2))

    def _subscript(self, node: ast.Subscript) -> tuple[list[Element], int]:
        if _is_size(node):
            assert isinstance(node.value, ast.Attribute) and isinstance(node.value.value, ast.Name)
            size = mathml.name("d_" + {"q": "k"}.get(node.value.value.id, node.value.value.id))
            return [self._leaf(size, node)], mathml.TIGHT
        return super()._subscript(node)

    def axis(self, axis: ast.expr, base: ast.expr) -> Element:
        places, array = self._value(axis), self._value(base)
        if places is None or not isinstance(array, np.ndarray):
            return super().axis(axis, base)
        from_end = sorted((int(a) % np.ndim(array)) - np.ndim(array) for a in np.atleast_1d(places))
        if not from_end or from_end[0] < -len(_AXES):
            return super().axis(axis, base)
        return ml.row(ml.separated([ml.letter(_AXES[-place - 1]) for place in from_end]))

    def _call(self, node: ast.Call) -> tuple[list[Element], int]:
        call = self.walk.made.get(node)
        if call is None or call.backward or _is_pullback(node.func):
            return super()._call(node)
        given = [a.value if isinstance(a, ast.Starred) else a for a in (*node.args, *(k.value for k in node.keywords))]
        given = [self._weight_of(argument) or argument for argument in given]
        arrays = [self.expression(argument) for argument in given if self._is_array(argument)]
        word = ml.word(spaced(call.name))
        return [word, ml.bracketed(*ml.separated(arrays))], mathml.TIGHT


def _summed(axes: Sequence[str], term: Element) -> Element:
    """∑ over these axes, if there are any."""
    if not axes:
        return term
    letters = ml.row(ml.separated([ml.letter(axis) for axis in reversed(axes)]))
    return ml.row([ml.element("munder", ml.sign("∑", movablelimits="false"), letters), term])


def _text(element: Element) -> str:
    return tostring(element, encoding="unicode")


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(_holds_arrays, value))
    return isinstance(value, np.ndarray | Summarised) and value.ndim > 0


def spaced(name: str) -> str:
    """The name of a call in words: split heads, MultiHeadAttention, attend."""
    return name.removesuffix(" in backward").rpartition(".")[2].strip("_").replace("_", "\u00a0")


def _unmoved(node: ast.expr) -> ast.expr:
    """Without the last change of shape: the numbers and their order are the same."""
    moved = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reshape"
    return node.func.value if moved else node  # type: ignore[attr-defined]


def _parameter(layer: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(ast.Attribute(layer, name, ast.Load()), "value", ast.Load())


def _is_pullback(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and mathml.is_pullback(node.id)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _is_size(node: ast.expr) -> bool:
    """x.shape[-1], or an expression of numbers and such a size."""
    if isinstance(node, ast.Subscript):
        of_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return of_shape and isinstance(node.value.value, ast.Name) and ast.unparse(node.slice) == "-1"  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp):
        return all(_is_size(side) or isinstance(side, ast.Constant) for side in (node.left, node.right))
    return isinstance(node, ast.Call) and name_called(node) == "sqrt" and _is_size(node.args[0])
