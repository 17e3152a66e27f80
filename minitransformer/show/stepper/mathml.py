"""A line of Python as a formula: its syntax tree, turned into MathML.

    scores = (q @ k.swapaxes(-1, -2)) * factor          scores = (q kᵀ) factor
    y = exponentials / total                            a fraction
    dx = y * (dy - (dy * y).sum(axis=-1))               dx = y ⊙ (dy − Σ dy ⊙ y)

Products of matrices, and products with a single number, have no sign; ⊙ is the element-wise product. A pullback applied
to a gradient is a product with the transposed Jacobian: `dx = softmax_backward(dy)` becomes dx = Jᵀ dy. Code without a
formula of its own is shown as it is written. The elements are those of MathML Core: the W3C's "MathML Core", section 3.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from . import elements as ml
from .sources import name_called, parse

NAMESPACE = "http://www.w3.org/1998/Math/MathML"

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "eta": "η", "theta": "θ",
    "lam": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "omega": "ω",
}  # fmt: skip
_SYMBOLS = {"inf": "∞", "nan": "NaN", "pi": "π", "e": "e"}
_COMPARISONS = {
    ast.Eq: "=", ast.NotEq: "≠", ast.Lt: "<", ast.LtE: "≤", ast.Gt: ">", ast.GtE: "≥",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "∈", ast.NotIn: "∉",
}  # fmt: skip
_BETWEEN = {ast.BitAnd: "∧", ast.BitOr: "∨", ast.And: "∧", ast.Or: "∨", ast.Mod: "mod", ast.FloorDiv: "÷"}
_SIGNS = {ast.USub: "−", ast.UAdd: "+", ast.Not: "¬", ast.Invert: "¬"}
_LIBRARIES = ("xp", "np", "math", "ops")
_REDUCTIONS = ("sum", "mean", "max", "min")
_FILLED = {"zeros": "0", "zeros_like": "0", "ones": "1", "ones_like": "1", "full": "", "full_like": ""}
_JOINS = ("concatenate", "stack")
_SAME = ("_as_tuple",)  # what they return holds the same numbers
_NBSP = "\u00a0"  # a space that MathML does not trim

# How tightly a node binds: it needs brackets inside a node that binds more tightly.
SUM, SERIES, PRODUCT, MATRICES, TIGHT = 1, 2, 3, 4, 5  # a + b, ∑ a, a ⊙ b, A B, a


def formula(source: str, scalars: Collection[str] = ()) -> Element | None:
    """The statement as a <math> element; None for one that computes nothing, such as a check or the head of a loop.

    scalars: the names known to be single numbers; a product with one of them is written without a sign.
    """
    statement = parse(textwrap.dedent(source))
    row = None if statement is None else Formula(scalars).statement(statement)
    return None if row is None else block(row)


def name(identifier: str) -> Element:
    """A name as mathematics writes it: gamma is γ, w_q is W with the index Q, dscores is an upright word."""
    if identifier.startswith("d") and identifier[1:] in _GREEK:
        return ml.element("mrow", ml.word("d"), ml.letter(_GREEK[identifier[1:]]))
    if identifier in _GREEK:
        return ml.letter(_GREEK[identifier])
    base, _, index = identifier.rpartition("_")
    if base in ("w", "dw") and len(index) == 1:
        return ml.indexed(name(base.replace("w", "W")), ml.letter(index.upper()))
    if base and "_" not in base and len(base) <= 2 and len(index) <= 2:
        return ml.indexed(name(base), name(index))
    return ml.letter(identifier) if len(identifier) == 1 else ml.word(identifier)


def is_greek(identifier: str) -> bool:
    """Whether the name is that of a Greek letter."""
    return identifier in _GREEK


def block(parts: Sequence[Element]) -> Element:
    """A formula of its own: the <math> element with these parts."""
    return ml.element("math", *parts, xmlns=NAMESPACE, display="block")


def as_lists(element: Element) -> list[Any]:
    """The element as a list for JSON: [tag, attributes, child, ...], where a child is such a list or a text."""
    attributes = {key: value for key, value in element.attrib.items() if key != "xmlns"}
    text = [element.text] if element.text else []
    return [element.tag, attributes, *text, *(as_lists(child) for child in element)]


class Formula:
    """Turns the nodes of a syntax tree into ml. paper.py overrides what papers write otherwise."""

    def __init__(self, scalars: Collection[str]) -> None:
        self.scalars = scalars

    def statement(self, node: ast.stmt) -> list[Element] | None:
        if isinstance(node, ast.FunctionDef):
            arguments = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
            return [ml.word(node.name), ml.bracketed(*ml.separated([name(a.arg) for a in arguments]))]
        if isinstance(node, ast.Return) and node.value is not None:
            return [ml.text("return"), ml.space(), *self._values(node.value)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            assigned = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return [*self._targets(assigned), ml.sign("="), *self._values(node.value)]
        if isinstance(node, ast.AugAssign):
            sum_ = ast.BinOp(node.target, node.op, node.value)
            return [*self._targets(node.target), ml.sign("←"), self.expression(sum_)]
        if (
            isinstance(node, ast.Expr)
            and isinstance(call := node.value, ast.Call)
            and name_called(call) == "scatter_add"
        ):
            target, ids, rows = (self.expression(argument) for argument in call.args)
            return [ml.indexed(target, ids), ml.sign("←"), ml.indexed(target, ids), ml.sign("+"), rows]
        return None

    def _targets(self, node: ast.expr) -> list[Element]:
        """The targets of an assignment, without the pullbacks, which are not numbers."""
        parts = list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]
        kept = [p for p in parts if not (isinstance(p, ast.Name) and is_pullback(p.id))] or parts
        return ml.separated([self.expression(p.value if isinstance(p, ast.Starred) else p) for p in kept])

    def _values(self, node: ast.expr) -> list[Element]:
        parts = list(node.elts) if isinstance(node, ast.Tuple) and node.elts else [node]
        return ml.separated([self.expression(part) for part in parts])

    def expression(self, node: ast.expr, within: int = 0) -> Element:
        """The node's formula, in brackets if it binds less tightly than `within`, the node around it."""
        build: Callable[[Any], tuple[list[Element], int]] | None = getattr(
            self, f"_{type(node).__name__.lower()}", None
        )
        parts, tightness = build(node) if build else ([ml.text(ast.unparse(node))], TIGHT)
        return ml.bracketed(*parts) if tightness < within else ml.row(parts)

    def _name(self, node: ast.Name) -> tuple[list[Element], int]:
        return [name(node.id)], TIGHT

    def _constant(self, node: ast.Constant) -> tuple[list[Element], int]:
        if isinstance(node.value, bool | str | None) or node.value is Ellipsis:
            return [ml.text("…" if node.value is Ellipsis else repr(node.value))], TIGHT
        return [ml.number(f"{node.value:g}" if isinstance(node.value, float) else str(node.value))], TIGHT

    def _attribute(self, node: ast.Attribute) -> tuple[list[Element], int]:
        if node.attr == "T":
            return [ml.transposed(self.expression(node.value, TIGHT))], TIGHT
        if isinstance(node.value, ast.Name) and node.value.id in _LIBRARIES:
            return [ml.letter(_SYMBOLS.get(node.attr, node.attr))], TIGHT
        if node.attr == "value":  # of a parameter
            return [self.expression(node.value)], TIGHT
        return [ml.word(ast.unparse(node).removeprefix("self."))], TIGHT

    def _unaryop(self, node: ast.UnaryOp) -> tuple[list[Element], int]:
        return [ml.sign(_SIGNS[type(node.op)], form="prefix"), self.expression(node.operand, SERIES)], SUM

    def _binop(self, node: ast.BinOp) -> tuple[list[Element], int]:
        left, right = node.left, node.right
        if isinstance(node.op, ast.Div):
            return [ml.element("mfrac", self.expression(left), self.expression(right))], MATRICES
        if isinstance(node.op, ast.Pow):
            return [ml.element("msup", self.expression(left, TIGHT), self.expression(right))], MATRICES
        if isinstance(node.op, ast.MatMult):
            return [self.expression(left, MATRICES), ml.space(), self.expression(right, MATRICES)], MATRICES
        if isinstance(node.op, ast.Mult):
            factors = [self.expression(left, PRODUCT), self.expression(right, PRODUCT)]
            single = [self._is_single(side) for side in (left, right)]
            sign = ml.sign("⊙") if not any(single) else ml.sign("·") if _two_numbers(left, right) else ml.space()
            return [factors[0], sign, factors[1]], PRODUCT
        if isinstance(node.op, ast.Add | ast.Sub):
            sign = ml.sign("+" if isinstance(node.op, ast.Add) else "−")
            within = SERIES if isinstance(node.op, ast.Sub) else SUM
            return [self.expression(left, SUM), sign, self.expression(right, within)], SUM
        if type(node.op) in _BETWEEN:
            sign = _between(_BETWEEN[type(node.op)])
            return [self.expression(left, PRODUCT), sign, self.expression(right, PRODUCT)], SUM
        return [ml.text(ast.unparse(node))], TIGHT

    def _is_single(self, node: ast.expr) -> bool:
        """Whether the node consists only of numbers and names of numbers."""
        if isinstance(node, ast.Attribute):
            return isinstance(node.value, ast.Name) and node.value.id in _LIBRARIES
        if isinstance(node, ast.Call):
            of_math = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "math"
            return of_math and all(self._is_single(argument) for argument in node.args)
        if isinstance(node, ast.Constant | ast.Name):
            return isinstance(node, ast.Constant) or node.id in self.scalars
        if isinstance(node, ast.BinOp):
            return self._is_single(node.left) and self._is_single(node.right)
        return isinstance(node, ast.UnaryOp) and self._is_single(node.operand)

    def _boolop(self, node: ast.BoolOp) -> tuple[list[Element], int]:
        out: list[Element] = []
        for part in node.values:
            out += [_between(_BETWEEN[type(node.op)])] if out else []
            out.append(self.expression(part, PRODUCT))
        return out, 0

    def _compare(self, node: ast.Compare) -> tuple[list[Element], int]:
        out = [self.expression(node.left, SUM)]
        for operator, side in zip(node.ops, node.comparators, strict=True):
            out += [_between(_COMPARISONS[type(operator)]), self.expression(side, SUM)]
        return out, 0

    def _ifexp(self, node: ast.IfExp) -> tuple[list[Element], int]:
        return [self._cases(node.test, node.body, node.orelse)], TIGHT

    def _cases(self, test: ast.expr, first: ast.expr, second: ast.expr) -> Element:
        """A brace with two rows: the value if the test is true, and the value otherwise."""
        rows = [
            (self.expression(first), ml.text(f"if{_NBSP}"), self.expression(test)),
            (self.expression(second), ml.text("otherwise")),
        ]
        cells = [[ml.element("mtd", value), ml.element("mtd", ml.row(rest))] for value, *rest in rows]
        table = ml.element("mtable", *(ml.element("mtr", *row) for row in cells), columnalign="left left")
        return ml.element("mrow", ml.sign("{", form="prefix", stretchy="true"), table)

    def _subscript(self, node: ast.Subscript) -> tuple[list[Element], int]:
        index = ml.text(ast.unparse(node.slice).strip("()").replace("None", "new"))
        return [ml.indexed(self.expression(node.value, TIGHT), index)], TIGHT

    def _call(self, node: ast.Call) -> tuple[list[Element], int]:
        called, function, arguments = name_called(node), node.func, node.args
        library = isinstance(function, ast.Attribute) and ast.unparse(function.value) in _LIBRARIES
        if isinstance(function, ast.Attribute) and not library:
            method = self._method(node, function.value, called)
            if method is not None:
                return method
        if called in _SAME:
            return [self.expression(arguments[0], MATRICES)], MATRICES
        if called == "sqrt" and len(arguments) == 1:
            return [ml.element("msqrt", self.expression(arguments[0]))], TIGHT
        if called == "exp" and len(arguments) == 1:
            return [ml.element("msup", ml.letter("e"), self.expression(arguments[0]))], TIGHT
        if called == "where" and len(arguments) == 3:
            return [self._cases(*arguments)], TIGHT
        if called in ("maximum", "minimum"):
            return [ml.word(called[:3]), ml.bracketed(*ml.separated([self.expression(a) for a in arguments]))], TIGHT
        if is_pullback(called) and len(arguments) == 1:
            op = called.removesuffix("pullback").removesuffix("backward").strip("_")
            j = ml.letter("J")
            jacobian = ml.element("msubsup", j, name(op), ml.word("T")) if op else ml.transposed(j)
            return [jacobian, ml.space(), self.expression(arguments[0], MATRICES)], MATRICES
        if called in _FILLED and isinstance(function, ast.Attribute):
            number = _FILLED[called]
            return [ml.number(number) if number else self.expression(arguments[1])], TIGHT
        if called == "abs" and len(arguments) == 1:
            return [ml.element("mrow", ml.sign("|"), self.expression(arguments[0]), ml.sign("|"))], TIGHT
        if library and called in _JOINS and isinstance(arguments[0], ast.List | ast.Tuple):
            arguments = arguments[0].elts
            inner = [self._joined(argument) for argument in arguments]
        else:
            inner = [self.expression(a.value if isinstance(a, ast.Starred) else a) for a in arguments]
        axis = next((keyword.value for keyword in node.keywords if keyword.arg == "axis"), None)
        word = ml.word(ast.unparse(function) if not library else called)
        base = node.args[0] if node.args else function.value if isinstance(function, ast.Attribute) else None
        if axis is not None and base is not None:
            word = ml.indexed(word, self.axis(axis, base))
        return [word, ml.bracketed(*ml.separated(inner))], TIGHT

    def _joined(self, node: ast.expr) -> Element:
        """A part of a larger array; zeros need their shape here."""
        if isinstance(node, ast.Call) and name_called(node) == "zeros_like":
            return ml.row([ml.word("zeros_like"), ml.bracketed(self.expression(node.args[0]))])
        return self.expression(node)

    def _method(self, node: ast.Call, base: ast.expr, called: str) -> tuple[list[Element], int] | None:
        """The formula of an array's method, such as a sum or a reshape; None if it has none."""
        texts = ["…" if isinstance(part, ast.Starred) else ast.unparse(part) for part in node.args]
        if called in _REDUCTIONS:
            return self._reduced(node, base, called), SERIES if called == "sum" else TIGHT
        if called == "swapaxes" and texts == ["-1", "-2"]:
            return [ml.transposed(self.expression(base, TIGHT))], TIGHT
        if called == "astype":
            return [self.expression(base)], TIGHT
        if called in ("swapaxes", "reshape"):
            word = ml.indexed(ml.word(called.removesuffix("axes")), ml.text(", ".join(texts)))
            return [word, ml.bracketed(self.expression(base))], TIGHT
        return None

    def axis(self, axis: ast.expr, base: ast.expr) -> Element:
        """The axis of an array, as it is written under a sign."""
        if isinstance(axis, ast.Name):  # axis=axis
            return self.expression(axis)
        return ml.row([ml.text(f"axis{_NBSP}"), self.expression(axis)])

    def _reduced(self, node: ast.Call, base: ast.expr, called: str) -> list[Element]:
        """A sum, mean or extreme, with the axis under its sign."""
        axis = next((keyword.value for keyword in node.keywords if keyword.arg == "axis"), None)
        sign = ml.sign("∑", movablelimits="false") if called == "sum" else ml.word(called)
        if axis is not None:
            sign = ml.element("munder" if called == "sum" else "msub", sign, self.axis(axis, base))
        return [sign, self.expression(base, PRODUCT if called == "sum" else TIGHT + 1)]


def is_pullback(identifier: str) -> bool:
    """Whether a name is that of a pullback: softmax_backward, pullback."""
    return identifier.endswith(("backward", "pullback"))


def _two_numbers(left: ast.expr, right: ast.expr) -> bool:
    return isinstance(right, ast.Constant) and isinstance(left, ast.Constant | ast.BinOp)


def _between(sign: str) -> Element:
    return ml.sign(sign, lspace="0.3em", rspace="0.3em")
