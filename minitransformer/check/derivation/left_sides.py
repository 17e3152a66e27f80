"""What stands on the left: f(x) = ..., -D = ..., log p = ..., and names such as CE(y, p) that only say what follows."""

import itertools
from typing import Any

from .functions import ALIKE, ENTRYWISE, FUNCTIONS
from .parsing import Expression, Factor, Item, Relation
from .reading import Reader


def called(side: Expression) -> tuple[Factor, Any] | None:
    """The f and the (x) of a side f(x)."""
    ((sign, items), *more) = side.terms
    if more or sign or len(items) != 2 or items[1].mark or not items[1].factor.inside or items[1].factor.after:
        return None
    return (items[0].factor, items[1].factor.inside) if items[0].factor.name else None


def with_arguments(reader: Reader, left: Expression) -> tuple[Expression, Any]:
    """The left side of f(x) = ... as f, and its arguments, if f is a new name."""
    if not (call := called(left)):
        return left, ()
    name, inside = call
    names = [each.left.single for each in inside if not each.sign]
    known = all(each and reader.found(each.name, each.after) and not each.number for each in names)
    if not known or name.name in FUNCTIONS or reader.found(name.name, name.after):
        return left, ()
    return Expression([("", [Item("", "", name)])]), inside


def only_named(reader: Reader, side: Expression) -> bool:
    """Whether a side is CE(y, p) or the like, of a function that nobody has defined."""
    call = called(side)
    return bool(call and call[0].name not in FUNCTIONS and not reader.found(call[0].name, call[0].after))


def take_meaning(reader: Reader, sides: list[Expression]) -> None:
    """h = φ(z) = relu(z), or σ(z) = tanh(z), says which function the letter is, if it has not been used before."""
    for one, other in itertools.pairwise(map(called, sides)):
        if one and other and one[1] == other[1] and one[0] == Factor(letter := one[0].name):
            function = ALIKE.get(other[0].name, other[0].name)
            free = letter not in reader.used if letter in ("σ", "φ") else letter not in FUNCTIONS
            if free and not reader.found(letter, ()) and other[0] == Factor(other[0].name) and function in ENTRYWISE:
                reader.means[letter] = function


def argument(side: Expression) -> str:
    """The t of a side f(t)."""
    call = called(side)
    single = call[1][0].left.single if call and len(call[1]) == 1 else None
    return single.name if single and len(single.name) == 1 and not single.after else ""


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
