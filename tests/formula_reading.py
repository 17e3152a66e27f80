"""Read a typeset formula as a reader does, and compute it: from MathML to numbers, without the line it was made from.

What is written decides: a space is a product, of matrices or with a number; ⊙ is element-wise; ∑ reaches to the next
sum. Whether a sum keeps its axis, with size 1, a formula does not say; its reader takes what fits.
"""

from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element, tostring

import numpy as np

from minitransformer.check.trace.calls import Binding
from minitransformer.school.show.stepper.steps import Step, Steps

AXES = {"j": -1, "i": -2, "h": -3, "b": -4}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b, "≠": lambda a, b: a != b, "<": lambda a, b: a < b, "≤": lambda a, b: a <= b,
    ">": lambda a, b: a > b, "≥": lambda a, b: a >= b, "is": lambda a, b: a is b, "is not": lambda a, b: a is not b,
}  # fmt: skip
SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "−": lambda a, b: a - b, "∧": lambda a, b: a & b, "∨": lambda a, b: a | b,
    "mod": lambda a, b: a % b, "÷": lambda a, b: a // b,
}  # fmt: skip

FENCES: dict[str, tuple[str, Callable[[Any], Any]]] = {"|": ("|", np.abs), "⌊": ("⌋", np.floor), "⌈": ("⌉", np.ceil)}


def key(element: Element) -> str:
    """What identifies a symbol."""
    return tostring(element, encoding="unicode")


class Formula:
    """symbols: the values of names, by the key of their symbol. code: evaluates text that is written as code.
    call: the result of a function of the line, by its name (for a pullback, the index of its Jacobian) and arguments.
    keeps: whether sums keep their axes, with size 1.
    """

    def __init__(
        self,
        symbols: dict[str, Any],
        code: Callable[[str], Any],
        call: Callable[[str, list[Any]], Any],
        keeps: bool = True,
    ) -> None:
        self.symbols, self.code, self.call = symbols, code, call
        self.keeps = keeps

    def sides(self, math: Element) -> tuple[list[Element], list[Element]]:
        """What stands before and after the sign of an assignment."""
        at = next(i for i, part in enumerate(math) if part.tag == "mo" and part.text in ("=", "←"))
        return list(math)[:at], list(math)[at + 1 :]

    def values(self, parts: list[Element]) -> list[Any]:
        """The values of expressions with commas between them."""
        tokens = self._flat(parts)
        reading = _Reading(self, tokens)
        found = [reading.comparison()]
        while reading.takes(","):
            found.append(reading.comparison())
        assert reading.at == len(tokens), "something stands behind the formula"
        return found

    def value(self, element: Element) -> Any:
        (value,) = self.values([element])
        return value

    def _flat(self, parts: list[Element]) -> list[Element]:
        """Rows have no mark of their own: only brackets show what belongs together."""
        out: list[Element] = []
        for part in parts:
            out += self._flat(list(part)) if part.tag == "mrow" and key(part) not in self.symbols else [part]
        return out


class _Reading:
    def __init__(self, formula: Formula, tokens: list[Element]) -> None:
        self.formula, self.tokens, self.at = formula, tokens, 0

    def sign(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        return "" if token is None or token.tag != "mo" else token.text or ""

    def takes(self, *signs: str) -> str:
        found = self.sign()
        if found not in signs:
            return ""
        self.at += 1
        return found

    def comparison(self) -> Any:
        value = self.sum()
        while sign := self.takes(*COMPARISONS):
            value = COMPARISONS[sign](value, self.sum())
        return value

    def sum(self) -> Any:
        if sign := self.takes("−", "+", "¬"):
            value = self.series()
            value = {"−": lambda: -value, "+": lambda: value, "¬": lambda: ~value}[sign]()
        else:
            value = self.series()
        while sign := self.takes(*SUMS):
            value = SUMS[sign](value, self.series())
        return value

    def series(self) -> Any:
        token = self.tokens[self.at]
        if token.tag in ("munder", "msub") and token[0].text == "∑":
            self.at += 1
            axis = self.axis(token[1])
            return np.sum(self.product(), axis=axis, keepdims=self.formula.keeps)
        if self.takes("∑"):
            return np.sum(self.product())
        return self.product()

    def product(self) -> Any:
        value = self.juxtaposed()
        while self.takes("⊙", "·"):
            value = value * self.juxtaposed()
        return value

    def juxtaposed(self) -> Any:
        token = self.tokens[self.at]
        if token.tag in ("msup", "msubsup") and token[0].text == "J" and key(token) not in self.formula.symbols:
            self.at += 2
            index = "".join(token[1].itertext()) if token.tag == "msubsup" else ""
            return self.formula.call(index, [self.juxtaposed()])
        value = self.tight()
        while self.at < len(self.tokens) and self.tokens[self.at].tag == "mspace":
            self.at += 1
            other = self.tight()
            matrices = np.size(value) > 1 and np.size(other) > 1  # a single number may stand in an array
            value = value @ other if matrices and np.ndim(value) and np.ndim(other) else value * other
        return value

    def tight(self) -> Any:
        token = self.tokens[self.at]
        self.at += 1
        if key(token) in self.formula.symbols and self.sign() != "(":
            return self.formula.symbols[key(token)]
        if token.tag == "mo":
            return self._fenced(token.text or "")
        return getattr(self, f"_{token.tag}")(token)

    def _fenced(self, sign: str) -> Any:
        if sign == "{":
            self.at += 1
            return self._cases(self.tokens[self.at - 1])
        assert sign in ("(", *FENCES), f"{sign} cannot begin a term"
        value = self.comparison()
        if sign in FENCES:
            assert self.takes(FENCES[sign][0])
            return FENCES[sign][1](value)
        values = [value]
        while self.takes(","):
            values.append(self.comparison())
        assert self.takes(")")
        return value if len(values) == 1 else tuple(values)

    def _arguments(self) -> list[Any]:
        if not self.takes("("):
            return []
        if self.takes(")"):
            return []
        value = self._fenced("(")
        return list(value) if isinstance(value, tuple) else [value]

    def _cases(self, table: Element) -> Any:
        (first, condition), (second, _) = (list(row) for row in table)
        test = self.formula.values(list(condition[0])[1:])[0]
        if np.ndim(test) == 0:
            return self.formula.values(list(first if test else second))[0]
        return np.where(test, *(self.formula.values(list(side))[0] for side in (first, second)))

    def axis(self, element: Element) -> Any:
        letters = "".join(element.itertext()).replace(" ", "").split(",")
        if all(letter in AXES for letter in letters) and key(element) not in self.formula.symbols:
            return tuple(AXES[letter] for letter in letters)
        parts = list(element) if element.tag == "mrow" else [element]
        return self.formula.values([p for p in parts if p.tag != "mtext" or (p.text or "").strip() != "axis"])[0]

    def _mi(self, token: Element) -> Any:
        return self._function(token.text or "", None) if self.sign() == "(" else self._text(token.text or "")

    def _mtext(self, token: Element) -> Any:
        return self._text(token.text or "")

    def _text(self, text: str) -> Any:
        return {"∞": np.inf, "π": np.pi}.get(text) or self.formula.code(text.replace("…", "..."))

    def _mn(self, token: Element) -> Any:
        text = token.text or ""
        return int(text) if text.isdigit() else float(text)

    def _mfrac(self, token: Element) -> Any:
        return self.formula.value(token[0]) / self.formula.value(token[1])

    def _msqrt(self, token: Element) -> Any:
        return np.sqrt(self.formula.value(token[0]))

    def _msup(self, token: Element) -> Any:
        if token[1].text == "T":
            return np.swapaxes(self.formula.value(token[0]), -1, -2)
        if token[0].text == "e":
            with np.errstate(over="ignore"):
                return np.exp(self.formula.value(token[1]))
        return self.formula.value(token[0]) ** self.formula.value(token[1])

    def _msub(self, token: Element) -> Any:
        base, index = token
        if self.sign() == "(":
            return self._function(base.text or "", index)
        array = np.asarray(self.formula.value(base))
        if index.tag == "mi" and index.text == "i":
            return array[..., None]
        if index.tag == "mrow" and index[0].text == "i" and index[1].text == ",":  # of each row the entry that ids name
            return np.take_along_axis(array, self.formula.value(index[2]), -1)[..., 0]
        if index.tag == "mtext" and " of " in (index.text or ""):
            number, total = map(int, (index.text or "").split(" of "))
            return np.split(array, total, axis=-1)[number - 1]
        if index.tag != "mtext":
            return array[self.formula.value(index)]
        if index.text == "columns in reverse":
            return array[..., ::-1]
        text = (index.text or "").replace("new", "None")
        return array[self.formula.code(f"_at[{text}]")]

    def _function(self, name: str, index: Element | None) -> Any:
        values = self._arguments()
        if name in ("max", "min", "mean") and len(values) == 1:
            axis = None if index is None else self.axis(index)
            return getattr(np, name)(values[0], axis=axis, keepdims=self.formula.keeps and index is not None)
        if name in ("max", "min"):
            return getattr(np, f"{name}imum")(*values)
        if name == "reshape":
            if index is not None and (index.text or "").startswith("…, "):  # the axes before stay as they are
                last = self.formula.code(f"({(index.text or '').removeprefix('…, ')},)")
                old = np.shape(values[0])
                sizes = [axis for axis in range(len(old), -1, -1) if np.size(values[0]) == np.prod(old[:axis] + last)]
                return np.reshape(values[0], old[: sizes[0]] + last)
            shape = (np.size(values[0]),) if index is None else self.formula.code(f"({index.text},)")
            return np.reshape(values[0], shape[0] if isinstance(shape[0], tuple) else shape)
        if name == "swap":
            assert index is not None
            return np.swapaxes(values[0], *self.formula.code(f"({index.text},)"))
        if name in ("concatenate", "stack"):
            assert index is not None
            return getattr(np, name)(values, axis=self._one(index))
        if name == "argsort" and index is not None:
            return np.argsort(values[0], axis=self._one(index), kind="stable")
        if hasattr(np, name) and index is not None:
            return getattr(np, name)(*values, axis=self._one(index))
        assert index is None
        return self.formula.call(name, values)

    def _one(self, index: Element) -> int:
        axis = self.axis(index)
        return axis[0] if isinstance(axis, tuple) else axis


def computed_at(recording: Steps, step: Step, bound: Binding) -> tuple[Step, Binding]:
    """The binding where the number was computed: for the result of an inner call, the one inside it; else this one."""
    while bound.origin is not None and not bound.in_place:
        inner_step, inner = recording.binding(bound.origin)
        if recording.calls[inner_step.call].depth <= recording.calls[step.call].depth:
            break  # another name in the same call or, for an argument, in the caller
        step, bound = inner_step, inner
    return step, bound
