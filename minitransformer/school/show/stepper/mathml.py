"""A line of Python as a formula: its expression, turned into MathML.

    scores = (q @ k.swapaxes(-1, -2)) * factor          scores = (q kᵀ) factor
    y = exponentials / total                            a fraction
    dx = y * (dy - (dy * y).sum(axis=-1))               dx = y ⊙ (dy − Σ dy ⊙ y)

Products of matrices, and products with a single number, have no sign; ⊙ is the element-wise product. A pullback applied
to a gradient is a product with the transposed Jacobian: `dx = softmax_backward(dy)` becomes dx = Jᵀ dy. Code without a
formula of its own is shown as it is written. The elements are those of MathML Core: the W3C's "MathML Core", section 3.
"""

import ast
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from . import elements as ml
from . import expressions as ex

NAMESPACE = "http://www.w3.org/1998/Math/MathML"

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "eta": "η", "theta": "θ",
    "lam": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "omega": "ω",
}  # fmt: skip
_SYMBOLS = {"inf": "∞", "nan": "NaN", "pi": "π", "e": "e"}
_BETWEEN = {
    "==": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥", "is": "is", "is not": "is not", "in": "∈",
    "not in": "∉", "&": "∧", "|": "∨", "and": "∧", "or": "∨", "%": "mod", "//": "÷",
}  # fmt: skip
_BEFORE = {"negative": "−", "positive": "+", "not": "¬", "~": "¬"}
_REDUCTIONS = ("sum", "mean", "max", "min")
_FILLED = {"zeros": "0", "zeros_like": "0", "ones": "1", "ones_like": "1", "full": "", "full_like": ""}
_FENCES = {"abs": "||", "floor": "⌊⌋", "ceil": "⌈⌉"}
_JOINS = ("concatenate", "stack")
_SAME = ("_as_tuple",)  # what they return holds the same numbers
_NBSP = "\u00a0"  # a space that MathML does not trim

# How tightly a node binds: it needs brackets inside a node that binds more tightly.
SUM, SERIES, PRODUCT, MATRICES, TIGHT = 1, 2, 3, 4, 5  # a + b, ∑ a, a ⊙ b, A B, a


def formula(source: str, scalars: Collection[str] = ()) -> Element | None:
    """The statement as a <math> element; None for one that computes nothing, such as a check or the head of a loop.

    scalars: the names known to be single numbers; a product with one of them is written without a sign.
    """
    row = Formula(scalars).statement(ex.read(textwrap.dedent(source)))
    return None if row is None else block(row)


def name(identifier: str) -> Element:
    """A name as mathematics writes it: gamma is γ, w_q is W with the index Q, dscores is an upright word."""
    if identifier.startswith("d") and identifier[1:] in GREEK:
        return ml.element("mrow", ml.word("d"), ml.letter(GREEK[identifier[1:]]))
    if identifier in GREEK:
        return ml.letter(GREEK[identifier])
    base, _, index = identifier.rpartition("_")
    if base in ("w", "dw") and len(index) == 1:
        return ml.indexed(name(base.replace("w", "W")), ml.letter(index.upper()))
    if base and "_" not in base and len(base) <= 2 and len(index) <= 2:
        return ml.indexed(name(base), name(index))
    return ml.letter(identifier) if len(identifier) == 1 else ml.word(identifier)


def block(parts: Sequence[Element]) -> Element:
    """A formula of its own: the <math> element with these parts."""
    return ml.element("math", *parts, xmlns=NAMESPACE, display="block")


def as_lists(element: Element) -> list[Any]:
    """The element as a list for JSON: [tag, attributes, child, ...], where a child is such a list or a text."""
    attributes = {key: value for key, value in element.attrib.items() if key != "xmlns"}
    text = [element.text] if element.text else []
    return [element.tag, attributes, *text, *(as_lists(child) for child in element)]


class Formula:
    """Turns expressions into MathML. paper.py overrides what papers write otherwise."""

    low = False  # whether sums have the height of a line

    def __init__(self, scalars: Collection[str]) -> None:
        self.scalars = scalars

    def statement(self, line: ex.Statement) -> list[Element] | None:
        if isinstance(line.node, ast.FunctionDef):
            arguments = [a for a in (*line.node.args.args, *line.node.args.kwonlyargs) if a.arg != "self"]
            return [ml.word(line.node.name), ml.bracketed(*ml.separated([name(a.arg) for a in arguments]))]
        match line.kind, line.value:
            case "return", ex.Expression() as value:
                return [ml.text("return"), ml.space(), *self._values(value)]
            case "assign", ex.Expression() as value:
                return [*self._targets(line.targets[0]), ml.sign("="), *self._values(value)]
            case "change", ex.Expression() as value:
                return [*self._targets(line.targets[0]), ml.sign("←"), self.expression(value)]
            case "call", ex.Applied("scatter_add", parts):
                target, ids, rows = map(self.expression, parts)
                return [ml.indexed(target, ids), ml.sign("←"), ml.indexed(target, ids), ml.sign("+"), rows]
        return None

    def _targets(self, target: ex.Expression) -> list[Element]:
        """The targets of an assignment, without the pullbacks, which are not numbers."""
        parts = ex.inner(target) if ex.is_joined(target, ",") else (target,)
        kept = [p for p in parts if not (isinstance(p, ex.Name) and is_pullback(p.id))] or parts
        return ml.separated([self.expression(ex.unstarred(part)) for part in kept])

    def _values(self, value: ex.Expression) -> list[Element]:
        written_out = ex.is_joined(value, ",") and not isinstance(value.node, ast.List) and ex.inner(value)
        return ml.separated([self.expression(part) for part in written_out or (value,)])

    def expression(self, whole: ex.Expression, within: int = 0) -> Element:
        """The formula, in brackets if it binds less tightly than `within`, the expression around it."""
        build: Callable[[Any], tuple[list[Element], int]] | None = getattr(
            self, f"_{type(whole).__name__.lower()}", None
        )
        parts, tightness = build(whole) if build else ([ml.text(whole.text)], TIGHT)
        return ml.bracketed(*parts) if tightness < within else ml.row(parts)

    def _name(self, whole: ex.Name) -> tuple[list[Element], int]:
        return [name(whole.id)], TIGHT

    def _number(self, whole: ex.Number) -> tuple[list[Element], int]:
        if isinstance(whole.value, bool):
            return [ml.text(repr(whole.value))], TIGHT
        return [ml.number(f"{whole.value:g}" if isinstance(whole.value, float) else str(whole.value))], TIGHT

    def _member(self, whole: ex.Member) -> tuple[list[Element], int]:
        if whole.name == "T":
            return [ml.transposed(self.expression(whole.of, TIGHT))], TIGHT
        if whole.of_library:
            return [ml.letter(_SYMBOLS.get(whole.name, whole.name))], TIGHT
        if whole.name == "value":  # of a parameter
            return [self.expression(whole.of)], TIGHT
        return [ml.word(whole.text.removeprefix("self."))], TIGHT

    def _operation(self, whole: ex.Operation) -> tuple[list[Element], int]:
        symbol, parts = whole.symbol, whole.parts
        if symbol == "if":
            return [self._cases(*parts)], TIGHT
        if symbol == "[]":
            index = ml.text(parts[1].text.strip("()").replace("None", "new"))
            return [ml.indexed(self.expression(parts[0], TIGHT), index)], TIGHT
        if symbol in _BEFORE:
            return [ml.sign(_BEFORE[symbol], form="prefix"), self.expression(parts[0], SERIES)], SUM
        if symbol == "/":
            return [ml.element("mfrac", *map(self.expression, parts))], MATRICES
        if symbol == "**":
            return [ml.element("msup", self.expression(parts[0], TIGHT), self.expression(parts[1]))], MATRICES
        if symbol == "@":
            return [self.expression(parts[0], MATRICES), ml.space(), self.expression(parts[1], MATRICES)], MATRICES
        if symbol == "*":
            single = any(map(self._is_single, parts))
            two = isinstance(parts[1], ex.Number) and isinstance(parts[0], ex.Number | ex.Operation)  # of numbers
            sign = ml.sign("⊙") if not single else ml.sign("·") if two else ml.space()
            return [self.expression(parts[0], PRODUCT), sign, self.expression(parts[1], PRODUCT)], PRODUCT
        if symbol in ("+", "-"):
            sign = ml.sign("+" if symbol == "+" else "−")
            return [self.expression(parts[0], SUM), sign, self.expression(parts[1], SUM + (symbol == "-"))], SUM
        if symbol in _BETWEEN:
            of_truths = symbol in ("&", "|", "and", "or", "%", "//")
            out: list[Element] = []
            for part in parts:
                out += [ml.sign(_BETWEEN[symbol], lspace="0.3em", rspace="0.3em")] if out else []
                out.append(self.expression(part, PRODUCT if of_truths else SUM))
            return out, SUM if symbol in ("&", "|", "%", "//") else 0
        return [ml.text(whole.text)], TIGHT

    def _is_single(self, whole: ex.Expression) -> bool:
        """Whether it consists only of numbers and names of numbers."""
        match whole:
            case ex.Member():
                return whole.of_library
            case ex.Applied(parts=parts):
                return whole.text.startswith("math.") and all(map(self._is_single, parts))
            case ex.Operation(parts=parts):
                return all(map(self._is_single, parts))
        return isinstance(whole, ex.Number) or (isinstance(whole, ex.Name) and whole.id in self.scalars)

    def _cases(self, test: ex.Expression, first: ex.Expression, second: ex.Expression) -> Element:
        """A brace with two rows: the value if the test is true, and the value otherwise."""
        rows = [
            (self.expression(first), ml.text(f"if{_NBSP}"), self.expression(test)),
            (self.expression(second), ml.text("otherwise")),
        ]
        cells = [[ml.element("mtd", value), ml.element("mtd", ml.row(rest))] for value, *rest in rows]
        table = ml.element("mtable", *(ml.element("mtr", *row) for row in cells), columnalign="left left")
        return ml.element("mrow", ml.sign("{", form="prefix", stretchy="true"), table)

    def _applied(self, whole: ex.Applied) -> tuple[list[Element], int]:
        called, parts, library = whole.name, whole.parts, whole.of_library
        first = parts[0] if parts else whole
        if whole.of_array is not None:
            method = self._method(whole, whole.of_array)
            if method is not None:
                return method
        if called in _SAME:
            return [self.expression(first, MATRICES)], MATRICES
        if called == "where" and len(parts) == 3:
            return [self._cases(*parts)], TIGHT
        if called in ("maximum", "minimum"):
            return [ml.word(called[:3]), ml.bracketed(*ml.separated(list(map(self.expression, parts))))], TIGHT
        if called in _FILLED and isinstance(whole.function, ex.Member):
            number = _FILLED[called]
            return [ml.number(number) if number else self.expression(parts[1])], TIGHT
        if len(parts) == 1 and called == "sqrt":
            return [ml.element("msqrt", self.expression(first))], TIGHT
        if len(parts) == 1 and called == "exp":
            return [ml.element("msup", ml.letter("e"), self.expression(first))], TIGHT
        if len(parts) == 1 and called in _FENCES:
            before, after = map(ml.sign, _FENCES[called])
            return [ml.element("mrow", before, self.expression(first), after)], TIGHT
        if parts and is_pullback(called):
            index, j = map_of(called), ml.letter("J")
            jacobian = ml.transposed(j) if index is None else ml.element("msubsup", j, index, ml.word("T"))
            several = ml.bracketed(*ml.separated([self.expression(ex.unstarred(part)) for part in parts]))
            given = self.expression(first, MATRICES) if len(parts) == 1 else several
            return [jacobian, ml.space(), given], MATRICES
        if library and called in _JOINS and ex.is_joined(first, ","):
            within = list(map(self._joined, ex.inner(first)))
        else:
            within = [self.expression(ex.unstarred(part)) for part in parts]
        word = ml.word(called if library or whole.function is None else whole.function.text)
        base = first if parts else whole.of_array
        if "axis" in whole.options and base is not None:
            word = ml.indexed(word, self.axis(whole.options["axis"], base))
        return [word, ml.bracketed(*ml.separated(within))], TIGHT

    def _joined(self, part: ex.Expression) -> Element:
        """A part of a larger array; zeros need their shape here."""
        if isinstance(part, ex.Applied) and part.name == "zeros_like":
            return ml.row([ml.word("zeros_like"), ml.bracketed(self.expression(part.parts[0]))])
        return self.expression(part)

    def _method(self, whole: ex.Applied, base: ex.Expression) -> tuple[list[Element], int] | None:
        """The formula of an array's method, such as a sum or a reshape; None if it has none."""
        texts = ["…" if ex.is_joined(part, "starred") else part.text for part in whole.parts]
        if whole.name in _REDUCTIONS:
            return self._reduced(whole, base), SERIES if whole.name == "sum" else TIGHT
        if whole.name == "swapaxes" and texts == ["-1", "-2"]:
            return [ml.transposed(self.expression(base, TIGHT))], TIGHT
        if whole.name == "astype":
            whole_numbers = [ml.word("trunc"), ml.bracketed(self.expression(base))]
            return whole_numbers if "int" in texts[0] else [self.expression(base)], TIGHT
        if whole.name in ("swapaxes", "reshape"):
            word = ml.indexed(ml.word(whole.name.removesuffix("axes")), ml.text(", ".join(texts)))
            return [word, ml.bracketed(self.expression(base))], TIGHT
        return None

    def axis(self, axis: ex.Expression, base: ex.Expression) -> Element:
        """The axis of an array, as it is written under a sign."""
        if isinstance(axis, ex.Name):  # axis=axis
            return self.expression(axis)
        return ml.row([ml.text(f"axis{_NBSP}"), self.expression(axis)])

    def _reduced(self, whole: ex.Applied, base: ex.Expression) -> list[Element]:
        """A sum, mean or extreme, with the axis under its sign."""
        sums = whole.name == "sum"
        low = {"largeop": "false"} if self.low else {"movablelimits": "false"}
        sign = ml.sign("∑", **low) if sums else ml.word(whole.name)
        if "axis" in whole.options:
            sign = ml.element(
                "munder" if sums and not self.low else "msub", sign, self.axis(whole.options["axis"], base)
            )
        return [sign, self.expression(base, PRODUCT if sums else TIGHT + 1)]


def is_pullback(identifier: str) -> bool:
    """Whether a name is that of a pullback: softmax_backward, pullback."""
    return identifier.endswith(("backward", "pullback"))


def map_of(pullback: str) -> Element | None:
    """Of which map it is the pullback, as the index of a Jacobian: norm, feed forward; None if it has no name."""
    words = pullback.removesuffix("pullback").removesuffix("backward").strip("_")
    written = name(words) if words else None
    is_word = written is not None and written.tag == "mi" and "_" in words
    return ml.word(words.replace("_", _NBSP)) if is_word else written


# ---- Indices. ----


def new_axis(at: str) -> str | None:
    """The letter of the axis along which x[..., None] differs: j the last, i and h before; None for another index."""
    slots = [part for part in at.strip("()").split(", ") if part != "..."]
    if "None" not in slots or not {"None", ":"}.issuperset(slots):
        return None
    kept = [len(slots) - i for i, slot in enumerate(slots) if slot == ":"]
    return "jihb"[(kept[0] if kept else len(slots) + 1) - 1]


def part_in_words(at: str, known: Mapping[str, Any]) -> str:
    """Which part an index takes, "first 3 rows" for (..., :t, :); "" for an index by numbers of its own. known: the
    names of the line, by which sizes become numbers.
    """
    slots = [slot for slot in at.strip("()").split(", ") if slot not in ("None", "...")]
    if not slots or ("..." not in at and ":" not in at):
        return ""
    told = []
    axes = ("columns", "rows", "", "", "") if "..." in at else ("rows",)
    for slot, lines in zip(reversed(slots), axes, strict=False):
        start, colon, end = map(str.strip, slot.partition(":"))
        first, last = _size(start, known), _size(end, known)
        if slot == "::-1":
            told.append(f"{lines} in reverse")
        elif colon and end == "-1" and not start:
            told.append(f"all {lines} but the last")
        elif colon and end and not start:
            told.append(f"first {lines}"[:-1] if last == "1" else f"first {last} {lines}")
        elif colon and end:
            told.append(f"{lines} {first} to {int(last) - 1 if last.isdigit() else last}")
        elif colon and start:
            told.append(f"last {lines}"[:-1] if first == "-1" else f"{lines} from {first}")
        elif not colon:
            told.append({"-1": f"last {lines}"[:-1]}.get(slot, _size(slot, known)))
    return " ".join(", ".join(reversed(told)).replace("_", " ").replace(" * ", "·").split())


def _size(text: str, known: Mapping[str, Any]) -> str:
    """A size or a place as a number, if it is one of those that the line knows."""
    try:
        value = eval(text, dict(known)) if text else None
    except Exception:  # it calls something, or reads what was not recorded
        return text
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text
