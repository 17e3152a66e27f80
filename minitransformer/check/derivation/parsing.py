"""From a line of text to lark's tree, by `grammar.lark`, and what one asks such a tree."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from .faults import Unreadable
from .notation import plain

DEEPEST, LONGEST = 40, 2000  # brackets in brackets; characters
EXAMPLES = "`S_ij = sum_c Q_ic K_jc / sqrt(d)` or `dQ = dS K / sqrt(d)`"
LETTER = r"[^\W\d_][\u0300-\u036f]*"
_EXPECTED = {
    "NAME": "a name", "NUMBER": "a number", "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]",
    "LBRACE": "{", "RBRACE": "}",
    "EQUAL": "=", "SIGN": "+ or -", "TIMES": "* or /", "SUBSCRIPT": "an index", "$END": "the end", "MARK": "∂",
}  # fmt: skip


@functools.cache
def parser() -> Any:
    """Lark's parser of grammar.lark. Raises ModuleNotFoundError, which names the extra."""
    try:
        import lark
    except ImportError:
        raise ModuleNotFoundError(
            'a derivation needs the library lark; install it: pip install "minitransformer[derivations]"'
        ) from None
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, start="line", parser="lalr", maybe_placeholders=False)


def parsed(text: str) -> Any:
    """The parts between the signs `=` of a line, as lark's trees. Raises Unreadable, which names the place."""
    grammar = parser()
    import lark

    if len(text) > LONGEST:
        raise Unreadable(f"The line has {len(text)} characters; {LONGEST} are the limit. Define a part of it before.")
    deep = deepest = 0
    for letter in text:
        deep += (letter in "([{") - (letter in ")]}")
        deepest = max(deep, deepest)
    if deepest > DEEPEST:
        raise Unreadable(f"Brackets are {deepest} deep; {DEEPEST} are the limit. Define a part of it before.")
    try:
        tree = grammar.parse(text)
    except lark.exceptions.UnexpectedInput as error:
        raise Unreadable(_place(text, error)) from None
    return tree.children


def _place(text: str, error: Any) -> str:
    """Where a line cannot be read, what was expected there, and two examples."""
    place = getattr(error, "pos_in_stream", None)
    ended = getattr(getattr(error, "token", None), "type", "") == "$END"
    at = len(text) if ended or place is None or place < 0 else place
    wanted = {*(getattr(error, "allowed", None) or ()), *(getattr(error, "expected", None) or ())}
    if at >= len(text.rstrip()):
        found = "the line ends too early"
    elif hasattr(error, "allowed"):
        found = f"stands {text[at]!r}, which is not part of the notation"
    else:
        found = f"{text[at:].split()[0][:12]!r} cannot stand"
    before = text[max(0, at - 20) : at].strip()
    where = f"After {before!r} " if before else "Here "
    expected = [told for name, told in _EXPECTED.items() if name in wanted]
    more = f"; expected: {', '.join(expected)}" if expected else ""
    return f"{where}{found}{more}. Write it like {EXAMPLES}."


def sides(text: str) -> list[Any]:
    """The sides of an equation as lark's trees; the first is None if the line begins with =."""
    text = plain(text)
    tight = re.search(r"/\s*(\d+)([^\W\d_ᵀ]\w*)", text)
    if tight:
        below = tight[1] + tight[2]
        raise Unreadable(f"/{below} has two readings; write /({below}), or a space: /{tight[1]} {tight[2]}.")
    parts = parsed(text)
    return [None, *parts] if text.lstrip().startswith("=") else list(parts)


def inner(subscript: str) -> str:
    """What stands in _{...} or _(...) or behind _."""
    text = subscript[1:]
    return (text[1:-1] if text[:1] in "{(" else text).replace(" ", "")


def single_name(side: Any) -> tuple[str, list[Any]] | None:
    """The name and what follows it, of a side that is one name such as S_ij."""
    if len(side.children) != 1 or len(side.children[0].children) != 1:
        return None
    atom, *after = side.children[0].children[0].children
    if atom.children and getattr(atom.children[0], "type", "") == "NAME" and len(atom.children) == 1:
        return str(atom.children[0]), after
    return None


def exponent_text(after: Any) -> str | None:
    """The exponent as a label: the Q of W^Q, the (1) of W^{(1)}."""
    if after.children and getattr(after.children[0], "data", "") == "exponent":
        text = "".join(str(token) for token in after.scan_values(lambda token: True))
        return text
    return None


def kind(after: Any) -> str:
    """What follows a name: SUBSCRIPT, TRANSPOSED, PRIME or ^."""
    return getattr(after.children[0], "type", "^")


def label_of(after: Any) -> str | None:
    """What a subscript or an exponent adds to a name, if it is part of the name."""
    if kind(after) == "SUBSCRIPT":
        return "_" + inner(str(after.children[0]))
    if kind(after) == "PRIME":
        return "'"
    text = exponent_text(after)
    return None if text is None else "^" + text


def is_mark(factor: Any, mark: str = "∂") -> bool:
    """Whether a factor begins with this mark."""
    first = factor.children[0].children[0]
    return getattr(first, "type", "") == "MARK" and str(first) == mark


def items_of(product: Any) -> list[tuple[str, str, Any]]:
    """The factors of a product, each with the mark and the sign before it."""
    items: list[tuple[str, str, Any]] = []
    mark = sign = ""
    for part in product.children:
        if getattr(part, "type", "") == "TIMES":
            mark = str(part)
        elif getattr(part, "type", "") == "SIGN":
            sign = str(part)
        else:
            items.append((mark, sign, part))
            mark = sign = ""
    return items


def head(factor: Any) -> str:
    """The name that a factor begins with, or nothing."""
    first = factor.children[0].children[0]
    return str(first) if getattr(first, "type", "") == "NAME" else ""


class Factor:
    """A factor of lark's tree that is made here: the X of dX."""

    class _Atom:
        def __init__(self, token: Any) -> None:
            self.children = [token]

    def __init__(self, name: str, after: list[Any]) -> None:
        import lark

        self.children: list[Any] = [self._Atom(lark.Token("NAME", name)), *after]
