"""What can be changed in an operation by mistake: a term or a factor, a sign, a bracket, a comparison.

Each function takes a node of a solution's syntax tree and yields what may stand in its place, with what is then wrong
in words; `changes.py` does so for names, numbers and functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

Found = Iterator[tuple[str, ast.expr] | tuple[str, ast.expr, str]]  # the third as in changes.Alternative

_LONGEST = 44  # characters of a formula in a sentence
_COMPARED: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


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


def call(function: str, *arguments: ast.expr) -> ast.expr:
    """A call of a function with copies of these arguments."""
    return ast.Call(expression(function), [copied(x) for x in arguments], [])


def binary(a: ast.expr, op: ast.operator, b: ast.expr) -> ast.expr:
    """An operation on copies of two expressions."""
    return ast.BinOp(copied(a), op, copied(b))


def operations(node: ast.expr) -> Found:
    """All changes of an operation."""
    if isinstance(node, ast.BinOp):
        a, b = node.left, node.right
        words = written(a) or "the first part", written(b) or "the second part"
        if isinstance(node.op, ast.Add | ast.Sub):
            yield from _sum(a, b, node.op, *words)
        elif isinstance(node.op, ast.Mult | ast.Div):
            yield from _product(a, b, node.op, *words)
            yield from _distributed(a, b, node.op)
        elif isinstance(node.op, ast.MatMult):
            yield from _matrix_product(a, b, *words)
        elif isinstance(node.op, ast.Pow):
            yield from _power(a, b, *words)
        elif isinstance(node.op, ast.FloorDiv):
            yield f"% stands where // belongs in {words[0]} // {words[1]}", binary(a, ast.Mod(), b)
        elif isinstance(node.op, ast.Mod):
            yield f"% {words[1]} is missing", copied(a)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if not isinstance(node.operand, ast.Constant):
            yield f"the minus before {written(node.operand) or 'it'} is missing", copied(node.operand)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        yield from _comparison(node)


def _sum(a: ast.expr, b: ast.expr, op: ast.Add | ast.Sub, left: str, right: str) -> Found:
    plus = isinstance(op, ast.Add)
    yield f"the term {right} is missing", copied(a)
    yield f"the term {left} is missing", copied(b) if plus else ast.UnaryOp(ast.USub(), copied(b))
    if plus:
        yield f"{right} is subtracted; it must be added", binary(a, ast.Sub(), b)
        yield f"{left} is subtracted; it must be added", binary(b, ast.Sub(), a)
        yield f"{left} and {right} are multiplied; they must be added", binary(a, ast.Mult(), b)
        yield f"the larger of {left} and {right} is taken, not their sum", call("np.maximum", a, b)
    else:
        yield f"{right} is added; it must be subtracted", binary(a, ast.Add(), b)
        yield f"the difference {left} - {right} is taken the other way round", binary(b, ast.Sub(), a)
        yield f"{left} is divided by {right}, which must be subtracted", binary(a, ast.Div(), b)
    yield f"{left} counts twice beside {right}", binary(binary(a, ast.Mult(), ast.Constant(2.0)), op, b)
    yield f"{right} counts twice beside {left}", binary(a, op, binary(b, ast.Mult(), ast.Constant(2.0)))


def _product(a: ast.expr, b: ast.expr, op: ast.Mult | ast.Div, left: str, right: str) -> Found:
    over = isinstance(op, ast.Div)
    done, instead = ("divided", "multiplied") if over else ("multiplied", "divided")
    yield f"the {'division by' if over else 'factor'} {right} is missing", copied(a)
    yield f"the factor {left} is missing", binary(ast.Constant(1.0), op, b) if over else copied(b)
    back = ast.Mult() if over else ast.Div()
    yield f"{left} is {instead} by {right}, where it must be {done} by it", binary(a, back, b)
    yield f"{right} is applied twice", binary(binary(a, op, b), op, b)
    yield f"{right} stands under a root", binary(a, op, call("np.sqrt", b))
    yield f"{left} and {right} are added; they must be {done}", binary(a, ast.Add(), b)
    if over:
        yield f"the quotient {left} / {right} is the other way round", binary(b, ast.Div(), a)
    else:
        yield f"{left} and {right} are multiplied as matrices, with @, not entry by entry", binary(a, ast.MatMult(), b)


def _distributed(a: ast.expr, b: ast.expr, op: ast.Mult | ast.Div) -> Found:
    """A factor that reaches only one term of a sum, a divisor of which only the first factor divides."""
    over = "the divisor" if isinstance(op, ast.Div) else "the factor"
    for total, factor in ((a, b), (b, a)) if isinstance(op, ast.Mult) else ((a, b),):
        if isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add | ast.Sub):
            first, second, said = total.left, total.right, written(factor) or "before the bracket"
            one, other = written(first) or "the first term", written(second) or "the second term"
            scaled = binary(first, op, factor)
            yield f"{over} {said} reaches only {one}, not {other}", binary(scaled, total.op, second)
            scaled = binary(second, op, factor)
            yield f"{over} {said} reaches only {other}, not {one}", binary(first, total.op, scaled)
    if isinstance(op, ast.Div) and isinstance(b, ast.BinOp) and isinstance(b.op, ast.Mult | ast.Div):
        back = ast.Mult() if isinstance(b.op, ast.Mult) else ast.Div()
        said = f"only {written(b.left) or 'the first factor'} divides: brackets around {written(b) or 'it'} are missing"
        yield said, binary(binary(a, ast.Div(), b.left), back, b.right)


def _matrix_product(a: ast.expr, b: ast.expr, left: str, right: str) -> Found:
    once = f"is transposed once too often, or once too little, in {left} @ {right}"
    yield f"{left} {once}", binary(_turned(a), ast.MatMult(), b)
    yield f"{right} {once}", binary(a, ast.MatMult(), _turned(b))
    yield f"{right} and {left} are in the wrong order in their product", binary(b, ast.MatMult(), a)
    yield f"{left} and {right} are multiplied entry by entry, with *, not with @", binary(a, ast.Mult(), b)
    yield f"the product with {right} is missing", copied(a)


def _turned(x: ast.expr) -> ast.expr:
    return expression(f"({ast.unparse(x)}).swapaxes(-1, -2)")


def _power(a: ast.expr, b: ast.expr, left: str, right: str) -> Found:
    yield f"the power {right} of {left} is missing", copied(a)
    yield f"{left} is multiplied by {right}; it must be taken to that power", binary(a, ast.Mult(), b)
    for factor, said in (("-", "has the other sign"), ("0.5 *", "is half of what it must be"), ("2.0 *", "is doubled")):
        power = expression(f"{factor} ({ast.unparse(b)})")
        yield f"the power {right} of {left} {said}", binary(a, ast.Pow(), power)


def _comparison(node: ast.Compare) -> Found:
    mark = _COMPARED[type(node.ops[0])]
    for op, other in _COMPARED.items():
        if other != mark:
            new = copied(node)
            new.ops = [op()]
            yield f"{other} stands where {mark} belongs in {written(node) or 'the comparison'}", new
    for off in (1, -1):
        new = copied(node)
        new.comparators = [binary(node.comparators[0], ast.Add(), ast.Constant(off))]
        yield f"the limit of {written(node) or 'the comparison'} is off by one", new
