"""Over what a sum runs: sum_j, sum_{i,j}, sum_{j≠i}, sum_{j=1}^{n-1}."""

import re

from .faults import Unreadable
from .recognising import Known
from .shifting import LETTER, computed, indices_of
from .tree import Compare, Node, Place


def range_of(content: str, upper: str, known: Known) -> tuple[tuple[str, ...], tuple[Node, ...], str]:
    """The indices of a sum, its conditions, and the size up to which it goes, if it names one. Raises Unreadable."""
    content = content.replace("\\", "")
    conditions: list[Node] = []
    lower = ""
    if first := re.match(rf"((?:{LETTER},?)+)(?:=([\w+-]+))?$", content):
        letters, lower = indices_of(first[1]), first[2] or ""
        if lower not in ("", "0", "1") or (lower == "1" and known.origin == 0):
            conditions += [Compare("≥", Place(letter), Place(lower)) for letter in letters]
    elif match := re.fullmatch(rf"({LETTER})([≠≤≥<>])({LETTER})", content):
        letters = (match[1],)
        conditions.append(Compare(match[2], Place(match[1]), Place(match[3])))
    else:
        raise Unreadable(f"The range {content!r} of a sum cannot be read; write sum_j, sum_{{i,j}} or sum_{{j≠i}}.")
    if len(set(letters)) < len(letters):
        raise Unreadable(f"The sum names an index twice: {content}.")
    if condition := _up_to(letters[-1], upper, lower == "0", known):
        return letters, (*conditions, condition), ""
    return letters, tuple(conditions), upper


def _up_to(index: str, upper: str, from_zero: bool, known: Known) -> Node | None:
    """The condition j ≤ n-1 of sum_{j=1}^{n-1}; None if a sum goes over all that there is."""
    if half := re.fullmatch(rf"({LETTER})/(\d)", upper):
        return Compare("≤", Place(half[2] + index), Place(half[1]))
    whole = upper in ("", "…") or known.rank(upper) == 0 or upper.isdigit()
    if whole or (from_zero and upper.endswith("-1") and known.rank(upper[:-2]) == 0):
        return None
    return Compare("≤", Place(index), Place(upper)) if len(upper) == 1 or computed(upper) else None
