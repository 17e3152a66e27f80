"""From a line of text to its factors with their marks, by `grammar.lark`, before anyone asks what the names mean."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple

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


class Expression(NamedTuple):
    """Products, each with the sign before it, "" if there is none."""

    terms: list[tuple[str, list[Item]]]

    @property
    def single(self) -> Factor | None:
        """The name and what follows it, of a side such as S_ij."""
        ((sign, items), *more) = self.terms
        return items[0].factor if not sign and not more and len(items) == 1 and items[0].factor.name else None

    @property
    def whole(self) -> str:
        """The digits of a side that is a whole number, with its sign; "" for any other."""
        ((sign, items), *more) = self.terms
        alone = items[0].factor if len(items) == 1 and not more else None
        return sign.replace("+", "") + alone.number if alone and alone.number.isdigit() and not alone.after else ""


class Item(NamedTuple):
    """A factor of a product, with the mark and the sign before it."""

    mark: str
    sign: str
    factor: Factor


class Relation(NamedTuple):
    """Two sides and the sign between them, or one side alone."""

    left: Expression
    sign: str = ""
    right: Expression | None = None


class After(NamedTuple):
    """What follows a name, a number or a bracket. kind: "_", "^", "ᵀ", "'" or "."; text: the i,j of _{i,j}."""

    kind: str
    text: str = ""
    exponent: Expression | None = None
    inside: tuple[Relation, ...] = ()  # the axis=0 of x.sum(axis=0)

    @property
    def label(self) -> str | None:
        """What it adds to a name if it is part of the name: the _Q of W_Q, the ^1 of W^{(1)}."""
        return None if self.kind in "ᵀ." else self.kind + self.text


class Factor(NamedTuple):
    """A name, a number, a mark (∂ or ∇) or a bracket, and what follows it."""

    name: str = ""
    number: str = ""
    mark: str = ""
    inside: tuple[Relation, ...] = ()
    after: tuple[After, ...] = ()

    def product(self) -> list[Item]:
        """The factors in a bracket that holds one product, which has no sign."""
        if len(self.inside) != 1 or self.after:
            return []
        (relation,) = self.inside
        ((sign, items), *more) = relation.left.terms
        return items if not (relation.sign or sign or more) else []


def _text(parsed: Any) -> str:
    """All letters of what is parsed."""
    return parsed if isinstance(parsed, str) else "".join(map(_text, parsed or ()))


class _Builder:
    """What lark makes of each rule of the grammar, from its parts."""

    def expression(self, parts: list[Any]) -> Expression:
        return Expression([part if isinstance(part, tuple) else ("", part) for part in parts])

    def signed(self, parts: list[Any]) -> tuple[str, list[Item]]:
        return str(parts[0]), parts[1]

    def product(self, parts: list[Any]) -> list[Item]:
        return [Item("", "", parts[0]), *parts[1:]]

    def item(self, parts: list[Any]) -> Item:
        *signs, factor = parts
        mark, sign = [*map(str, signs), "", ""][:2]
        return Item(mark, sign, factor)

    def factor(self, parts: list[Any]) -> Factor:
        return parts[0]._replace(after=tuple(parts[1:]))

    def atom(self, parts: list[Any]) -> Factor:
        (part,) = parts
        if isinstance(part, tuple):
            return Factor(inside=part)
        named: dict[str, Any] = {part.type.lower(): str(part)}
        return Factor(**named)

    def inside(self, relations: list[Relation]) -> tuple[Relation, ...]:
        return tuple(relations)

    def relation(self, parts: list[Any]) -> Relation:
        return Relation(*parts)

    def compare(self, parts: list[Any]) -> str:
        return str(parts[0])

    def after(self, parts: list[Any]) -> After:
        part, *inside = parts
        if isinstance(part, Expression):
            return After("^", _text(part), part)
        if part.type == "METHOD":
            return After(".", part[1:], inside=inside[0] if inside else ())
        if part.type == "SUBSCRIPT":
            text = part[1:]
            return After("_", (text[1:-1] if text[:1] in "{(" else text).replace(" ", ""))
        return After(str(part))

    def exponent(self, parts: list[Any]) -> Expression:
        if isinstance(parts[-1], Expression):
            return parts[-1]
        sign = str(parts[0]) if len(parts) > 1 else ""
        return Expression([(sign, [Item("", "", self.atom(parts[-1:]))])])


@functools.cache
def parser() -> Any:
    """Lark's parser of grammar.lark. Raises ModuleNotFoundError, which names the extra."""
    try:
        import lark
    except ImportError:
        told = 'a derivation needs the library lark; install it: pip install "minitransformer[derivations]"'
        raise ModuleNotFoundError(told) from None
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, start="line", parser="lalr", maybe_placeholders=False, transformer=_Builder())


def parsed(text: str) -> list[Expression]:
    """The parts between the signs `=` of a line. Raises Unreadable, which names the place."""
    grammar = parser()
    import lark

    if len(text) > LONGEST:
        raise Unreadable(f"The line has {len(text)} characters; {LONGEST} are the limit. Define a part of it before.")
    deepest = max(itertools.accumulate((letter in "([{") - (letter in ")]}") for letter in text), default=0)
    if deepest > DEEPEST:
        raise Unreadable(f"Brackets are {deepest} deep; {DEEPEST} are the limit. Define a part of it before.")
    try:
        found: list[Expression] = grammar.parse(text).children
    except lark.exceptions.UnexpectedInput as error:
        raise Unreadable(_place(text, error)) from None
    return found


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
    """The sides of an equation; the first is None if the line begins with =."""
    text = plain(text)
    tight = re.search(r"/\s*(\d+)([^\W\d_ᵀ]\w*)", text)
    if tight:
        below = tight[1] + tight[2]
        raise Unreadable(f"/{below} has two readings; write /({below}), or a space: /{tight[1]} {tight[2]}.")
    parts = parsed(text)
    return [None, *parts] if text.lstrip().startswith("=") else list(parts)
