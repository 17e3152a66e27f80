"""The one small change that makes a wrong line right, as a question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .tree import Node, Product, children, with_child

if TYPE_CHECKING:
    from .checking import Checker


@dataclass(frozen=True)
class Repair:
    """question: "Is it A_ij, not A_il?"; mistake: the name of a known one, with its sentence."""

    question: str = ""
    mistake: str = ""
    sentence: str = ""


def everywhere(node: Node) -> Iterator[tuple[Node, list[tuple[Node, str, int | None]]]]:
    """Every part of an expression, with the way to it from the root."""
    yield node, []
    for name, place, part in children(node):
        for found, way in everywhere(part):
            yield found, [(node, name, place), *way]


def rebuilt(way: list[tuple[Node, str, int | None]], new: Node) -> Node:
    """The whole expression with the part at the end of the way replaced."""
    for parent, name, place in reversed(way):
        new = with_child(parent, name, place, new)
    return new


def slash_readings(node: Node) -> Iterator[Node]:
    """a / b c read as a / (b c)."""
    for part, way in everywhere(node):
        if isinstance(part, Product):
            for n, mark in enumerate(part.marks):
                if mark == "/" and n + 1 < len(part.marks) and part.marks[n + 1] == "":
                    end = n + 1
                    while end < len(part.marks) and part.marks[end] == "":
                        end += 1
                    below = Product(part.marks[n + 1 : end], part.factors[n + 1 : end + 1])
                    new = replace(
                        part,
                        marks=part.marks[: n + 1] + part.marks[end:],
                        factors=(*part.factors[: n + 1], below, *part.factors[end + 1 :]),
                    )
                    yield rebuilt(way, new)


def mended(checker: Checker, left: Node, right: Node) -> Repair:
    """The first small change that makes the right side equal to the left."""
    return Repair()
