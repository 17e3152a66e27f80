"""Tries every equation of a text on numbers."""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from . import functions, notation, parsing, reading
from .asking import DOT_OF_ENTRIES, Questions
from .comparing import NO_INVERSE, Outcome, Trial
from .defining import TWO_READINGS, Definitions
from .edits import is_it
from .explaining import bound_and_free, free_alone
from .faults import Fault, OutOfTime, Unreadable
from .left_sides import argument, only_named, solved, take_meaning, with_arguments
from .lines import Statement, other_ways, statements
from .mending import by_entries, mended, slash_readings
from .names import Given, Names, as_sizes
from .report import DerivationReport, Line
from .shifting import origin
from .spelling import spelled
from .tree import Compare, Node, Number, Product, Ref, Terms, Transposed
from .turning import Turns, straight

SECONDS = 1.7
_BAD = ("wrong", "unreadable")
MOST_LINES = 1000


@dataclass
class Chain:
    """The equation that lines beginning with = go on with."""

    left: Node
    last: Node | None = None  # the last right side that could be read
    last_line: int = 0
    last_right: bool = True


_ONE_EQUATION = "Write the cases as one equation, with δ_ij, which is 1 where i = j and else 0."
_ENTRIES = "⊗ multiplies entries here, as in an LSTM's gates. Write the outer product of x and y as x yᵀ, or x_i y_j."


class Checker:
    """The state of a check: names, draws, and the chain of equations that a line may continue."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.deadline = time.monotonic() + seconds
        self.known = Names()
        self.reader = reading.Reader(self.known)
        self.trial = Trial(self.known, self.deadline)
        self.definitions = Definitions(self.known, self.reader, self.trial)
        self.questions = Questions(self.known, self.trial)
        self.turns = Turns(self.known)
        self.chain: Chain | None = None
        self.done: dict[int, tuple[Line, Chain | None]] = {}  # the statements tried so far, and the chain behind each
        self.defined_in: dict[str, int] = {}  # names, and the lines that define them
        self.lefts: list[str] = []  # of the statements, in plain notation
        self.unsure: dict[str, int] = {}  # names like dx that are no gradients, and are not used so far: their lines

    def lines(self, text: str) -> Iterator[Line]:
        """The verdicts on all lines of a text."""
        text = spelled(text)
        self.known.origin = origin(text)
        self.known.einstein = bool(re.search(r"einstein|repeated ind|summation convention", text, re.IGNORECASE))
        self.known.primed = bool(re.search(r"[^\W\d_]'(?:_\w+)?\s*(?:=|:)", text))
        self.turns.none = "@" in text  # NumPy's product of vectors, which are neither columns nor rows
        found = statements(text)
        lefts = (each.text.partition("=")[0] for each in found)
        self.lefts = [notation.plain(left) if time.monotonic() < self.deadline else "" for left in lefts]
        for n in range(len(found)):
            self._in_order(found, n)
        lines = [self.done[n][0] for n in range(len(found))]
        if self.known.told and not self.known.alone and any(line.verdict in _BAD for line in lines):
            other = Checker(self.deadline - time.monotonic())
            other.known.alone = True
            lines = min(lines, list(other.lines(text)), key=lambda each: sum(line.verdict in _BAD for line in each))
        for line in lines:
            unused = line.verdict == "defines" and line.number in self.unsure.values()
            yield replace(line, verdict="unreadable") if unused else line

    def _in_order(self, found: list[Statement], n: int, waiting: tuple[int, ...] = ()) -> None:
        """Try one statement; if it uses a name that a later one defines, as after "where", that one first."""
        chain = self.done[n - 1][1] if n - 1 in self.done else None
        while n not in self.done:
            self.chain = chain
            line = self.line(found[n])
            name, later = self._defined_later(line.message, n) if line.verdict in _BAD else ("", -1)
            if later >= 0 and later not in (*self.done, *waiting) and len(waiting) < 20:
                self._in_order(found, later, (*waiting, n))
            else:
                told = f"{name} is used here, but line {found[later].number} defines it, which cannot be read before."
                self.done[n] = replace(line, message=told) if later >= 0 else line, self.chain

    def _defined_later(self, message: str, n: int) -> tuple[str, int]:
        """The name that a line lacks, as its message says, and the statement below that defines it; else "" and -1."""
        lacks = re.match(r"(\S+?)(?:_\S+)? (?:is not defined\.|needs an argument)", message)
        lefts = [re.sub(r"[{}()&\s]|_.*", "", left) for left in self.lefts[n + 1 :]] if lacks else []
        return (lacks[1], n + 1 + lefts.index(lacks[1])) if lacks and lacks[1] in lefts else ("", -1)

    def line(self, statement: Statement) -> Line:
        """The verdict on one statement; if it is bad, on what it says without its words, or where its "if" holds."""
        chain, line = self.chain, self._line(statement)
        if line.verdict in _BAD and statement.kind == "equation" and time.monotonic() < self.deadline:
            kept = self.chain
            for other in other_ways(statement.text, statement.typed, lambda word: self.known.rank(word) is not None):
                self.chain = chain
                again = self._line(replace(statement, text=other))
                if again.verdict not in ("unreadable", line.verdict):
                    return replace(again, text=statement.text)
            self.chain = kept
        return line

    def _line(self, statement: Statement) -> Line:
        """The verdict on one statement as it stands."""
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
        except (Unreadable, Fault, np.linalg.LinAlgError) as problem:
            if statement.kind == "given" and re.match(r"(?i)\W*(?:let|consider)\b[^∈:(>{]*$", statement.typed):
                return Line(number, text, "words")
            self._lost(text)
            told = NO_INVERSE if isinstance(problem, np.linalg.LinAlgError) else str(problem)
            if text.startswith("[") and "is not defined" in told:
                told = _ONE_EQUATION
            return Line(number, text, "wrong" if isinstance(problem, Fault) else "unreadable", told)
        except OutOfTime:
            return Line(number, text, "unreadable", "The text takes too long to try; check it in parts.")
        except Exception as problem:  # whatever is typed, it is no reason for a traceback
            return Line(number, text, "unreadable", f"The line cannot be tried ({type(problem).__name__}).")

    def _lost(self, text: str) -> None:
        """Of a line that cannot be read, later lines may still go on with its left side."""
        head, equals, _ = text.partition("=")
        if head.strip() and equals and self.chain is None:
            with contextlib.suppress(Unreadable, Fault):
                if side := parsing.sides(head + "= 0")[0]:
                    self.chain = Chain(self.definitions.side(side, ()))

    def _give(self, text: str) -> str:
        before = len(self.known.told)
        self.known.give(text)
        found = self.known.to_be_found()
        for name in found:
            self.known.given.pop(name, None)
            if name in self.known.numbers:
                self.known.numbers.remove(name)
        self.trial.fill(found)
        told = self.known.told[before:]
        told += [f"To be found, so not given: {', '.join(found)}."] if found else []
        return " ".join(told)

    def _equation(self, number: int, text: str) -> Line:
        if re.match(r"(if|for|case|when)\b[^:]*[=≠][^:]*:", text):
            raise Unreadable(_ONE_EQUATION)
        plain, strides = self.known.with_strides(text)
        if strides:
            self.trial.again()
            numbers = [f"{name} is a whole number here, and tried as {self.known.strides[name]}." for name in strides]
            line = self._equation(number, text)
            return replace(line, message=" ".join([*numbers, line.message]).strip())
        left, *rights = parsing.sides(plain)
        if left is None:
            if self.chain is None:
                raise Unreadable("The line begins with =, but there is no equation above that could be read.")
        else:
            if not rights:
                raise Unreadable("An equation has two sides.")
            take_meaning(self.reader, [left, *rights])
            letter, named = argument(left), re.sub(r"\([^()]*\)", "", " ".join(self.lefts))
            if letter and self.lefts and self.known.rank(letter) is None and not re.search(rf"\b{letter}(\b|_)", named):
                self.known.given[letter] = Given(())
                self.trial.fill()
            rights = [side for side in rights[:-1] if not only_named(self.reader, side)] + rights[-1:]
            left, arguments = with_arguments(self.reader, left)
            left, rights[0] = solved(self.reader, left, rights[0])
            single = left.single
            if single and single.name == f"d{self.known.loss()}" and rights[0].whole == "1":
                told = f"That is so: {single.name} is the derivative of the loss by itself."
                return Line(number, text, "words", told)
            size = single.name if single and not single.after else ""
            if size and self.known.only_size(size) and self.definitions.is_number(rights[0]):
                told = f"{size} is a size: it is tried with several numbers, so this line is left out."
                return Line(number, text, "words", told)
            defined = self.definitions.new(single, rights[0]) if single else None
            self.chain = Chain(defined or self.definitions.side(left, ()), last_line=number)
            if isinstance(defined, Ref):
                rights = rights[1:]
                self.defined_in.setdefault(defined.name, number)
                if arguments:
                    self.known.functions[defined.name] = arguments
                made = self.known.defined[defined.name]
                direction = self.trial.draws[0].computer(made.reading)
                if turn := self.turns.read(Ref(defined.name, made.indices), made.tree, direction):
                    return Line(number, text, "wrong", turn)
                if not rights:
                    if self.questions.like_a_gradient(defined.name):
                        self.unsure[defined.name] = number
                    told = DOT_OF_ENTRIES if self.definitions.entries else ""
                    return Line(number, text, "defines", told or self.questions.remark(defined.name))
        trees = [self.definitions.side(right, self.chain.left.free) for right in rights]
        self.chain.left = self.definitions.by_entry(self.chain.left, trees[0])
        lines = [self._claim(number, text, tree) for tree in trees]
        worst_first = ("wrong", "unreadable", "follows", "right")
        return min(lines, key=lambda line: worst_first.index(line.verdict))

    # claims

    def _claim(self, number: int, text: str, right: Node) -> Line:
        chain = self.chain
        assert chain is not None
        outcome = self.trial.compare(chain.left, right)
        dot = DOT_OF_ENTRIES if self.definitions.entries else ""
        if not outcome.right:
            entries, sized = by_entries(right), as_sizes(right, self.known)  # S may be a size and an array: 1/S
            if entries != right and self.trial.compare(chain.left, entries).right:
                outcome, right, dot = Outcome(True), entries, DOT_OF_ENTRIES
            elif right == Number("0") and isinstance(chain.left, Terms):  # A x - b = 0, but for rounding
                first = chain.left.terms[0]
                outcome = self.trial.compare(Terms(("+", "+"), (first, chain.left)), first)
            elif sized is not right and self.trial.compare(chain.left, sized).right:
                outcome = Outcome(True)
        where = chain.left.factors[0] if isinstance(chain.left, Product) else None  # 1[i = j] of a case
        both = Terms(("+", "+"), (chain.left, where)) if isinstance(where, Compare) else None
        if outcome.right and both and self.trial.compare(chain.left, both).right:
            outcome = Outcome(False, unreadable=f"{where} holds on none of the numbers tried.")
        self.known.used |= chain.left.names | right.names
        previous, previous_right, previous_line = chain.last, chain.last_right, chain.last_line
        chain.last, chain.last_line = right, number
        if outcome.right:
            for name in chain.left.names | right.names:
                self.unsure.pop(name, None)
            chain.last_right = True
            self.trial.decide(right, outcome.reading)
            layout = self._layout(chain.left, right, outcome)
            if layout.endswith("Write indices."):
                return Line(number, text, "unreadable", layout)
            told = dot or layout if previous_right else f"This line is right, although line {previous_line} is not."
            turn, question = self._turn(chain.left, right, outcome)
            if turn:
                chain.last_right = False
                return Line(number, text, "wrong", turn, repair=question)
            return Line(number, text, "right", told)
        if outcome.unreadable:
            chain.last, chain.last_right = previous, previous_right
            return Line(number, text, "unreadable", outcome.unreadable)
        if any(self.trial.compare(chain.left, other).right for other in slash_readings(right)):
            chain.last_right = previous_right
            return Line(number, text, "unreadable", TWO_READINGS)
        if re.search(r"⊗|\\otimes", text) and "shape" in (outcome.fault or ""):
            chain.last_right = previous_right
            return Line(number, text, "unreadable", _ENTRIES)
        chain.last_right = False
        if previous is not None and not previous_right and self.trial.compare(previous, right).right:
            return Line(number, text, "follows", f"This line follows from line {previous_line}, where the mistake is.")
        extra = sorted(right.free - chain.left.free - set(self.known.sizes))
        missing = sorted(chain.left.free - right.free) if outcome.fault else []
        fault = free_alone(chain.left, right, extra, missing) if extra else outcome.fault
        repair = mended(self.trial, chain.left, right, self.deadline)
        other = re.fullmatch(r"Is it d\S+, not ([^\s?]+)\?", repair.question)
        if other and (line := self.defined_in.get(other[1])):
            fault = f"{fault or 'The two sides differ.'} Look at line {line}, which defines {other[1]}."
        message = repair.sentence or fault or bound_and_free(chain.left, right) or "The two sides differ."
        return Line(number, text, "wrong", message, outcome.numbers, repair.question, repair.mistake)

    def _layout(self, left: Node, right: Node, outcome: Outcome) -> str:
        """What the first ∂y/∂x that tells says about its layout: a row for each entry of y, or of x; else ""."""
        found = self.known.jacobians(left, right)
        by_x = outcome.reading.by_entries_of_x
        if not found or self.known.by_entries_of_x is not None:
            return ""
        if not by_x and self.trial.compare(left, right, layout=True).right:
            return ""
        y, x = str(found[0].top), str(found[0].bottom)
        axes = [self.known.axes(name) for name in found[0].top.names]
        if by_x and axes == [self.known.axes(found[0].bottom.name)]:
            return f"It is right if ∂{y}/∂{x} has a row for each entry of {x}, wrong if for each of {y}. Write indices."
        self.known.by_entries_of_x = bool(by_x)
        return f"So ∂{y}/∂{x} has a row for each entry of {x if by_x else y} in this text."

    def _turn(self, left: Node, right: Node, outcome: Outcome) -> tuple[str, str]:
        """Which vector a right line takes for a row although it is a column, or the other way round; and a repair."""
        draw = self.trial.draws[0]
        problem = self.turns.read(left, right, draw.computer(outcome.reading))
        if not problem:
            return "", ""
        for other in (straight(right, self.known), Transposed(right)):
            outcome = self.trial.compare(left, other)
            right_too = other != right and outcome.right
            if right_too and not self.turns.read(left, other, draw.computer(outcome.reading)):
                return problem, is_it(other, right)
        return problem, ""


def _is_mathematics(text: str) -> bool:
    """Whether a line without = is an expression, not words."""
    words = set(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+|_\{?\w+\}?|\bd\w+", " ", text)))
    if re.search("[<>≤≥≈∝→∈~]", text):
        return False  # a remark, such as A_ij > 0
    return not words - functions.FUNCTIONS and bool(re.search(r"[_^⊙*/]|\bsum\b|\)\s*\(", text))


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
    get_ready(text)
    if too_long(text):
        told = f"The text has {text.count(chr(10)) + 1} lines; {MOST_LINES} are the limit. Check it in parts."
        return DerivationReport((Line(1, text.splitlines()[0][:80], "unreadable", told),))
    return DerivationReport(tuple(Checker().lines(text)))


def get_ready(text: str) -> None:
    """Load what the check of a text needs, before its clock starts. Raises ModuleNotFoundError without lark."""
    parsing.parser()
    if re.search("Φ|erf|gelu|phi", text, re.IGNORECASE):
        functions.load()


def too_long(text: str) -> bool:
    """Whether a text is more than anyone derives."""
    return text.count("\n") >= MOST_LINES or len(text) > 400_000
