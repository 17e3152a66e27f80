"""The statement of an exercise as HTML: its formulas, plain text in Python, become mathematics.

A formula in a sentence is a run of names, numbers and signs with at least one sign: "output = weights v" in "output =
weights v, with given weights". Names of one letter and gradients are set alone, too. Names keep their spelling, so that
what is derived on paper can be typed. A list of names before a colon stays code.
"""

import html
import re
from collections.abc import Collection

from . import markdown

_LETTER = "A-Za-zͰ-Ͽ"
_TOKEN = re.compile(
    rf"[mv]\u0302|\^-?[\w]+½?|[{_LETTER}]+\d?(?:_\{{[^}}]*\}}|(?:_[{_LETTER}0-9]+)*)|\d+e-\d+|\d[\d.]*|\s+|\.\.\.|."
)
_SIGNS = {
    "·": r"\cdot ", "*": r"\odot ", "@": r"\,", "≤": r"\le ", "×": r"\times ", "ᵀ": r"^\top ", "²": "^2", "³": "^3",
    "⁵": "^5", "∂": r"\partial ", "√": r"\sqrt", "...": r"\dots ", "₁": "_1", "₂": "_2", "m\u0302": r"\hat{m}",
    "v\u0302": r"\hat{v}",
}  # fmt: skip
_GREEK = {"gamma": "γ", "beta": "β", "theta": "θ"}
_FUNCTIONS = "softmax exp log max mean relu tanh sin cos erf norm merge".split()
_WORDS = "with and row by".split()
_SIGN = re.compile(rf"[=+*/@√Σ∂ᵀ²³⁵·≤<>×^|₁₂[]|-[\dΣ]|[{_LETTER}]_[a-zA-Z0-9{{]|^-\w|\u0302")
_END = ".,;:?"  # of a part of a sentence
_NAMES = re.compile(r"(?:^|(?<=[;.] )|(?<=and ))(\w+(?:(?:, | and )\w+)*):(?=\s)")
_CODE = re.compile(  # `marked`, a call of NumPy, a keyword, a slice, or an operator
    r"`([^`]+)`|(\bnp(?:\.\w+)+(?:\((?:[^()]|\([^()]*\))*\))?(?:\[[^]]*\])?|\bk\.swapaxes\([^)]*\)|\w+=\w+"
    r"|\w+\[[^]]*:[^]]*\]|(?:^|(?<= ))@(?= [a-z]{3}))"
)
_SPLIT = re.compile(r", | and ")


def to_html(text: str, names: Collection[str]) -> str:
    """The statement with its formulas set. names: of the arguments and results."""
    known = {"dx", "dy", *names, *re.findall(r"(\w+) = ", text)}
    known |= {name[1:] for name in names if name[0] == "d"}
    out = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        if all(line.startswith("    ") or not line for line in lines):
            out.append(_displayed(lines))
        else:
            out.append(f"<p>{_Sentences(names, known).html(' '.join(lines))}</p>")
    return "\n".join(out)


def tex(text: str) -> str:
    """A formula in plain text as LaTeX."""
    out: list[str] = []
    roots: list[int] = []  # at which depth of brackets a root ends
    depth, before, gap = 0, "", False  # the token before, and whether there was space after it
    for token in _TOKEN.findall(text):
        if token.isspace():
            out.append(r"\quad " if len(token) > 1 else " ")
            gap = True
            continue
        depth += {"(": 1, ")": -1}.get(token, 0)
        product = gap and before and (before[-1].isalnum() or before[-1] in ")]}²³⁵\u0302")
        space = r"\," if product and (token[0].isalpha() or token in "(Σ") else ""
        if token == "(" and before == "√":
            roots.append(depth)
            out.append("{")
        elif token == ")" and roots and roots[-1] == depth + 1:
            roots.pop()
            out.append("}")
        elif token in _SIGNS:
            made = _SIGNS[token]
            out.append(space + (f"{{{made}}}" if before == "√" else made))
        elif token[0] == "^" and len(token) > 1:
            out.append("^{" + token[1:].replace("½", r"\tfrac12 ") + "}")
        elif re.match(rf"[{_LETTER}]", token):
            out.append(space + (f"{{{_name(token)}}}" if before == "√" else _name(token)))
        else:
            out.append(space + re.sub(r"^1e-(\d+)$", r"10^{-\1}", token))
        before, gap = token, False
    return re.sub(r"\^\(([^()]*)\)", r"^{\1}", "".join(out))


def _name(token: str) -> str:
    """A name: of one letter in italics, of several upright; what follows an underscore is an index."""
    base, _, index = token.partition("_")
    if token in _WORDS:
        return rf"\text{{ {token} }}"
    if base in ("Σ", "sum") and index and not index.isdigit():
        return rf"\sum_{{{tex(index.strip('{}'))}}}"
    if len(base) > 2 and len(index) > 2 and index[0] != "{":
        return rf"\text{{{token.replace('_', ' ')}}}"
    gradient = base[:1] == "d" and base[1:] in _GREEK
    base = f"d{_GREEK[base[1:]]}" if gradient else _GREEK.get(base, base)
    made = base if len(base) == 1 or (len(base) == 2 and base[0] == "d") else rf"\text{{{base}}}"
    if index[:1] == "{":
        return f"{made}_{{{tex(index.strip('{}'))}}}"
    parts = [part if len(part) <= 2 and part != "in" else rf"\text{{{part}}}" for part in index.split("_") if part]
    return made + (f"_{{{', '.join(parts)}}}" if parts else "")


def _displayed(lines: list[str]) -> str:
    """Lines of formulas, one below the other, at their first signs of equality."""
    rows = []
    for line in filter(None, map(str.strip, lines)):
        left, sign, right = line.partition(" = ")
        rows.append(f"{tex(left.strip())} &= {tex(right.strip())}" if sign else f"& {tex(line)}")
    made = markdown.formula(r"\begin{align*}" + r"\\ ".join(rows) + r"\end{align*}", True)
    return f'<div class="math block" tabindex="0" role="group" aria-label="Formula">{made}</div>'


def _open(words: list[str]) -> int:
    """How many brackets are open after some words."""
    text = " ".join(words)
    return text.count("(") + text.count("[") - text.count(")") - text.count("]")


class _Sentences:
    """Sets the formulas of sentences. names: of the code. known: these, and what the formulas define."""

    def __init__(self, names: Collection[str], known: Collection[str]) -> None:
        self.names, self.known = names, known
        self.codes: list[str] = []

    def html(self, text: str) -> str:
        text = _CODE.sub(lambda found: self._code([found[1] or found[2]]), text)
        text = _NAMES.sub(self._names, text)
        out: list[str] = []
        run: list[str] = []
        words = text.split(" ")
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if (run and _open(run) > 0) or self._belongs(word, following, run):
                run.append(word)
                if word[-1] in _END and _open(run) <= 0 and word != "...":
                    out.append(self._run(run))
                    run = []
            else:
                out += [self._run(run)] * bool(run) + [html.escape(word, quote=False)]
                run = []
        out += [self._run(run)] * bool(run)
        return re.sub(r"⟦(\d+)⟧", lambda mark: self.codes[int(mark[1])], " ".join(out))

    def _code(self, names: list[str]) -> str:
        """A mark in the place of some code."""
        self.codes.append(", ".join(f"<code>{html.escape(each)}</code>" for each in names))
        return f"⟦{len(self.codes) - 1}⟧"

    def _names(self, found: re.Match[str]) -> str:
        names = _SPLIT.split(found[1])
        return f"{self._code(names)}:" if set(names) <= set(self.names) else found[0]

    def _belongs(self, word: str, following: str, run: list[str]) -> bool:
        """Whether a word can be part of a formula."""
        plain = word.strip(f"(){_END}")
        if "⟦" in word or '"' in word or not word:
            return False
        if (
            _SIGN.search(word)
            or word in ("-", "...")
            or re.match(r"\(\d,\)", word)
            or re.fullmatch(rf"-?\d[\d.]*[){_END}]*", word)
        ):
            return True
        after_sign = bool(run) and run[-1] in ("=", "+", "-", "*", "@", "/", "·")
        if plain == "a":
            return after_sign or word != "a" or bool(re.match(r"(and|or)$|[=+*@/]|[a-zA-Z]$", following))
        if after_sign and word[0] == "(":
            return True
        if after_sign and plain.isalpha() and (word[-1] in _END or _SIGN.search(following)):
            return True
        is_letter = len(plain) == 1 and plain.isalpha() and plain not in "AI"
        return is_letter or "(" in word[1:] or plain in self.known or plain in _FUNCTIONS

    def _run(self, run: list[str]) -> str:
        """A run of words that can be a formula, set if it is one."""
        text, before, after = " ".join(run), "", ""
        while text.startswith("(") and _open([text]) > 0:
            text, before = text[1:], before + "("
        while text[-1:] in (*_END, ")") and not text.endswith("...") and (text[-1] in _END or _open([text]) < 0):
            text, after = text[:-1], text[-1] + after
        if re.fullmatch(r"[a-z]{3,}_[a-z_]*[a-z]{3,}(\([a-z]\))?", text):  # a function of the reader's
            return f"{before}<code>{text}</code>{after}"
        is_whole = _open([text]) == 0 and text[-1:] not in "=+-/"
        is_formula = is_whole and bool(_SIGN.search(text) or re.search(r"\S - \S|\(.*\)", text))
        if re.fullmatch(r"\w+", text) and not is_formula:
            is_gradient = text in self.names and text[0] == "d" and f"d{text}" not in self.names
            is_formula = not text.isdigit() and (len(text) <= 2 or is_gradient)
        if not is_formula:
            return html.escape(" ".join(run), quote=False)
        return f'{before}<span class="math inline">{markdown.formula(tex(text), False)}</span>{after}'
