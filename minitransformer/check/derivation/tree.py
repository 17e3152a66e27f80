"""The tree of an expression, and how it is written again.

Every index is a letter (`i`, `c'`), or computed (`i+1`); a sum binds its own. `Ref` with fewer indices than axes keeps
the others, so `Q_i` is the i-th row of Q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any

from .shifting import computed, letters

BINDS_AND_KEEPS = {"softmax"}  # softmax_j S_ij still has the index j


def _subscript(indices: tuple[str, ...]) -> str:
    if any(map(computed, indices)):
        return "_{" + ",".join(indices) + "}"
    return "_" + "".join(indices) if indices else ""


@dataclass(frozen=True)
class Node:
    """An expression. `str` writes it in plain notation; f"{node:factor}" in brackets if it needs them as a factor, and
    so do "product", "power" and "term". What it finds out about itself it keeps: expressions that differ by one edit
    share the rest.
    """

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, inside: str) -> str:
        if inside not in self._forms:
            self._forms[inside] = self._written(inside)
        return self._forms[inside]

    @cached_property
    def _forms(self) -> dict[str, str]:
        return {}

    def _written(self, inside: str) -> str:
        raise NotImplementedError

    @cached_property
    def children(self) -> list[tuple[str, int | None, Node]]:
        """Each part, with the field that holds it and its place there."""
        found: list[tuple[str, int | None, Any]] = []
        for field in fields(self):
            held: Any = getattr(self, field.name)
            places = enumerate(held) if isinstance(held, tuple) else [(None, held)]
            found += [(field.name, n, part) for n, part in places]
        return [each for each in found if isinstance(each[2], Node)]

    @cached_property
    def parts(self) -> list[Node]:
        """What it consists of."""
        return [part for _, _, part in self.children]

    @cached_property
    def all(self) -> list[Node]:
        """Itself, its parts, and theirs."""
        return [self, *chain.from_iterable(part.all for part in self.parts)]

    def with_child(self, name: str, place: int | None, new: Node) -> Node:
        """The node with one part replaced."""
        if place is None:
            return replace(self, **{name: new})
        held = getattr(self, name)
        return replace(self, **{name: (*held[:place], new, *held[place + 1 :])})

    def mapped(self, change: Callable[[Node], Node]) -> Node:
        """The node with each of its parts changed; the same node if none changes."""
        node = self
        for name, place, part in self.children:
            new = change(part)
            if new is not part:
                node = node.with_child(name, place, new)
        return node

    @cached_property
    def free(self) -> set[str]:
        """The indices that no sum in it binds."""
        below = set[str]().union(*(part.free for part in self.parts))
        if isinstance(self, Over) and self.function not in BINDS_AND_KEEPS:
            return below - set(self.indices)
        own: tuple[str, ...] = ()
        if isinstance(self, Ref | Entry):
            own = self.indices
        elif isinstance(self, Delta):
            own = (self.left, self.right)
        elif isinstance(self, Place):
            own = (self.index,)
        return below.union(*map(letters, own))

    @cached_property
    def names(self) -> set[str]:
        """The names that it uses."""
        return {name for part in self.all if isinstance(part, Ref) for name in (part.name, part.before)} - {""}

    @cached_property
    def by_vector(self) -> bool:
        """Whether ∂L/∂x stands in it, without an index."""
        partials = [part for part in self.all if isinstance(part, Partial) and not part.bottom.indices]
        return any(not (isinstance(part.top, Ref) and part.top.indices) for part in partials)


@dataclass(frozen=True)
class Number(Node):
    """A number, as it was typed."""

    digits: str

    def _written(self, inside: str) -> str:
        return self.digits


@dataclass(frozen=True)
class Ref(Node):
    """A name with indices: A_ij; without: A. The number of positions of an index is its size's name."""

    name: str
    indices: tuple[str, ...] = ()
    before: str = ""  # what entry 0 is in h_{t-1}, if the text gives h_0

    def _written(self, inside: str) -> str:
        bracketed = self.indices and {"_", "^"} & set(self.name)
        return (f"({self.name})" if bracketed else self.name) + _subscript(self.indices)


@dataclass(frozen=True)
class Place(Node):
    """An index as a number, counted from 1: the i in 1[i ≤ j]."""

    index: str

    def _written(self, inside: str) -> str:
        return self.index


@dataclass(frozen=True)
class Terms(Node):
    """a - b + c: signs and what they stand before."""

    signs: tuple[str, ...]
    terms: tuple[Node, ...]

    def _written(self, inside: str) -> str:
        first, *more = zip(self.signs, self.terms, strict=True)
        text = f"{first[1]:product}" if first[0] == "+" else f"{first[0]}{first[1]:term}"
        text += "".join(f" {sign} {term:term}" for sign, term in more)
        return f"({text})" if inside else text


@dataclass(frozen=True)
class Product(Node):
    """a b / c: between each two factors "" (matrix product), "*", "⊙", "·" or "/"."""

    marks: tuple[str, ...]  # of each factor but the first
    factors: tuple[Node, ...]

    def _written(self, inside: str) -> str:
        text = f"{self.factors[0]:product}"
        for n, (mark, factor) in enumerate(zip(self.marks, self.factors[1:], strict=True), 1):
            last_sum = isinstance(factor, Over) and n == len(self.marks)
            text += (f" {mark} " if mark else " ") + format(factor, "product" if last_sum else "factor")
        return f"({text})" if inside in ("power", "factor") else text


@dataclass(frozen=True)
class Power(Node):
    """A base with an exponent."""

    base: Node
    exponent: Node

    def _written(self, inside: str) -> str:
        exponent = str(self.exponent)
        return f"{self.base:power}^{exponent if exponent.isalnum() else f'({exponent})'}"


@dataclass(frozen=True)
class Transposed(Node):
    """The transpose of a matrix."""

    base: Node

    def _written(self, inside: str) -> str:
        return f"{self.base:power}ᵀ"


@dataclass(frozen=True)
class Entry(Node):
    """(A B)_ij: an entry of an expression."""

    base: Node
    indices: tuple[str, ...]

    def _written(self, inside: str) -> str:
        return f"{self.base:power}{_subscript(self.indices)}"


@dataclass(frozen=True)
class Call(Node):
    """f(a, b); primes: f'(a); axis: that of sum(x, axis=0), as it was typed."""

    function: str
    arguments: tuple[Node, ...]
    primes: int = 0
    axis: str = ""

    def _written(self, inside: str) -> str:
        along = [f"axis={self.axis}"] if self.axis else []
        return f"{self.function}{self.primes * chr(39)}({', '.join([*map(str, self.arguments), *along])})"


@dataclass(frozen=True)
class Over(Node):
    """sum_ij body, and mean, var, max, softmax of an index alike; conditions: those of sum_{j≠i}."""

    function: str
    indices: tuple[str, ...]
    body: Node
    conditions: tuple[Node, ...] = ()
    upper: str = ""

    def _written(self, inside: str) -> str:
        text = f"{self.function}{_subscript(self.indices)} {self.body:product}"
        return f"({text})" if inside in ("power", "factor") else text

    @cached_property
    def compared(self) -> list[tuple[str, str]]:
        """The pairs of indices in δ_ij and in conditions such as j ≤ i: they run over the same."""
        found = []
        for part in self.all:
            if isinstance(part, Delta):
                found.append((part.left, part.right))
            if isinstance(part, Compare) and isinstance(part.left, Place) and isinstance(part.right, Place):
                found.append((part.left.index, part.right.index))
        return found + [(b, a) for a, b in found]

    @property
    def swallows(self) -> bool:
        """Whether a sum below a slash ends in a factor without its index, as in a / sum_j b_j c."""
        return isinstance(self.body, Product) and not self.body.factors[-1].free & set(self.indices)


@dataclass(frozen=True)
class Delta(Node):
    """δ_ij: 1 where the indices are equal, else 0."""

    left: str
    right: str

    def _written(self, inside: str) -> str:
        return "δ" + _subscript((self.left, self.right))


@dataclass(frozen=True)
class Compare(Node):
    """1 where the relation holds, else 0."""

    sign: str
    left: Node
    right: Node

    def _written(self, inside: str) -> str:
        return f"1[{self.left} {self.sign} {self.right}]"


@dataclass(frozen=True)
class Partial(Node):
    """∂top/∂bottom."""

    top: Node
    bottom: Ref

    def _written(self, inside: str) -> str:
        return f"(∂{self.top}/∂{self.bottom})" if inside == "power" else f"∂{self.top}/∂{self.bottom}"
