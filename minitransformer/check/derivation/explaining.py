"""Sentences about what is wrong with the indices of an equation."""

from .shifting import letters
from .tree import Entry, Node, Over, Partial, Product, Ref


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def count(index: str, node: Node) -> int:
    """How often an index stands in a product."""
    held = [part.indices for part in node.all if isinstance(part, Ref | Entry)]
    return sum(index in letters(each) for indices in held for each in indices)


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
