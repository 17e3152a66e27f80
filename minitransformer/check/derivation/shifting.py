"""Indices that are computed: i+1, t-k, 2i-1. Entries outside an array are 0, as x_0 and h_0 are in books.

An index is a string: a letter, a number, or a sum of such terms. Positions count from 1; from 0 in a text that has
`sum_{i=0}`, or x_{2i+1} and no x_{2i-1}, or the words "indices from 0".
"""

import functools
import re

from .faults import Unreadable

LETTER = r"[^\W\d_][\u0300-\u036f]*'*"
_TERM = re.compile(rf"([+-]?)(\d*)[*·]?({LETTER})?")
_INDEX = re.compile(rf"{LETTER}|\d+")


@functools.cache
def terms(index: str) -> tuple[tuple[tuple[str, int], ...], int]:
    """The letters of an index, each with its factor, and the number that is added. Raises Unreadable."""
    factors: dict[str, int] = {}
    constant, at = 0, 0
    while at < len(index):
        match = _TERM.match(index, at)
        if not match or match.end() == at or not (match[2] or match[3]) or (at and not match[1]) or len(match[2]) > 4:
            told = "x_{i+1}, x_{t-k}, x_{2i,j}, or x_{s·t+j} where a number s is given"
            raise Unreadable(f"The index {index!r} cannot be read; write it like {told}.")
        times = (-1 if match[1] == "-" else 1) * int(match[2] or 1)
        if match[3]:
            factors[match[3]] = factors.get(match[3], 0) + times
        else:
            constant += times
        at = match.end()
    return tuple((letter, times) for letter, times in factors.items() if times), constant


def letters(index: str) -> set[str]:
    """The letters of an index."""
    return {index} if len(index) == 1 and index.isalpha() else {letter for letter, _ in terms(index)[0]}


def computed(index: str) -> bool:
    """Whether an index is more than a letter or a number."""
    return len(index) > 1 and terms(index) != (((index, 1),), 0) and not index.isdigit()


def index_of(factors: dict[str, int], constant: int) -> str:
    """The index as one writes it."""
    text = ""
    for letter, times in sorted(factors.items(), key=lambda pair: pair[1] < 0):
        if times:
            size = "" if abs(times) == 1 else str(abs(times))
            text += ("-" if times < 0 else "+" if text else "") + size + letter
    return text + (f"{constant:+d}" if constant and text else str(constant) if not text else "")


def with_letter(index: str, old: str, new: str) -> str:
    """The index with another index in place of a letter."""
    if index == old:
        return new
    if not computed(index) or old not in letters(index):
        return index
    (factors, constant), (inside, more) = terms(index), terms(new)
    total = dict(factors)
    times = total.pop(old)
    for letter, inner in inside:
        total[letter] = total.get(letter, 0) + times * inner
    return index_of(total, constant + times * more)


def others(index: str) -> list[str]:
    """Indices with which one confuses this one: another shift, the sign of a letter, an odd place for an even one."""
    factors, constant = terms(index)
    found = [index_of(dict(factors), constant + more) for more in (1, -1, 2, -2)]
    found.insert(0, index_of(dict(factors), -constant))
    if len(factors) > 1:
        for letter, times in factors:
            found.append(index_of({**dict(factors), letter: -times}, constant))
            found.append(index_of({**dict(factors), letter: -times}, -constant))
    return list(dict.fromkeys(each for each in found if each != index and not each.lstrip("-").isdigit()))


def indices_of(content: str, axes: int = 9) -> tuple[str, ...]:
    """The indices of a subscript; axes: how many there can be, so that x_{2i} is one index of a vector."""
    content = re.sub(r"\s", "", content)
    pieces = re.split("[,;]", content)
    found: list[str] = []
    for piece in pieces:
        tokens = _INDEX.findall(piece)
        product = re.fullmatch(rf"\d+[*·]?{LETTER}", piece) and (len(pieces) > 1 or axes == 1)
        if product or re.search("[+-]", piece):
            terms(piece)
            found.append(piece)
        elif "".join(tokens) == piece:
            found += tokens
        else:
            raise Unreadable(f"The subscript {content!r} cannot be read; write letters: x_ij, x_{{i,j}}, x_{{i+1,j}}.")
    return tuple(found)


def origin(text: str) -> int:
    """From what number a text counts."""
    text = re.sub(r"\s", "", text)
    pairs = re.search(r"_\{[^{}]*2[^\W\d]\+1\}", text) and not re.search(r"_\{[^{}]*2[^\W\d]-1\}", text)
    if re.search(r"indicesfrom[01]", text):
        return int(text[text.index("indicesfrom") + 11])
    return 0 if pairs or re.search(rf"(?:sum|∑|prod|Σ)_\{{{LETTER}=0\}}", text) else 1
