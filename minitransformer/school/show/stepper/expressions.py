"""What a line of code computes: a small tree, from which its formula, the numbers of a cell and the map are all read.

    (q @ k.T) * factor    is  Operation("*", (Operation("@", (Name("q"), Member(Name("k"), "T"))), Name("factor")))

The same tree writes out one cell. Then its leaves are numbers, which know where they were recorded:

    (2·3 + 2·1)·0.7071    is  Operation("*", (Operation("+", (2·3, 2·1)), Number(0.7071)))
"""

import ast
import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .sources import syntax_tree

Index: TypeAlias = tuple[int, ...]
Path: TypeAlias = tuple[int, ...]  # which part of the value, if it has several: in `a, (b, c)`, b is at (1, 0)

_SYMBOLS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&",
    ast.BitOr: "|", ast.Mod: "%", ast.FloorDiv: "//", ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=",
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.And: "and", ast.Or: "or", ast.USub: "negative", ast.UAdd: "positive", ast.Not: "not", ast.Invert: "~",
    ast.IfExp: "if", ast.Subscript: "[]", ast.Tuple: ",", ast.List: ",", ast.Starred: "starred", ast.NamedExpr: ":=",
    ast.ListComp: "for", ast.SetComp: "for", ast.DictComp: "for", ast.GeneratorExp: "for", ast.comprehension: "each",
    ast.Lambda: "lambda",
}  # fmt: skip
_KINDS: dict[type, str] = {
    ast.Assign: "assign", ast.AnnAssign: "assign", ast.AugAssign: "change", ast.Return: "return", ast.For: "for",
    ast.With: "with", ast.If: "test", ast.While: "test", ast.Expr: "call",
}  # fmt: skip
_LIBRARIES = ("xp", "np", "numpy", "math", "ops")


class NotExpandable(ValueError):
    """The number was not computed by a line that can be written out; the message says what it is instead."""


@dataclass(frozen=True)
class Expression:
    """node: the code that it was read from; None for one that a rule made."""

    node: ast.AST | None = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The code."""
        return "" if self.node is None else ast.unparse(self.node)


@dataclass(frozen=True)
class Name(Expression):
    """stored: whether the line binds it."""

    id: str
    stored: bool = False


@dataclass(frozen=True)
class Number(Expression):
    """A number, and where it was recorded: the title, the cell and the binding's serial, which a constant lacks."""

    value: bool | int | float
    title: str = ""
    index: Index = ()
    serial: int | None = None


@dataclass(frozen=True)
class Operation(Expression):
    """Parts joined by a symbol: an operator, or what else code joins.

    "if": test, value, other value. "[]": array, index. ",": a tuple or a list. ":=": name, value. "for": what a
    comprehension makes, and for each loop "each": target, values, conditions. "code": anything else. In a sum or
    product of numbers there may be more than two parts.
    """

    symbol: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Applied(Expression):
    """A call: `exp` for xp.exp(x), and `sum` for x.sum(), of which x is an operand, too."""

    name: str
    parts: tuple[Expression, ...]
    options: dict[str, Expression] = field(default_factory=dict, compare=False)
    function: Expression | None = field(default=None, compare=False)

    @property
    def of_library(self) -> bool:
        """Whether it is a function of NumPy, math or ops."""
        return isinstance(self.function, Member) and self.function.of_library

    @property
    def of_array(self) -> Expression | None:
        """x for x.sum()."""
        return self.function.of if isinstance(self.function, Member) and not self.of_library else None

    @property
    def operands(self) -> tuple[Expression, ...]:
        return self.parts if self.of_array is None else (self.of_array, *self.parts)


@dataclass(frozen=True)
class Member(Expression):
    """of.name"""

    of: Expression
    name: str

    @property
    def of_library(self) -> bool:
        return isinstance(self.of, Name) and self.of.id in _LIBRARIES


@dataclass(frozen=True)
class Statement:
    """kind: "assign", "change" (x += y, whose value is x + y), "return", "for", "with", "test", "call" or "other".

    A "with" is several expressions that are bound to several targets.
    """

    kind: str
    targets: tuple[Expression, ...]
    value: Expression | None
    node: ast.stmt | None

    @functools.cached_property
    def everything(self) -> tuple[Expression, ...]:
        """All expressions in it, in the order in which they are computed."""
        return tuple(part for whole in (*self.targets, self.value) if whole is not None for part in everything(whole))


def expression(node: ast.AST) -> Expression:
    """Read an expression."""
    match node:
        case ast.Name():
            return Name(node.id, isinstance(node.ctx, ast.Store), node=node)
        case ast.Constant(value=bool() | int() | float() as number):
            return Number(number, node=node)
        case ast.Attribute():
            return Member(expression(node.value), node.attr, node=node)
        case ast.Call():
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            options = {k.arg or f"**{i}": expression(k.value) for i, k in enumerate(node.keywords)}
            return Applied(name, tuple(map(expression, node.args)), options, expression(node.func), node=node)
        case ast.Compare(ops=[_, _, *_]):  # a < b < c is a < b and b < c
            sides = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            return expression(ast.BoolOp(ast.And(), [ast.Compare(a, [op], [b]) for a, op, b in sides]))
    joins = getattr(node, "op", node.ops[0] if isinstance(node, ast.Compare) else node)
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.comprehension)]
    return Operation(_SYMBOLS.get(type(joins), "code"), tuple(map(expression, parts)), node=node)


@functools.lru_cache(maxsize=4096)
def read(source: str) -> Statement:
    """Read a statement, each once; the head of a compound statement, and what is not code, has the kind ""."""
    try:
        return statement(syntax_tree(source).body[0])
    except (SyntaxError, IndexError):
        return Statement("", (), None, None)


def statement(node: ast.stmt) -> Statement:
    """Read a statement."""
    kind = _KINDS.get(type(node), "other")
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    value = getattr(node, "value", getattr(node, "iter", getattr(node, "test", None)))
    if isinstance(node, ast.AugAssign):
        value = ast.BinOp(ast.parse(ast.unparse(node.target), mode="eval").body, node.op, node.value)
    elif isinstance(node, ast.With):
        value = ast.Tuple([item.context_expr for item in node.items], ast.Load())
        targets = [ast.Tuple([item.optional_vars or ast.Constant(None) for item in node.items], ast.Store())]
    elif kind == "other":
        targets, value = [], None
    made = tuple(expression(target) for target in targets if target is not None)
    return Statement(kind, made, None if value is None else expression(value), node)


def inner(whole: Expression) -> tuple[Expression, ...]:
    """The expressions that one consists of, in the order of the code."""
    if isinstance(whole, Applied):
        function = () if whole.function is None else (whole.function,)
        return (*function, *whole.parts, *whole.options.values())
    return whole.parts if isinstance(whole, Operation) else (whole.of,) if isinstance(whole, Member) else ()


def is_joined(whole: Expression, symbol: str) -> bool:
    """Whether this symbol joins its parts."""
    return isinstance(whole, Operation) and whole.symbol == symbol


def unstarred(part: Expression) -> Expression:
    """x for *x; any other expression as it is."""
    return inner(part)[0] if is_joined(part, "starred") else part


def everything(whole: Expression) -> Iterator[Expression]:
    """All expressions in one and, last, itself: the order in which they are computed."""
    for part in inner(whole):
        yield from everything(part)
    yield whole


def numbers(whole: Expression) -> Iterator[Number]:
    """Every number of an expression, from left to right."""
    return (part for part in everything(whole) if isinstance(part, Number))


def names(*wholes: Expression) -> list[str]:
    """The names in these expressions."""
    return [part.id for whole in wholes for part in everything(whole) if isinstance(part, Name)]


@functools.lru_cache(maxsize=1024)
def only_in_comprehensions(source: str) -> frozenset[str]:
    """The names that a statement binds only inside a comprehension: from Python 3.12 these show among the locals."""
    loops = [inner(part)[0] for part in read(source).everything if is_joined(part, "each")]
    return frozenset(names(*loops)) - frozenset(names(*read(source).targets))


def member(of: Expression, *names: str) -> Expression:
    """of.name"""
    for name in names:
        assert isinstance(of.node, ast.expr)
        of = Member(of, name, node=ast.Attribute(of.node, name, ast.Load()))
    return of


def assigned(line: Statement, name: str, title: str) -> tuple[Expression, Path]:
    """The expression that the statement assigns to `name`, and the path into its value. Raises NotExpandable."""
    if line.value is not None and line.kind in ("assign", "change"):
        for path in (_path_to(target, name) for target in line.targets):
            if path is not None or line.kind == "change":
                return part_of(line.value, path or ())
    for part in line.everything:
        if is_joined(part, ":=") and inner(part)[0] == Name(name, True):
            return inner(part)[1], ()
    raise NotExpandable(f"{title} was not computed by a line of its own")


def _path_to(target: Expression, name: str) -> Path | None:
    if not is_joined(target, ","):
        return () if isinstance(target, Name) and target.id == name else None
    parts = inner(target)
    starred = next((i for i, part in enumerate(parts) if is_joined(part, "starred")), len(parts))
    for i, part in enumerate(parts):
        inside = _path_to(part, name)
        if inside is not None:
            return (i if i < starred else i - len(parts), *inside)
    return None


def part_of(value: Expression, path: Path) -> tuple[Expression, Path]:
    """The element that a path leads to in tuples that the source writes out, and the rest of the path."""
    while path and is_joined(value, ","):
        parts = inner(value)
        if any(is_joined(part, "starred") for part in parts) or path[0] >= len(parts):
            break
        value, path = parts[path[0]], path[1:]
    return value, path


def arguments(code: types.CodeType) -> tuple[str, ...]:
    """The names of a function's arguments, without *args and **kwargs."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def argument_in(made: Applied, code: types.CodeType, name: str) -> Expression | None:
    """The expression that a call of this code passes as the argument `name`; None if it is not written there."""
    if name in made.options:
        return made.options[name]
    positional = [argument for argument in code.co_varnames[: code.co_argcount] if argument != "self"]
    if name not in positional:
        return None
    before = made.parts[: positional.index(name) + 1]
    if len(before) <= positional.index(name) or any(is_joined(part, "starred") for part in before):
        return None
    return before[-1]
