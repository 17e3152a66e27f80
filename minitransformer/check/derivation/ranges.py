"""The range of a sum, and the axis along which a function of arrays runs."""

import re
from collections.abc import Sequence

from . import tree
from .faults import Unreadable
from .functions import OVER
from .names import Names
from .parsing import Relation
from .shifting import LETTER as INDEX
from .shifting import computed, indices_of


def axis_of(inside: Sequence[Relation], function: str = "") -> tuple[Sequence[Relation], str]:
    """The arguments without axis=0 and keepdims=True, and the axis. function: the one called; "" for a method's."""
    found = ""
    kept = []
    for n, each in enumerate(inside):
        word = each.left.single.name if each.sign == "=" and each.left.single else ""
        alone = not word and (not function or (n == 1 and function in OVER - {"max", "min"}))
        if word in ("keepdims", "keepdim", "unbiased", "ddof", "correction"):
            continue
        along = each.left if alone else each.right if word in ("axis", "dim") else None
        whole = along.whole if along else ""
        if whole:
            found = whole
        else:
            kept.append(each)
    return kept, found


def range_of(content: str, upper: str, known: Names) -> tuple[tuple[str, ...], tuple[tree.Node, ...], str]:
    """The indices of a sum, its conditions, and the size up to which it goes, if it names one. Raises Unreadable."""
    content = content.replace("\\", "")
    conditions: list[tree.Node] = []
    lower = ""
    if first := re.match(rf"((?:{INDEX},?)+)(?:=([\w+-]+))?$", content):
        letters, lower = indices_of(first[1]), first[2] or ""
        if lower not in ("", "0", "1") or (lower == "1" and known.origin == 0):
            conditions += [tree.Compare("≥", tree.Place(letter), tree.Place(lower)) for letter in letters]
    elif match := re.fullmatch(rf"({INDEX})([≠≤≥<>])({INDEX})", content):
        letters = (match[1],)
        bound = tree.Ref(match[3]) if match[3] in known.labels else tree.Place(match[3])
        conditions.append(tree.Compare(match[2], tree.Place(match[1]), bound))
    else:
        raise Unreadable(f"The range {content!r} of a sum cannot be read; write sum_j, sum_{{i,j}} or sum_{{j≠i}}.")
    if len(set(letters)) < len(letters):
        raise Unreadable(f"The sum names an index twice: {content}.")
    if condition := _up_to(letters[-1], upper, lower == "0", known):
        return letters, (*conditions, condition), ""
    return letters, tuple(conditions), upper


def _up_to(index: str, upper: str, from_zero: bool, known: Names) -> tree.Node | None:
    """The condition j ≤ n-1 of sum_{j=1}^{n-1}; None if a sum goes over all that there is."""
    if half := re.fullmatch(rf"({INDEX})/(\d)", upper):
        return tree.Compare("≤", tree.Place(half[2] + index), tree.Place(half[1]))
    whole = upper in ("", "…") or known.rank(upper) == 0 or upper.isdigit()
    if whole or (from_zero and upper.endswith("-1") and known.rank(upper[:-2]) == 0):
        return None
    return tree.Compare("≤", tree.Place(index), tree.Place(upper)) if len(upper) == 1 or computed(upper) else None
