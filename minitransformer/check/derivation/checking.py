"""Tries every equation of a text on numbers."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import functions, parsing, reading
from .comparing import Outcome, Trial
from .explaining import free_alone
from .faults import Fault, Inexact, OutOfTime, Unreadable
from .lines import Statement, statements
from .mending import mended, slash_readings, tightened, unclear_slashes
from .names import Definition, Names, as_sizes
from .recognising import TOTAL
from .report import DerivationReport, Line
from .tree import Node, Ref, free, names
from .values import Value

SECONDS = 1.7
MOST_LINES = 1000
TWO_READINGS = (
    "a / b c has two readings, (a/b) c and a/(b c), and A ⊙ B C as well; put brackets around the one you mean."
)


@dataclass
class Chain:
    """The equation that lines beginning with = go on with."""

    left: Node
    last: Node | None = None  # the last right side that could be read
    last_line: int = 0
    last_right: bool = True


class Checker:
    """The state of a check: names, draws, and the chain of equations that a line may continue."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.deadline = time.monotonic() + seconds
        self.known = Names()
        self.reader = reading.Reader(self.known)
        self.trial = Trial(self.known, self.deadline)
        self.chain: Chain | None = None
        self.unsure: dict[str, int] = {}  # names like dx that are no gradients, and are not used so far: their lines

    def lines(self, text: str) -> Iterator[Line]:
        """The verdicts on all lines of a text."""
        lines = [self.line(statement) for statement in statements(text)]
        for line in lines:
            unused = line.verdict == "defines" and line.number in self.unsure.values()
            yield replace(line, verdict="unreadable") if unused else line

    def line(self, statement: Statement) -> Line:
        """The verdict on one statement."""
        number, text = statement.number, statement.text
        if statement.kind == "equation" and not text.lstrip(" &").startswith("="):
            self.chain = None
        try:
            if statement.kind == "words":
                if _is_mathematics(text):
                    raise Unreadable("This line has no sign =, so there is nothing to compare.")
                return Line(number, text, "words")
            if statement.kind == "too long":
                raise Unreadable(f"The line has more than {parsing.LONGEST} characters. Define a part of it before.")
            if time.monotonic() > self.deadline:
                raise OutOfTime
            if statement.kind == "given":
                return Line(number, text, "given", self._give(text))
            return self._equation(number, text)
        except Unreadable as problem:
            self._lost(text)
            return Line(number, text, "unreadable", str(problem))
        except Fault as problem:
            self._lost(text)
            return Line(number, text, "wrong", str(problem))
        except OutOfTime:
            return Line(number, text, "unreadable", "The text takes too long to try; check it in parts.")
        except np.linalg.LinAlgError:
            self._lost(text)
            return Line(number, text, "unreadable", "A matrix in this line has no inverse.")
        except Exception as problem:  # whatever is typed, it is no reason for a traceback
            return Line(number, text, "unreadable", f"The line cannot be tried ({type(problem).__name__}).")

    def _lost(self, text: str) -> None:
        """Of a line that cannot be read, later lines may still go on with its left side."""
        head, equals, _ = text.partition("=")
        if not head.strip() or self.chain is not None:
            return
        try:
            side = parsing.sides(head + "= 0")[0]
            self.chain = Chain(self._side(side, ())) if equals and side is not None else None
        except (Unreadable, Fault):
            self.chain = None

    def _give(self, text: str) -> str:
        self.known.give(text)
        found = self.known.to_be_found()
        for name in found:
            self.known.given.pop(name, None)
            if name in self.known.numbers:
                self.known.numbers.remove(name)
        self.trial.fill(found)
        told = [
            f"{', '.join(few)} and {last} have one shape here; a number stands at the end, or as {few[0]}: number."
            for few, last in self.known.told
        ]
        told += [f"To be found, so not given: {', '.join(found)}."] if found else []
        return " ".join(told)

    def _equation(self, number: int, text: str) -> Line:
        left, *rights = parsing.sides(text)
        if left is None:
            if self.chain is None:
                raise Unreadable("The line begins with =, but there is no equation above that could be read.")
        else:
            if not rights:
                raise Unreadable("An equation has two sides.")
            name = parsing.single_name(left)
            if name and not name[1] and self.known.only_size(name[0]) and self._is_number(rights[0]):
                told = f"{name[0]} is a size: it is tried with several numbers, so this line is left out."
                return Line(number, text, "words", told)
            defined = self._definition(name, rights[0]) if name else None
            if defined:
                self.chain = Chain(defined, last_line=number)
                rights = rights[1:]
                if not rights:
                    if _like_a_gradient(_name_of(defined)):
                        self.unsure[_name_of(defined)] = number
                    return Line(number, text, "defines", self._remark(defined))
            else:
                self.chain = Chain(self._side(left, ()), last_line=number)
        lines = [self._claim(number, text, self._side(right, free(self.chain.left))) for right in rights]
        worst = next(
            (v for v in ("wrong", "unreadable", "follows", "right") if v in {x.verdict for x in lines}), "right"
        )
        return next(line for line in lines if line.verdict == worst)

    def _side(self, side: Any, indices: Iterable[str]) -> Node:
        """A side as a tree; the indices of the other side are indices here as well."""
        self.reader.bound = list(indices)
        self.reader.comparing = 0
        self.reader.swallowed = False
        tree = self.reader.expression(side)
        tight = tightened(tree)
        return tight if tight is not tree and not self._value(tree) and self._value(tight) else tree

    def _value(self, tree: Node) -> Value | None:
        """The value of an expression on the first draw, in the first way in which it can be computed."""
        for rows, identity in self.trial.ways(tree):
            with contextlib.suppress(Fault, Unreadable, np.linalg.LinAlgError):
                return self.trial.draws[0].computer(rows, identity).of(tree)
        return None

    def _is_number(self, side: Any) -> bool:
        """Whether a side is a number, so that d = 64 says how large d is, and S = Q Kᵀ what the array S is."""
        tree = self._side(side, ())
        return not names(tree) - set(self.known.sizes) and not free(tree)

    # definitions

    def _definition(self, single: tuple[str, list[Any]], right: Any) -> Node | None:
        """Define a name that is new; its Ref. None if the left side claims something about known names."""
        name, after = single
        found = self.reader.found(name, after)
        if found is not None and self._is_total(found[0], after, right):
            return self._define(name + TOTAL, (), self._side(right, ()))
        if found is not None and not self.known.only_size(found[0]) and not self._new_label(name, after, right):
            return None
        if name in reading.FUNCTIONS and not after and name != "σ" and name != "φ" and name != "Φ":
            raise Unreadable(f"{name} is a function; choose another name.")
        tree = self._side(right, [x for part in after for x in _letters((parsing.label_of(part) or "")[1:])])
        if self.reader.swallowed or (any(unclear_slashes(tree)) and any(map(self._value, slash_readings(tree)))):
            raise Unreadable(TWO_READINGS)
        one, other = self._value(tree), self._value(tightened(tree))
        if one and other and not (one.shape == other.shape and np.allclose(one.array, other.array)):
            raise Unreadable("A ⊙ B C has two readings, (A ⊙ B) C and A ⊙ (B C); put brackets around the one you mean.")
        open_indices = free(tree) - set(self.known.sizes)
        indices: list[str] = []
        square = False
        for part in after:
            label = parsing.label_of(part)
            if label is None or parsing.kind(part) == "TRANSPOSED":
                raise Unreadable(f"{name} is not defined, and only a name can be: {name} = ...")
            if label == "^2":
                square = True
            elif label[0] == "_":
                letters = _letters(label[1:])
                if letters and (set(letters) & free(tree) or open_indices):
                    indices += letters
                else:
                    name += label
            else:
                name += label
        if square:
            name += "^2"
        if self.known.own_rank(name) is not None and not self.known.only_size(name):
            return None
        extra, missing = sorted(free(tree) - set(indices)), [i for i in indices if i not in free(tree)]
        extra = [i for i in extra if i not in self.known.sizes]
        if extra or missing or len(set(indices)) != len(indices):
            raise Fault(free_alone(Ref(name, tuple(indices)), tree, extra, missing))
        return self._define(name, tuple(indices), tree)

    def _is_total(self, name: str, after: list[Any], right: Any) -> bool:
        """Whether a line is like L = sum_i L_i: a number that has the name of an array defined with indices."""
        known = self.known.defined.get(name)
        if after or known is None or not known.indices:
            return False
        tree = self._side(right, ())
        return name in names(tree) and not free(tree) and self.trial.draws[0].computer().of(tree).rank == 0

    def _remark(self, defined: Node) -> str:
        """Says so if a name is zero, or looks like a gradient although there is nothing of which it is one."""
        name = _name_of(defined)
        if not any(np.any(abs(draw.values[name].array) > 1e-12) for draw in self.trial.draws):
            return f"{name} is zero on all numbers tried. Is that meant?"
        if not _like_a_gradient(name):
            return ""
        like = [n for n in (*self.known.given, *self.known.defined) if n.lower() == name[1:].lower() and n != name]
        told = f" Is it d{like[0]}?" if like else ""
        return f"Nothing is checked here: {name[1:]} is not defined, so {name} is a new name, not a gradient.{told}"

    def _new_label(self, name: str, after: list[Any], right: Any) -> bool:
        """Whether x_max is a new name although x is known: its subscript is a word, not indices."""
        found = self.reader.found(name, after)
        if found is None or not found[1] or found[0] != name:
            return False
        rank = self.known.rank(name) or 0
        label = parsing.label_of(found[1][0])
        if label == "'":
            return True
        if label is None or label[0] != "_":
            return False
        letters = _letters(label[1:])
        if self.known.own_rank(name) is None:
            return False  # dx_1 is an entry of dx, never a new name
        if label[1:].isdigit() and len(label) - 1 == rank and self._rank(right) == 0:
            return False  # x_1 is an entry if it is a number, else the array of a first step
        return not letters or len(letters) > rank or label[1:].isdigit() or label[1:].isupper()

    def _rank(self, side: Any) -> int:
        """How many axes a side has, free indices included."""
        value = self.trial.draws[0].computer().of(self._side(side, ()))
        return value.rank + len(value.labels)

    def _define(self, name: str, indices: tuple[str, ...], tree: Node) -> Node:
        problem: Exception | None = None
        sized = as_sizes(tree, self.known)
        trees = [tree] if sized is tree else [tree, sized]
        for each, (rows, identity) in itertools.product(trees, self.trial.ways(tree)):
            definition = Definition(name, indices, each, 0, rows, identity)
            try:
                values = [draw._defined(definition, None) for draw in self.trial.draws]
                if not all(np.all(np.isfinite(value.array)) for value in values):
                    values = self._drawn_again(definition)
                if any(value.loose for value in values):
                    raise Unreadable(f"How long {name} is cannot be seen; write ones_n, where n is a size.")
            except (Fault, Unreadable) as error:
                problem = problem or error
                continue
            letters = {n: letter for letter, n in self.trial.draws[0].lengths.items()}
            axes = tuple(letters.get(n, str(n)) for n in values[0].shape)
            self.known.defined[name] = replace(definition, rank=values[0].rank, axes=axes)
            for draw, value in zip(self.trial.draws, values, strict=True):
                draw.values[name] = value
            self.trial.wide.define(self.known.defined[name])
            try:
                self.trial.exact.define(definition)
            except (Inexact, ZeroDivisionError, Unreadable, Fault, TypeError, AttributeError):
                self.trial.exact.values[name] = Value(
                    np.array(np.nan)
                )  # of no exact type, so that nothing exact uses it
            return Ref(name, indices)
        assert problem is not None
        raise problem

    def _drawn_again(self, definition: Definition) -> list[Value]:
        """Roots and logarithms need positive numbers: of one given array if that is enough, else of all they use."""
        used = [name for name in self.known.given if name in self.known.ancestors(names(definition.tree))]
        before = self.trial.draws[0].positive
        for choice in [{name} for name in used] + ([set(used)] if len(used) > 1 else []):
            for draw in [*self.trial.draws, self.trial.wide]:
                draw.positive = before | choice
                draw.again()
            values = [draw._defined(definition, None) for draw in self.trial.draws]
            if all(np.all(np.isfinite(value.array)) for value in values):
                return values
        raise Unreadable(
            f"{definition.name} is not finite on the numbers tried: a root, a quotient or a power in it fails."
        )

    # claims

    def _claim(self, number: int, text: str, right: Node) -> Line:
        chain = self.chain
        assert chain is not None
        outcome = self.trial.compare(chain.left, right)
        if not outcome.right:  # S may be a size and an array: 1/S
            sized = as_sizes(right, self.known)
            if sized is not right and self.trial.compare(chain.left, sized).right:
                outcome = Outcome(True)
        previous, previous_right, previous_line = chain.last, chain.last_right, chain.last_line
        chain.last, chain.last_line = right, number
        if outcome.right:
            for name in names(chain.left) | names(right):
                self.unsure.pop(name, None)
            chain.last_right = True
            told = "" if previous_right else f"This line is right, although line {previous_line} is not."
            told = told or self._other_vectors(chain.left, right, outcome.rows)
            return Line(number, text, "right", told)
        if outcome.unreadable:
            chain.last, chain.last_right = previous, previous_right
            return Line(number, text, "unreadable", outcome.unreadable)
        if self._other_reading(chain.left, right):
            chain.last_right = previous_right
            return Line(
                number,
                text,
                "unreadable",
                TWO_READINGS,
            )
        chain.last_right = False
        if previous is not None and not previous_right and self.trial.compare(previous, right).right:
            return Line(number, text, "follows", f"This line follows from line {previous_line}, where the mistake is.")
        extra = sorted(free(right) - free(chain.left) - set(self.known.sizes))
        missing = sorted(free(chain.left) - free(right)) if outcome.fault else []
        fault = free_alone(chain.left, right, extra, missing) if extra else outcome.fault
        repair = mended(self.trial, chain.left, right, self.deadline)
        message = repair.sentence or fault or "The two sides differ."
        return Line(number, text, "wrong", message, outcome.numbers, repair.question, repair.mistake)

    def _other_vectors(self, left: Node, right: Node, rows: bool) -> str:
        """Says so if vectors are rows here and columns in a definition, or the other way round."""
        for each in self.known.defined.values():
            if each.rows == rows:
                continue
            here = rows or not self.trial.compare(left, right, rows=True).right
            if here and (rows is False or self._only_columns(each.tree)):
                one, other = ("rows", "columns") if rows else ("columns", "rows")
                return f"Right if vectors are {one} here; where {each.name} is defined, they are {other}."
        return ""

    def _only_columns(self, tree: Node) -> bool:
        try:
            self.trial.draws[0].computer(rows=True).of(tree)
        except (Fault, Unreadable):
            return True
        return False

    def _other_reading(self, left: Node, right: Node) -> bool:
        return any(
            self.trial.compare(left, other, quick=True).right and self.trial.compare(left, other).right
            for other in slash_readings(right)
        )


def _name_of(defined: Node | None) -> str:
    return defined.name if isinstance(defined, Ref) else ""


def _like_a_gradient(name: str) -> bool:
    """Whether a name is d and that of an array, as people write arrays: dx, dW_1, dX̂, not diff."""
    return bool(re.match(rf"d{parsing.LETTER}(?![^\W\d_]{{2}})", name))


def _letters(label: str) -> list[str]:
    """The index letters of a label, or none if it is a word or a number."""
    try:
        letters = list(parsing.indices_of(label))
    except Unreadable:
        return []
    return [] if any(letter.isdigit() for letter in letters) else letters


def _is_mathematics(text: str) -> bool:
    """Whether a line without = is an expression, not words."""
    words = set(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+|_\{?\w+\}?|\bd\w+", " ", text)))
    if re.search("[<>≤≥≈∝→∈~]", text):
        return False  # a remark, such as A_ij > 0
    return not words - reading.FUNCTIONS and bool(re.search(r"[_^⊙*/]|\bsum\b|\)\s*\(", text))


def derivation(text: str) -> DerivationReport:
    """Check a written derivation line by line: `.ok`, `.first_wrong`, `.lines`.

    text: what one writes on paper, in indices or in matrices, plain or in LaTeX; `docs/derivations.md` shows how.
    The first line of a name defines it. Every other equation is a claim: it is computed for three draws of random
    arrays whose sizes all differ. A gradient dX is compared with the derivative of the loss by the definitions above
    (Squire and Trapp 1998, the complex step), and so is ∂A_il/∂S_ij.

    Raises TypeError if text is not a str, and ModuleNotFoundError, which names the extra, without the library lark.
    Nothing in the text raises an error: what cannot be read is a verdict of its line.
    """
    if not isinstance(text, str):
        raise TypeError(f"derivation: expected the text as a str, got {type(text).__name__}")
    parsing.parser()
    if text.count("\n") >= MOST_LINES or len(text) > 400_000:
        told = f"The text has {text.count(chr(10)) + 1} lines; {MOST_LINES} are the limit. Check it in parts."
        return DerivationReport((Line(1, text.splitlines()[0][:80], "unreadable", told),))
    if re.search("Φ|erf|gelu|phi", text, re.IGNORECASE):
        functions.load()  # before the clock starts
    checker = Checker()
    return DerivationReport(tuple(checker.lines(text)))
