"""What stands on the left: f(x) = ..., -D = ..., log p = ..., and names such as CE(y, p) that only say what follows."""

from typing import Any

from .functions import FUNCTIONS
from .parsing import Expression, Factor, Item, Relation
from .reading import Reader


def with_arguments(reader: Reader, left: Expression) -> tuple[Expression, Any]:
    """The left side of f(x) = ... as f, and its arguments, if f is a new name."""
    ((sign, items), *more) = left.terms
    name = items[0].factor
    if more or sign or len(items) != 2 or items[1].mark or not items[1].factor.inside or items[1].factor.after:
        return left, ()
    names = [each.left.single for each in items[1].factor.inside if not each.sign]
    known = all(each and reader.found(each.name, each.after) and not each.number for each in names)
    if not known or not name.name or name.name in FUNCTIONS or reader.found(name.name, name.after):
        return left, ()
    return Expression([("", items[:1])]), items[1].factor.inside


def only_named(reader: Reader, side: Expression) -> bool:
    """Whether a side is CE(y, p) or the like, of a function that nobody has defined."""
    ((_, items), *more) = side.terms
    name = items[0].factor
    called = not more and len(items) == 2 and not items[1].mark and items[1].factor.inside
    return bool(called and name.name and name.name not in FUNCTIONS and not reader.found(name.name, name.after))


def solved(reader: Reader, left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """-D = a as D = -a, and log p = a as p = exp(a), if the name is new."""
    ((sign, items), *more) = left.terms
    name = items[-1].factor
    if more or not name.name or reader.found(name.name, name.after) or name.name in FUNCTIONS:
        return left, right
    inside = Item("", "", Factor(inside=(Relation(right),)))
    if sign == "-" and len(items) == 1:
        return Expression([("", items)]), Expression([("-", [inside])])
    if not sign and [item.factor.name for item in items[:-1]] in (["log"], ["ln"]) and not items[-1].mark:
        return Expression([("", items[-1:])]), Expression([("", [Item("", "", Factor(name="exp")), inside])])
    return left, right
