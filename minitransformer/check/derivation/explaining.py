"""Sentences about what is wrong with the indices of an equation."""

from .shifting import letters
from .tree import Delta, Entry, Node, Over, Partial, Product, Ref, Terms


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def count(index: str, node: Node) -> int:
    """How often an index stands in a product."""
    held = [part.indices for part in node.all if isinstance(part, Ref | Entry)]
    held += [(part.left, part.right) for part in node.all if isinstance(part, Delta)]
    return sum(index in letters(each) for indices in held for each in indices)


def summed(node: Node, kept: set[str]) -> Node:
    """The expression with a sum over each index that stands twice in a product: the summation convention."""
    if isinstance(node, Terms):
        return node.mapped(lambda term: summed(term, kept))
    if isinstance(node, Product):  # P_ij (dP_ij - P_il dP_il): first in the brackets
        inner = list(node.factors)
        for n, factor in enumerate(inner):
            if isinstance(factor, Terms):
                inner[n] = summed(factor, kept.union(*(each.free for each in node.factors if each is not factor)))
        node = Product(node.marks, tuple(inner))
    repeated = tuple(sorted(index for index in node.free - kept if count(index, node) > 1))
    return Over("sum", repeated, node) if repeated else node


def bound_and_free(left: Node, right: Node) -> str:
    """Which index of the left side a sum on the right binds, so that it means two things in one line."""
    if isinstance(right, Over) and (both := sorted(set(right.indices) & left.free)):
        return f"{both[0]} is an index of the left side and is summed on the right; sum over another letter."
    return next(filter(None, (bound_and_free(left, part) for part in right.parts)), "")


def free_alone(left: Node, right: Node, extra: list[str], missing: list[str]) -> str:
    """Which index is free on one side alone."""
    told = []
    if extra:
        verb, it = ("is", "it") if len(extra) == 1 else ("are", "them")
        told.append(f"The index {_and(extra)} {verb} free on the right alone: no sum runs over {it}.")
        thrice = [i for i in extra if isinstance(right, Product | Partial) and count(i, right) > 2]
        if thrice:
            told.append(f"{thrice[0]} stands there {count(thrice[0], right)} times.")
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        told.append(f"The index {_and(missing)} {verb} free on the left alone, in {left}.")
    if not told:
        told.append(f"An index stands twice in {left}; on the left each stands once.")
    return " ".join(told)
