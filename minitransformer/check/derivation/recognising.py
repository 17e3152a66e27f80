"""Which name begins at a letter: the longest that is known; and which labels stand in a subscript."""

import re
from collections.abc import Sequence

from .names import TOTAL, Names
from .parsing import LETTER, After
from .tree import Ref


def found(known: Names, name: str, after: Sequence[After]) -> tuple[str, Sequence[After]] | None:
    """The longest known name that begins here, and what follows it."""
    if after and after[0].kind == "_" and "," in after[0].text:  # W_{q,ij}, where W_q is a name
        head, _, rest = after[0].text.partition(",")
        if known.rank(name) is None and known.rank(f"{name}_{head}"):
            after = [After("_", head), After("_", rest), *after[1:]]
    labels = []
    for part in after[:3]:
        if part.label is None:
            break
        labels.append(part.label)
    if len(labels) > 1 and after[0].kind == "_":
        squared, indexed = (known.rank(name + label) is not None for label in (labels[1], labels[0]))
        if squared and not indexed:
            return name + labels[1], [after[0], *after[2:]]  # σ_i^2, where σ^2 is a name
    for n in range(len(labels), -1, -1):
        full = name + "".join(labels[:n])
        if known.rank(full) is not None:
            if n == len(after) == 0 and known.rank(full + TOTAL) is not None:
                return full + TOTAL, []
            has_index = n < len(after) and after[n].kind == "_"
            if has_index and known.only_size(full):
                break
            return full, after[n:]
    capital = row_of(name)
    if capital and any(re.fullmatch(r"_[^\W\d]['\w]*", label) for label in labels):
        again = found(known, capital, after)
        return again if again and known.rank(again[0]) and again[1] else None
    return None


def row_of(name: str) -> str:
    """The Q of q_i, and the dQ of dq_i: papers write the rows and the entries of an array in small letters."""
    return name[:-1] + name[-1].upper() if re.fullmatch("d?[a-z]", name) else ""


def segments(known: Names, name: str, after: Sequence[After]) -> list[str] | None:
    """Letters written without spaces as known names: QK is Q K."""
    letters = re.findall(LETTER, name)
    if len(letters) < 2 or "".join(letters) != name or len(letters) > 12:
        return None
    ways: list[list[str]] = []

    def go(n: int, parts: list[str]) -> None:
        if n == len(letters):
            ways.append(parts)
            return
        for m in range(n + 1, min(n + 6, len(letters)) + 1):
            part = "".join(letters[n:m])
            if len(ways) < 20 and found(known, part, after if m == len(letters) else []) is not None:
                go(m, [*parts, part])

    go(0, [])
    ways = [way for way in ways if len(way) > 1]
    return min(ways, key=len) if ways else None


def labelled(known: Names, text: str, bound: Sequence[str]) -> tuple[str, dict[str, Ref]]:
    """A subscript with a letter in place of each label, such as the y_i of p_{i y_i}; and the labels."""
    labels: dict[str, Ref] = {}
    for name in known.labels:
        rank = known.rank(name)
        word = name if len(name) == 1 else rf"(?<![A-Za-z]){name}(?![a-z])"
        for found_ in re.findall(word + (r"_\{?([a-z])\}?" if rank else "()"), text):
            letter = next(x for x in "abcdefgh" if x not in text and x not in (*bound, *known.labels))
            labels[letter] = Ref(name, tuple(found_))
            text = re.sub(rf"{name}" + (rf"_\{{?{found_}\}}?" if rank else ""), f",{letter},", text, count=1)
    return re.sub(",,+", ",", text).strip(","), labels
