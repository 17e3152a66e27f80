"""From a text to statements: what is given, equations, and the words between them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .functions import ALIKE, ENTRYWISE
from .notation import outside, plain
from .parsing import LONGEST
from .spelling import under

_GIVEN = re.compile(
    r"(?i)\s*(?:>\s*)?(?:\*\*|\\text\w*\{)?(?:we (?:are|have|take)\s+)?"
    r"(given|let|consider|inputs?|parameters?|sizes? of arrays|shapes?|"
    r"(?:suppose|assume)(?: that)?(?=[^=]*(?:∈|\\in\b|:\s*\(|\bshape \()))\b(?:\*\*)?\s*:?\s*\}?"
)
_LEADING = re.compile(
    r"(?i)\s*(?:(?:so|hence|thus|then|therefore|where|with|since|because|let|suppose|define|as|for|step \d+|i\.e\.|"
    r"(?:given|note|recall|suppose|assume) that)(?!\w)[,:]?\s+(?!=)|[-*•]\s+(?=[^\s])|\(?[0-9a-z]{1,2}\)\s+|\d+\.\s+"
    r"|⇒|⟹|=>|∴|→|\\(?:implies|Rightarrow|therefore|Longrightarrow)\b)"
)
_SAID = re.compile(  # db = sum over n: db_c = ..., or db: db_c = ...
    r"\s*(?:(?:so|then|and|hence|thus|also)\s+)?"
    r"(?:\w+\s*=\s*(?:the\s+)?(?:sum|mean|average|product)\s+(?:over|of)\s[^=:]*|(\w+)):\s+(?(1)(?=\1\b|\1_))(?=[^=]*=)"
)
_EACH = r"(?:(?:element|entry|component|row)-?wise|(?:entry by entry|row by row))"
_TRAILING = re.compile(
    rf",?\s*{_EACH}?,?\s*\b(?:so|and|hence|thus|then|so that|or)\s*$|,?\s+{_EACH}\s*$"
    r"|(?:\s{2,}|,\s*|\s+\(|\s+\[)(?:by|since|because|using|as|from|for|with|see|note|here|the)\s[^=]*$"
    r"|,\s+(?:we|which|it|this)\s[^=]*$|\s+(?:be|is|denotes?)\s+(?:the|an?)\s[^=]*$"
    r"|\s+(?:since|because|by the|for all|for each|for every)\s.*$|\s*,?\s*(?:∀|\\forall).*$"
    r"|\s{2,}\(\d+(?:\.\d+)?\)\s*$|\s+\\tag\{[^{}]*\}|(?<![-+*/·⊙=(\s])\s{2,}\([a-z]{4,}(?:[ -][a-z]{2,})*\)\s*$"
)
_COMMENT = re.compile(r"(?:^|\s)#.*$|(?<!\\)%.*$|\s//\s.*$|\s--\s.*$|\s←.*$")
_EQUALS = re.compile(r"\\(?:equiv|coloneqq|triangleq|doteq|eqqcolon|(?:overset|stackrel)\{[^{}]*\}\{=\})|≡|≜|≝|:=")
_ONLY_IF = re.compile(
    r",?(?:\s|\\q?quad|&)+[(\[]?(?:\\(?:text|textrm|mbox|mathrm)\{\s*)?(?:for|if|when|where|whenever)\s*\}?\s+\$?"
    r"((?:[a-z]|\w+_\{?\w+\}?)\s*(?:[=≠<>≤≥]|!=|\\(?:neq?|[lg]eq?|[lg]t)\b)\s*[a-z0])\$?[)\]]?[\s.,;\\]*$"
)
_WORD = re.compile(
    r"\s*(?!(?:if|when|unless)\b)((?=\w*[aeiouyI])[A-Za-z][a-z'’-]+|[A-Z]{3,}|[aAI]|\(\d+\))([,:]?)\s+(?![=+*/·⊙^(_])"
)
_SAYS = re.compile(r"(?!.*\b(?:if|when|unless)\b)[\w\s,'’()-]*\b[a-z]{2,}[\w\s,'’()-]*:\s+(?=[^=:]*=)")  # for one w:
_COMMON = re.compile(
    r"(?i)(?:the|is|are|its|we|so|then|this|that|by|of|for|an?|from|have|get|has|in|on|to|with|using|it|be|as|and|or|our|"
    r"each|every|one|gives|first|second|note|both|also|which|while|now|but|here|next|write|set|put|more\w+|[a-z]+ly)\b"
)
_CONDITION = (
    r"(?:positive|negative|(?:non-?)?zero|(?:in)?active|visible|hidden|equal|different|distinct|\w+er|above|below)"
)
_ENDING = re.compile(
    rf"[,;]?\s+(?!.*\b{_CONDITION}\b)"
    r"\(?(?:(?:where|which|since|because)\s|(?:with|as|so|and|for|by|using|is|are|holds|follows|from)\s+"
    r"(?=[^\W\d]+\s+\w))[^=<>≤≥≠]*$"
)
_ANGLES = re.compile(r"(?:\\langle\b|(?<![\w\])}])\s*<(?=\S))([^<>,=]*),([^<>,=]*?)(?:\\rangle\b|(?<=\S)>)")
_BOX = re.compile(r"\\(?:boxed|fbox|mathbox|ensuremath|highlight)\s*\{(.*=.*)\}")
_ASIDE = re.compile(r"(?<==)([^=]*\S)\s+\((?!\W)(?:[a-z-]{3,},?\s+)+(?=[^\W\d]|\\)([^=,()]*=[^=]*)\)\s*$")
_THEN = r";|(?:⇒|⟹|=>|\\(?:implies|Rightarrow|Longrightarrow)\b|(?<=\S),?\s+(?:so|hence|thus|therefore)\s+)(?=[^=]*=)"
_WHERE = re.compile(r",?\s+(?:where|with)\s+(?=[^=]*=)")
_SENTENCES = re.compile(r"(?<=[\w$)\]}‖|])\.\s+(?=[A-Z][a-z]+[\s:,])")
_ONLY_GIVEN = re.compile(r"\s*\$?(?:[^\W\d]|\\)[^=]*?(?:∈|\\in\b|:\s*\()")


@dataclass(frozen=True)
class Statement:
    """A piece of a line: kind is "given", "equation", "words" or "too long"."""

    number: int
    kind: str
    text: str
    typed: str = ""  # the whole line


def _equals_outside(text: str) -> list[int]:
    """Where = stands outside brackets and subscripts."""
    return [n for n in outside(text, "=") if text[n - 1 : n] not in ("<", ">", "!", "≠")]


def _apart(text: str) -> str:
    r"""Equations with \quad between them, with ; between them."""
    found = ""
    for part in re.split(r"\\q?quad\b", text):
        two = "=" in found.rpartition(";")[2] and "=" in part.lstrip(" &,=")
        found += (";" if two and not part.lstrip(" &").startswith("=") else " " if found else "") + part
    return found


def _pieces(text: str) -> list[str]:
    """Several equations of a line: at `where`, `;`, and commas between equations."""
    found: list[str] = []
    text = _ASIDE.sub(r"\1 where \2", text)
    for part in reversed(_WHERE.split(text)):  # what a name is comes before the line that uses it
        two = "=" in part.partition(" and ")[0]  # dx = 2 x and dy = 3
        for piece in re.split(rf"{_THEN}|\s+and\s+(?=[^=]*=)" if two else _THEN, part):
            start = 0
            for cut in outside(piece, ","):
                if _equals_outside(piece[start:cut]) and _equals_outside(piece[cut + 1 :]):
                    found.append(piece[start:cut])
                    start = cut + 1
            found.append(piece[start:])
    return [piece for piece in found if piece.strip(" .,")]


def _stripped(text: str) -> str:
    """Without the words around an equation."""
    text = _BOX.sub(r" \1 ", _COMMENT.sub("", text))
    if not _equals_outside(text) and (inside := re.fullmatch(r"\s*\((.*=.*)\)[.,;]?\s*", text)):
        text = inside[1]
    text = re.sub(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\{[^{}]*\})?|\\\[|\\\]|\$\$", " ", text)
    while match := _LEADING.match(text):
        text = text[match.end() :]
    text = _TRAILING.sub("", text)
    return text.strip().rstrip(".,;:").strip().rstrip("\\").strip()


def _open(text: str) -> bool:
    """Whether the expression goes on in the next line."""
    bare = text.replace("&", " ").replace("\\quad", "").rstrip()
    ends = re.search(r"(?:[-+*/·⊙(\[{,=]|\\cdot|\\odot|\\left\(|\\times)$", bare)
    plain = text.replace("\\{", "").replace("\\}", "")
    return bool(ends) or sum(map(plain.count, "([{")) > sum(map(plain.count, ")]}"))


_FENCE = re.compile(r"#{1,6}\s|```|~~~|---+$|\\(begin|end)\{[^{}]*\}(\{[^{}]*\})?$")
_DOLLARS = re.compile(r"(?<!\$)\$([^$]+)\$(?!\$)")


def statements(text: str) -> list[Statement]:
    """The statements of a text, each with the number of its line, counted from 1."""
    splitter = _Splitter()
    for number, line in enumerate(text.splitlines(), 1):
        for sentence in _SENTENCES.split(line, 20) if len(line) <= LONGEST else [line]:
            splitter.line(number, sentence)
    splitter.flush()
    lines = text.splitlines()
    return [replace(each, typed=lines[each.number - 1]) for each in splitter.found]


def other_ways(text: str, typed: str, is_name: Callable[[str], bool]) -> Iterator[str]:
    """An equation where its "for i ≠ j" holds alone, and without its words."""
    if condition := _ONLY_IF.search(typed):
        bare = text.replace(condition[0].rstrip(" .,;\\"), "")
        yield "= " * bare.lstrip(" &").startswith("=") + under(condition[1], bare)
    said = _SAYS.match(text)
    begin, common = said.end() if said else 0, bool(said)
    while (word := _WORD.match(text, begin)) and (not is_name(word[1]) or _COMMON.match(text, word.end())):
        begin, common = word.end(), common or bool(_COMMON.fullmatch(word[1])) or bool(word[2])
    rest = _ENDING.sub("", text[begin if common else 0 :])
    bare = plain(rest)
    if all(word in ALIKE.keys() | ENTRYWISE.keys() for word in re.findall(r"[^\W\d_]+", bare)):
        rest = re.sub(r"([^\W\d_]+)('*)", r"\1\2(t)", bare)  # σ' = σ (1 - σ), or Φ' = φ
    if rest != text:
        yield rest


def _given(bare: str) -> str | None:
    """What a line gives; None if it is no such line."""
    word = _GIVEN.match(bare)
    shapes = "=" not in bare or re.search(r":|∈|\\in| in |\b[^\W\d]\w*\s*=\s*\(\w+(?:,\s*\w*)*\)", bare)
    if word and shapes and not re.match(r"let\s+\S+\s*=", bare, re.I):
        return bare[word.end() :].strip()
    return bare if _ONLY_GIVEN.match(bare) and not _equals_outside(bare) else None


class _Splitter:
    """Goes through a text line by line. waiting: an equation that the next line may go on with, and its number."""

    def __init__(self) -> None:
        self.found: list[Statement] = []
        self.waiting: tuple[int, str] | None = None
        self.in_list = False

    def line(self, number: int, line: str) -> None:
        if len(line) > LONGEST:
            self._whole(number, "too long", line[:80])
            return
        bare = self._bare(line)
        given = _given(bare)
        if bare == "$$" and self.waiting:
            return
        if not bare or bare in ("$$", "\\[", "\\]") or _FENCE.match(bare):
            self.flush()
        elif given is not None:
            self._whole(number, "given", given)
        elif _DOLLARS.search(bare):
            self._between_dollars(number, bare)
        else:
            for part in re.split(r"\\\\(?:\[[^\]]*\])?", bare):
                self._part(number, part)

    def flush(self) -> None:
        """No line goes on with what waits."""
        if self.waiting is None:
            return
        number, held = self.waiting
        self.waiting = None
        for piece in map(_stripped, _pieces(_apart(re.sub(r"\\[,;:!>]", " ", held)))):
            if piece.strip("= "):
                self.found.append(Statement(number, "equation" if _equals_outside(piece) else "words", piece))

    def _whole(self, number: int, kind: str, text: str) -> None:
        self.flush()
        self.found.append(Statement(number, kind, text))

    def _bare(self, line: str) -> str:
        """The line without the marks of Markdown."""
        line = re.sub(r"\\(?:text|textrm|mathrm|mbox)\{\s*(and|where|with)\s*\}", r" \1 ", line)
        line = _ANGLES.sub(r" ⟨\1,\2⟩", line)
        line = re.sub(r"[ \t]{4,}", "   ", re.sub(r"^\s*>\s?", "", _EQUALS.sub("=", line)))
        bare = re.sub(r"\*\*([A-Za-z :]+)\*\*|\\[\[\]]|\$\$|`(?!``)", r" \1 ", line).strip()
        bullet = re.match(r"[-*•]\s+", bare)
        if bullet and (self.waiting is None or self.in_list):
            bare = bare[bullet.end() :].strip()
        self.in_list = bool(bullet)
        return bare

    def _between_dollars(self, number: int, bare: str) -> None:
        """Words with mathematics in them: each equation between dollars; the whole line if = stands outside."""
        self.flush()
        inside = [bare.replace("$", " ")] if "=" in _DOLLARS.sub(" ", bare) else _DOLLARS.findall(bare)
        mathematics = [part for part in inside if _equals_outside(part)]
        for part in inside if mathematics else ():
            if _ONLY_GIVEN.match(part) and not _equals_outside(part):
                self.found.append(Statement(number, "given", part))
        if not mathematics:
            self.found.append(Statement(number, "words", bare))
        for part in mathematics:
            self.waiting = (number, part)
            self.flush()

    def _part(self, number: int, part: str) -> None:
        """What stands between two signs \\\\: it goes on with what waits, or waits itself."""
        part = part[said.end() :] if (said := _SAID.match(part)) else part
        body = _COMMENT.sub("", part).replace("&", " ").strip()
        if body and self.waiting is not None and self._goes_on(self.waiting[1], body):
            self.waiting = (self.waiting[0], _COMMENT.sub("", self.waiting[1]).rstrip() + " " + body)
        elif body:
            self.flush()
            self.waiting = (number, part)

    def _goes_on(self, held: str, body: str) -> bool:
        if len(held) >= LONGEST:
            return False
        words = r"(?!\s*[A-Za-z]{2,}\s+[A-Za-z]{2,}\s+[A-Za-z]{2,}\b(?!_))"
        begins = re.match(rf"(?:\\quad|\\qquad|\\;|\s)*[-+*/·⊙]{words}", body)
        item = re.match(r"[-*]\s+\S+.*=", body)
        bare = not _equals_outside(held) and not re.search(r"(?<!\\)\b[A-Za-z]{2,}[ ,]+[A-Za-z]{2,}|[.:;]\s*$", held)
        if bare and _stripped(body).startswith("="):
            return True  # ∂L/∂z_j, and below it = ...
        return _open(_stripped(held)) or bool(begins and not item and not _equals_outside(body))
