"""What a text writes in several lines or in words, written in one line of the notation before the lines are read."""

import functools
import re
from collections.abc import Sequence

_CASES = re.compile(r"\\begin\{[dr]?cases\*?\}(.*?)\\end\{[dr]?cases\*?\}", re.DOTALL)
_WORD = r"(?:\\(?:text|textrm|mbox|mathrm)\{\s*)?\b(?:if|for|when|where|otherwise|else)\b:?\s*\}?"
_LONGEST = 200  # characters of a line with an if in it
_IN_ONE = re.compile(rf"(?<![:<>])=\s*([^=]+?),?\s*{_WORD}\s*(.+?)[,;]?\s+(?:else|otherwise:?)\s+([^=]+?)\s*$")
_COMPARED = r"(?:=|≠|!=|<|>|≤|≥|\\neq?\b|\\leq?\b|\\geq?\b)"
_CONDITION = re.compile(
    rf"(?i)^(\s*)(?:if|for|case|when)\s+([^:,]*?[^:=,]\s*{_COMPARED}\s*[^:=,]+)[:,]\s*(?!\.\.|…|\\[lc]?dots)(?:then\s+)?(?=[^=\n]*=)"
)
_MATRIX = re.compile(r"\\begin\{[pbvB]?matrix\}(.*?)\\end\{[pbvB]?matrix\}", re.DOTALL)
_EINSUM = re.compile(r"(?m)^(\s*)(\w+)\s*=\s*(?:\w+\.)?einsum\(\s*['\"]([a-z, ]+)->\s*([a-z]+)\s*['\"]\s*,([\w, .]+)\)")
_SUPER = r"(?:_\{?(\w)\}?)?\^(?:\{\(LETTER\)\}|\(LETTER\))(?:_\{?(\w)\}?)?"


def spelled(text: str) -> str:
    r"""The text without cases, matrices written out, einsum and examples counted above, x^{(i)}; with as many lines."""
    text = _CASES.sub(lambda m: _sum_of(_rows(m[1])) + "\n" * m[0].count("\n"), text)
    text = _MATRIX.sub(_matrix, text)
    text = "\n".join(_conditional(_in_one(line)) for line in text.split("\n"))
    text = _EINSUM.sub(_products, text)
    for letter in set(re.findall(r"(?:\bsum|\\sum|∑|Σ)_\{?\s*([a-z])\b", text)):
        text = re.sub(_SUPER.replace("LETTER", letter), functools.partial(_subscript, letter), text)
    return text


def _matrix(match: re.Match[str]) -> str:
    """A matrix or a vector written out, as calls of stack."""
    rows = [row.split("&") for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[1]) if row.strip()]
    made = [f"stack({', '.join(each.strip() for each in row)})" if row[1:] else row[0].strip() for row in rows]
    return (f"stack({', '.join(made)})" if made[1:] else made[0]) + "\n" * match[0].count("\n")


def _rows(inside: str) -> list[tuple[str, str]]:
    """Values and their conditions, "" for otherwise."""
    rows = [row.partition("&")[::2] for row in re.split(r"\\\\(?:\[[^\]]*\])?", inside) if row.strip()]
    return [(value.strip().rstrip(",; "), re.sub(_WORD, " ", condition).strip(" ,.;\n{}")) for value, condition in rows]


def _sum_of(rows: Sequence[tuple[str, str]]) -> str:
    """The cases as a sum: each value times 1 where its condition holds, else 0."""
    conditions = [f"[{condition}]" for _, condition in rows if condition]
    others = "(1 - " + " - ".join(conditions) + ")"
    return " + ".join(f"({value.strip()}) {f'[{condition}]' if condition else others}" for value, condition in rows)


def _in_one(line: str) -> str:
    """a = b if c else d as a sum. Longer lines would take the search too long."""
    if len(line) > _LONGEST or not re.search("else|otherwise", line):
        return line
    return _IN_ONE.sub(lambda m: f"= {_sum_of([(m[1], m[2]), (m[3], '')])}", line)


def _conditional(line: str) -> str:
    """if i = j: a = b as [i = j] (a) = [i = j] (b)."""
    bare = re.sub(r"\$(?!\$)", "", line)
    match = _CONDITION.match(bare) if len(line) <= 2 * _LONGEST else None
    if not match:
        return line
    return match[1] + under(match[2].strip(), bare[match.end() :])


def under(condition: str, equation: str) -> str:
    """[i = j] (a) = [i = j] (b), which says that a = b where i = j."""
    sides = re.split(r"(?<![<>!≠])=", equation.replace("&", " ").rstrip(" .,;\\"))
    return " = ".join(f"[{condition}] ({side.strip()})" for side in sides if side.strip())


def _products(match: re.Match[str]) -> str:
    left, above, arrays = match[3].replace(" ", "").split(","), match[4], match[5].split(",")
    bound = sorted(set("".join(left)) - set(above))
    total = f"sum_{{{','.join(bound)}}} " if bound else ""
    factors = " ".join(f"{array.strip()}_{{{','.join(indices)}}}" for array, indices in zip(arrays, left, strict=False))
    return f"{match[1]}{match[2]}_{{{','.join(above)}}} = {total}{factors}"


def _subscript(letter: str, match: re.Match[str]) -> str:
    entry = match[1] or match[2]
    return f"_{{{letter},{entry}}}" if entry else f"_{{{letter}}}"
