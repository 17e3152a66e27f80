"""Expressions that differ from others in one part."""

from collections.abc import Iterator
from dataclasses import replace

from .shifting import with_letter
from .tree import Delta, Entry, Node, Number, Over, Partial, Place, Product, Ref, Transposed

Way = list[tuple[Node, str, "int | None"]]


def everywhere(node: Node) -> Iterator[tuple[Node, Way]]:
    """Every part of an expression, with the way to it from the root."""
    yield node, []
    for name, place, part in node.children:
        for found, way in everywhere(part):
            yield found, [(node, name, place), *way]


def rebuilt(way: Way, new: Node) -> Node:
    """The whole expression with the part at the end of the way replaced."""
    for parent, name, place in reversed(way):
        new = parent.with_child(name, place, new)
    return new


def renamed(node: Node, old: str, new: str) -> Node:
    """An index replaced wherever it is free."""
    if isinstance(node, Over) and old in node.indices:
        return node
    if isinstance(node, Ref | Entry):
        node = replace(node, indices=tuple(with_letter(i, old, new) for i in node.indices))
    if isinstance(node, Delta):
        return Delta(with_letter(node.left, old, new), with_letter(node.right, old, new))
    if isinstance(node, Place):
        return Place(with_letter(node.index, old, new))
    return node.mapped(lambda part: renamed(part, old, new))


def put_in(node: Node, part: Node, new: Node) -> Node:
    """The expression with a new part wherever an equal one to the old stands; the same expression if none does."""
    return new if node == part else node.mapped(lambda child: put_in(child, part, new))


def slope(top: Node, below: Node) -> Node:
    """∂top/∂below, also where an entry at a label stands below, as in ∂L/∂s_y."""
    name = below
    while isinstance(name, Over):
        name = name.body.parts[0]
    assert isinstance(name, Ref)
    return put_in(below, name, Partial(top, name))


def times(*factors: Node) -> Node:
    """A product, without products inside."""
    flat: list[Node] = []
    marks: list[str] = []
    for factor in factors:
        inner = factor if isinstance(factor, Product) else Product((), (factor,))
        marks += ([""] if flat else []) + list(inner.marks)
        flat += inner.factors
    return Product(tuple(marks), tuple(flat)) if len(flat) > 1 else flat[0]


def over(number: Node) -> Node:
    """1 / number."""
    return Product(("/",), (Number("1"), number))


def letters_of(node: Node) -> set[str]:
    """All index letters of an expression, bound ones included."""
    bound = {index for part in node.all if isinstance(part, Over) for index in part.indices}
    return bound.union(*(part.free for part in node.all))


def turned(node: Node) -> Node:
    """The transpose, where two of them cancel."""
    return node.base if isinstance(node, Transposed) else Transposed(node)
