"""The tree of an expression, and how it is written again.

Every index is a letter (`i`, `c'`), or computed (`i+1`); a sum binds its own. `Ref` with fewer indices than axes keeps
the others, so `Q_i` is the i-th row of Q.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from .shifting import computed, letters


@dataclass(frozen=True)
class Node:
    """An expression."""


@dataclass(frozen=True)
class Number(Node):
    """A number, as it was typed."""

    digits: str


@dataclass(frozen=True)
class Ref(Node):
    """A name with indices: A_ij; without: A. The number of positions of an index is its size's name."""

    name: str
    indices: tuple[str, ...] = ()
    before: str = ""  # what entry 0 is in h_{t-1}, if the text gives h_0


@dataclass(frozen=True)
class Place(Node):
    """An index as a number, counted from 1: the i in 1[i ≤ j]."""

    index: str


@dataclass(frozen=True)
class Terms(Node):
    """a - b + c: signs and what they stand before."""

    signs: tuple[str, ...]
    terms: tuple[Node, ...]


@dataclass(frozen=True)
class Product(Node):
    """a b / c: between each two factors "" (matrix product), "*", "⊙", "·" or "/"."""

    marks: tuple[str, ...]  # of each factor but the first
    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Power(Node):
    """A base with an exponent."""

    base: Node
    exponent: Node


@dataclass(frozen=True)
class Transposed(Node):
    """The transpose of a matrix."""

    base: Node


@dataclass(frozen=True)
class Entry(Node):
    """(A B)_ij: an entry of an expression."""

    base: Node
    indices: tuple[str, ...]


@dataclass(frozen=True)
class Call(Node):
    """f(a, b); primes: f'(a)."""

    function: str
    arguments: tuple[Node, ...]
    primes: int = 0


@dataclass(frozen=True)
class Over(Node):
    """sum_ij body, and mean, var, max, softmax of an index alike; conditions: those of sum_{j≠i}."""

    function: str
    indices: tuple[str, ...]
    body: Node
    conditions: tuple[Node, ...] = ()
    upper: str = ""


@dataclass(frozen=True)
class Delta(Node):
    """δ_ij: 1 where the indices are equal, else 0."""

    left: str
    right: str


@dataclass(frozen=True)
class Compare(Node):
    """1 where the relation holds, else 0."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Partial(Node):
    """∂top/∂bottom."""

    top: Node
    bottom: Ref


BINDS_AND_KEEPS = {"softmax"}  # softmax_j S_ij still has the index j


def children(node: Node) -> Iterator[tuple[str, int | None, Node]]:
    """Each part of a node, with the field that holds it and its place there."""
    for field in fields(node):
        held: Any = getattr(node, field.name)
        if isinstance(held, Node):
            yield field.name, None, held
        elif isinstance(held, tuple):
            for n, part in enumerate(held):
                if isinstance(part, Node):
                    yield field.name, n, part


def with_child(node: Node, name: str, place: int | None, new: Node) -> Node:
    """The node with one part replaced."""
    if place is None:
        return replace(node, **{name: new})
    held = getattr(node, name)
    return replace(node, **{name: (*held[:place], new, *held[place + 1 :])})


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with each of its parts changed; the same node if none changes."""
    for name, place, part in list(children(node)):
        new = change(part)
        if new is not part:
            node = with_child(node, name, place, new)
    return node


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a node that keeps what it found at the node: expressions that differ by one edit share the rest."""

    @functools.wraps(function)
    def of(node: Node, *more: Any) -> Any:
        found = node.__dict__.setdefault("_found", {})
        key = (function.__name__, *more)
        if key not in found:
            found[key] = function(node, *more)
        return found[key]

    return of


@kept
def free(node: Node) -> set[str]:
    """The indices of an expression that no sum in it binds."""
    if isinstance(node, Ref | Entry):
        own = set[str]().union(*map(letters, node.indices))
    elif isinstance(node, Delta):
        own = letters(node.left) | letters(node.right)
    elif isinstance(node, Place):
        own = letters(node.index)
    else:
        own = set()
    below = set().union(*(free(part) for _, _, part in children(node)))
    if isinstance(node, Over) and node.function not in BINDS_AND_KEEPS:
        below = below - set(node.indices)
    return own | below


@kept
def compared(node: Node) -> list[tuple[str, str]]:
    """The pairs of indices in δ_ij and in conditions such as j ≤ i: they run over the same."""
    found = [pair for _, _, part in children(node) for pair in compared(part)]
    if isinstance(node, Delta):
        found.append((node.left, node.right))
    if isinstance(node, Compare) and isinstance(node.left, Place) and isinstance(node.right, Place):
        found.append((node.left.index, node.right.index))
    return found + [(b, a) for a, b in found]


@kept
def names(node: Node) -> set[str]:
    """The names that an expression uses."""
    own = {node.name, node.before} - {""} if isinstance(node, Ref) else set()
    return own.union(*(names(part) for _, _, part in children(node)))


@kept
def by_vector(node: Node) -> bool:
    """Whether ∂L/∂x stands in an expression, without an index."""
    own = isinstance(node, Partial) and not (isinstance(node.top, Ref) and node.top.indices) and not node.bottom.indices
    return own or any(by_vector(part) for _, _, part in children(node))


def swallows(node: Over) -> bool:
    """Whether a sum below a slash ends in a factor without its index, as in a / sum_j b_j c."""
    return isinstance(node.body, Product) and not free(node.body.factors[-1]) & set(node.indices)


def _subscript(indices: tuple[str, ...]) -> str:
    if any(map(computed, indices)):
        return "_{" + ",".join(indices) + "}"
    return "_" + "".join(indices) if indices else ""


@kept
def written(node: Node, inside: str = "") -> str:
    """The expression in plain notation. inside: "product" or "power" if it stands within one, for its brackets."""
    if isinstance(node, Number):
        return node.digits
    if isinstance(node, Ref):
        if not node.indices:
            return node.name
        return ("(" + node.name + ")" if {"_", "^"} & set(node.name) else node.name) + _subscript(node.indices)
    if isinstance(node, Place):
        return node.index
    if isinstance(node, Terms):
        text = ""
        for n, (sign, term) in enumerate(zip(node.signs, node.terms, strict=True)):
            text += (
                written(term, "product")
                if n == 0 and sign == "+"
                else (f" {sign} " if n else sign) + written(term, "term")
            )
        return f"({text})" if inside in ("product", "power", "term", "factor") else text
    if isinstance(node, Product):
        text = written(node.factors[0], "product")
        for n, (mark, factor) in enumerate(zip(node.marks, node.factors[1:], strict=True)):
            last = n == len(node.marks) - 1
            told = written(factor, "product" if isinstance(factor, Over) and last else "factor")
            text += (f" {mark} " if mark else " ") + told
        return f"({text})" if inside in ("power", "factor") else text
    if isinstance(node, Power):
        exponent = written(node.exponent)
        return written(node.base, "power") + "^" + (exponent if exponent.isalnum() else f"({exponent})")
    if isinstance(node, Transposed):
        return written(node.base, "power") + "ᵀ"
    if isinstance(node, Entry):
        return written(node.base, "power") + _subscript(node.indices)
    if isinstance(node, Call):
        return node.function + "'" * node.primes + "(" + ", ".join(written(part) for part in node.arguments) + ")"
    if isinstance(node, Over):
        text = f"{node.function}{_subscript(node.indices)} {written(node.body, 'product')}"
        return f"({text})" if inside in ("power", "factor") else text
    if isinstance(node, Delta):
        return "δ" + _subscript((node.left, node.right))
    if isinstance(node, Compare):
        return f"1[{written(node.left)} {node.sign} {written(node.right)}]"
    assert isinstance(node, Partial)
    text = f"∂{written(node.top)}/∂{written(node.bottom)}"
    return f"({text})" if inside == "power" else text
