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
_NBSP = "\u00a0"  # a space that MathML does not trim

# How tightly a node binds: it needs brackets inside a node that binds more tightly.
_SUM, _PRODUCT, _TIGHT = 1, 2, 3


def formula(source: str, scalars: Collection[str] = ()) -> Element | None:
    """The statement as a <math> element; None for one that computes nothing, such as a check or the head of a loop.

    scalars: the names known to be single numbers; a product with one of them is written without a sign.
    """
    try:
        statement = ast.parse(textwrap.dedent(source)).body[0]
    except (SyntaxError, IndexError):
        return None
    row = _Formula(scalars).statement(statement)
    return None if row is None else _element("math", *row, xmlns=NAMESPACE, display="block")


def name(identifier: str) -> Element:
    """A name as mathematics writes it: gamma is γ, w_q is W with the index Q, dscores is an upright word."""
    if identifier.startswith("d") and identifier[1:] in _GREEK:
        return _element("mrow", _word("d"), _letter(_GREEK[identifier[1:]]))
    if identifier in _GREEK:
        return _letter(_GREEK[identifier])
    base, _, index = identifier.rpartition("_")
    if base in ("w", "dw") and len(index) == 1:
        return _element("msub", name(base.replace("w", "W")), _letter(index.upper()))
    if base and "_" not in base and len(base) <= 2 and len(index) <= 2:
        return _element("msub", name(base), name(index))
    return _letter(identifier) if len(identifier) == 1 else _word(identifier)


def as_lists(element: Element) -> list[Any]:
    """The element as a list for JSON: [tag, attributes, child, ...], where a child is such a list or a text."""
    attributes = {key: value for key, value in element.attrib.items() if key != "xmlns"}
    text = [element.text] if element.text else []
    return [element.tag, attributes, *text, *(as_lists(child) for child in element)]


def _element(tag: str, *children: Element, **attributes: str) -> Element:
    element = Element(tag, attributes)
    element.extend(children)
    return element


def _text(tag: str, text: str, **attributes: str) -> Element:
    element = Element(tag, attributes)
    element.text = text
    return element


def _letter(text: str) -> Element:
    return _text("mi", text)


def _word(text: str) -> Element:
    """A name in upright letters, even if it is one letter long."""
    return _text("mi", text, mathvariant="normal")


def _sign(text: str, **attributes: str) -> Element:
    return _text("mo", text, **attributes)


def _row(parts: Sequence[Element]) -> Element:
    return parts[0] if len(parts) == 1 else _element("mrow", *parts)


def _bracketed(*parts: Element) -> Element:
    return _element("mrow", _sign("("), *parts, _sign(")"))


def _separated(parts: Sequence[Element]) -> list[Element]:
    """The parts with commas between them."""
    out: list[Element] = []
    for part in parts:
        out += [_sign(","), part] if out else [part]
    return out


class _Formula:
    def __init__(self, scalars: Collection[str]) -> None:
        self.scalars = scalars

    def statement(self, node: ast.stmt) -> list[Element] | None:
        if isinstance(node, ast.FunctionDef):
            arguments = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
            return [_word(node.name), _bracketed(*_separated([name(a.arg) for a in arguments]))]
        if isinstance(node, ast.Return) and node.value is not None:
            return [_text("mtext", "return"), _space(), *self._values(node.value)]
        if isinstance(node, ast.Assign):
            return [*self._targets(node.targets[0]), _sign("="), *self._values(node.value)]
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return [*self._targets(node.target), _sign("="), *self._values(node.value)]
        if isinstance(node, ast.AugAssign):
            sum_ = ast.BinOp(node.target, node.op, node.value)
            return [*self._targets(node.target), _sign("←"), self.expression(sum_)]
        if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call) and _called(call) == "scatter_add":
            target, ids, rows = (self.expression(argument) for argument in call.args)
            return [_element("msub", target, ids), _sign("←"), _element("msub", target, ids), _sign("+"), rows]
        return None

    def _targets(self, node: ast.expr) -> list[Element]:
        """The targets of an assignment, without the pullbacks, which are not numbers."""
        parts = list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]
        kept = [p for p in parts if not (isinstance(p, ast.Name) and _is_pullback(p.id))] or parts
        return _separated([self.expression(p.value if isinstance(p, ast.Starred) else p) for p in kept])

    def _values(self, node: ast.expr) -> list[Element]:
        parts = list(node.elts) if isinstance(node, ast.Tuple) and node.elts else [node]
        return _separated([self.expression(part) for part in parts])

    def expression(self, node: ast.expr, within: int = 0) -> Element:
        """The node's formula, in brackets if it binds less tightly than `within`, the node around it."""
        build: Callable[[Any], tuple[list[Element], int]] | None = getattr(
            self, f"_{type(node).__name__.lower()}", None
        )
        parts, tightness = build(node) if build else ([_text("mtext", ast.unparse(node))], _TIGHT)
        return _bracketed(*parts) if tightness < within else _row(parts)

    def _name(self, node: ast.Name) -> tuple[list[Element], int]:
        return [name(node.id)], _TIGHT

    def _constant(self, node: ast.Constant) -> tuple[list[Element], int]:
        if isinstance(node.value, bool | str | None) or node.value is Ellipsis:
            return [_text("mtext", "…" if node.value is Ellipsis else str(node.value))], _TIGHT
        return [_text("mn", f"{node.value:g}" if isinstance(node.value, float) else str(node.value))], _TIGHT

    def _attribute(self, node: ast.Attribute) -> tuple[list[Element], int]:
        if node.attr == "T":
            return [_transposed(self.expression(node.value, _TIGHT))], _TIGHT
        if isinstance(node.value, ast.Name) and node.value.id in _LIBRARIES:
            return [_letter(_SYMBOLS.get(node.attr, node.attr))], _TIGHT
        if node.attr == "value":  # of a parameter
            return [self.expression(node.value)], _TIGHT
        return [_word(ast.unparse(node).removeprefix("self."))], _TIGHT

    def _unaryop(self, node: ast.UnaryOp) -> tuple[list[Element], int]:
        return [_sign(_SIGNS[type(node.op)], form="prefix"), self.expression(node.operand, _PRODUCT)], _SUM

    def _binop(self, node: ast.BinOp) -> tuple[list[Element], int]:
        left, right = node.left, node.right
        if isinstance(node.op, ast.Div):
            return [_element("mfrac", self.expression(left), self.expression(right))], _PRODUCT
        if isinstance(node.op, ast.Pow):
            return [_element("msup", self.expression(left, _TIGHT), self.expression(right))], _PRODUCT
        if isinstance(node.op, ast.MatMult):
            return [self.expression(left, _PRODUCT), _space(), self.expression(right, _PRODUCT)], _PRODUCT
        if isinstance(node.op, ast.Mult):
            factors = [self.expression(left, _PRODUCT), self.expression(right, _PRODUCT)]
            single = [self._is_single(side) for side in (left, right)]
            sign = _sign("⊙") if not any(single) else _sign("·") if _two_numbers(left, right) else _space()
            return [factors[0], sign, factors[1]], _PRODUCT
        if isinstance(node.op, ast.Add | ast.Sub):
            sign = _sign("+" if isinstance(node.op, ast.Add) else "−")
            within = _PRODUCT if isinstance(node.op, ast.Sub) else _SUM
            return [self.expression(left, _SUM), sign, self.expression(right, within)], _SUM
        if type(node.op) in _BETWEEN:
            sign = _sign(_BETWEEN[type(node.op)], lspace="0.3em", rspace="0.3em")
            return [self.expression(left, _PRODUCT), sign, self.expression(right, _PRODUCT)], _SUM
        return [_text("mtext", ast.unparse(node))], _TIGHT

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
            out += [_sign(_BETWEEN[type(node.op)], lspace="0.3em", rspace="0.3em")] if out else []
            out.append(self.expression(part, _PRODUCT))
        return out, 0

    def _compare(self, node: ast.Compare) -> tuple[list[Element], int]:
        out = [self.expression(node.left, _SUM)]
        for operator, side in zip(node.ops, node.comparators, strict=True):
            out += [_sign(_COMPARISONS[type(operator)], lspace="0.3em", rspace="0.3em"), self.expression(side, _SUM)]
        return out, 0

    def _ifexp(self, node: ast.IfExp) -> tuple[list[Element], int]:
        return [self._cases(node.test, node.body, node.orelse)], _TIGHT

    def _cases(self, test: ast.expr, first: ast.expr, second: ast.expr) -> Element:
        """A brace with two rows: the value if the test is true, and the value otherwise."""
        rows = [
            (self.expression(first), _text("mtext", f"if{_NBSP}"), self.expression(test)),
            (self.expression(second), _text("mtext", "otherwise")),
        ]
        cells = [[_element("mtd", value), _element("mtd", _row(rest))] for value, *rest in rows]
        table = _element("mtable", *(_element("mtr", *row) for row in cells), columnalign="left left")
        return _element("mrow", _sign("{", form="prefix", stretchy="true"), table)

    def _subscript(self, node: ast.Subscript) -> tuple[list[Element], int]:
        index = _text("mtext", ast.unparse(node.slice).strip("()").replace("None", "new"))
        return [_element("msub", self.expression(node.value, _TIGHT), index)], _TIGHT

    def _call(self, node: ast.Call) -> tuple[list[Element], int]:
        called, function, arguments = _called(node), node.func, node.args
        library = isinstance(function, ast.Attribute) and ast.unparse(function.value) in _LIBRARIES
        if isinstance(function, ast.Attribute) and not library:
            method = self._method(node, function.value, called)
            if method is not None:
                return method
        if called == "sqrt" and len(arguments) == 1:
            return [_element("msqrt", self.expression(arguments[0]))], _TIGHT
        if called == "exp" and len(arguments) == 1:
            return [_element("msup", _letter("e"), self.expression(arguments[0]))], _TIGHT
        if called == "where" and len(arguments) == 3:
            return [self._cases(*arguments)], _TIGHT
        if called in ("maximum", "minimum"):
            return [_word(called[:3]), _bracketed(*_separated([self.expression(a) for a in arguments]))], _TIGHT
        if _is_pullback(called) and len(arguments) == 1:
            op = called.removesuffix("pullback").removesuffix("backward").strip("_")
            index = [name(op)] if op else []
            jacobian = _element("msubsup" if op else "msup", _letter("J"), *index, _word("T"))
            return [jacobian, _space(), self.expression(arguments[0], _PRODUCT)], _PRODUCT
        inner = [self.expression(a.value if isinstance(a, ast.Starred) else a) for a in arguments]
        return [_word(ast.unparse(function) if not library else called), _bracketed(*_separated(inner))], _TIGHT

    def _method(self, node: ast.Call, base: ast.expr, called: str) -> tuple[list[Element], int] | None:
        """The formula of an array's method, such as a sum or a reshape; None if it has none."""
        arguments = [ast.unparse(argument) for argument in node.args]
        if called in _REDUCTIONS:
            return self._reduced(node, base, called), _PRODUCT
        if called == "swapaxes" and arguments == ["-1", "-2"]:
            return [_transposed(self.expression(base, _TIGHT))], _TIGHT
        if called == "astype":
            return [self.expression(base)], _TIGHT
        if called == "swapaxes":
            swap = _element("msub", _word("swap"), _text("mtext", ", ".join(arguments)))
            return [swap, _bracketed(self.expression(base))], _TIGHT
        if called == "reshape":
            return [_word("reshape"), _bracketed(self.expression(base))], _TIGHT
        return None

    def _reduced(self, node: ast.Call, base: ast.expr, called: str) -> list[Element]:
        """A sum, mean or extreme, with the axis under its sign."""
        axis = next((keyword.value for keyword in node.keywords if keyword.arg == "axis"), None)
        sign = _sign("∑", movablelimits="false") if called == "sum" else _word(called)
        if axis is not None:
            named = isinstance(axis, ast.Name)  # axis=axis
            under = self.expression(axis) if named else _row([_text("mtext", f"axis{_NBSP}"), self.expression(axis)])
            sign = _element("munder" if called == "sum" else "msub", sign, under)
        return [sign, self.expression(base, _PRODUCT if called == "sum" else _TIGHT + 1)]


def _space() -> Element:
    return _element("mspace", width="0.2em")


def _transposed(base: Element) -> Element:
    return _element("msup", base, _word("T"))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_pullback(identifier: str) -> bool:
    return identifier.endswith(("backward", "pullback"))


def _two_numbers(left: ast.expr, right: ast.expr) -> bool:
    return isinstance(right, ast.Constant) and isinstance(left, ast.Constant | ast.BinOp)
