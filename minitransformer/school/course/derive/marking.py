"""Mark an answer to such an exercise line by line, and say what is missing to the finish."""

import html
from dataclasses import dataclass, replace
from typing import Any

from ....check.derivation import parsing
from ....check.derivation.checking import MOST_LINES, Checker, get_ready, too_long
from ....check.derivation.faults import Fault, Unreadable
from ....check.derivation.lines import Statement, statements
from ....check.derivation.report import DerivationReport, Line
from ....check.derivation.tree import Call, Node, Over, Partial, Ref
from . import setting
from .task import WITHOUT_SUM, Derivation

SECONDS = 10.0  # for an answer; in a browser everything takes several times as long
_TOTALS = {"sum", "mean", "rowsum", "colsum", "rowmean", "tr"}
_ONLY_START = "What is given stands in the exercise, and nothing can be added. Write `name = ...` for a new name."


@dataclass(frozen=True, repr=False)
class Marked:
    """The marks of an answer: `.right`, `.score` from 0 to 1, `.lines` with a verdict each, `.missing`.

    missing: what the answer does not find yet. remarks: why a line that seems to find it does not count.
    formulas: each line as MathML, "" if it cannot be read.
    """

    name: str
    report: DerivationReport
    missing: tuple[str, ...]
    score: float
    remarks: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines, counted as typed, with their verdicts."""
        return self.report.lines

    @property
    def right(self) -> bool:
        """Whether every line is right and everything asked for is found."""
        return self.report.ok and not self.missing

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        if self.right:
            return f"{self.name}: right."
        if not any(line.verdict not in ("words", "given") for line in self.lines):
            return f"{self.name}: no answer yet."
        told = [self.report.summary().removeprefix("derivation: ")]
        if self.missing:
            told.append(f"still to find: {', '.join(self.missing)}")
        return f"{self.name}: {'; '.join(told)}."

    def as_dict(self) -> dict[str, Any]:
        """The marks as JSON types."""
        judged = {"name": self.name, "right": self.right, "score": self.score, "message": str(self)}
        lists = {"formulas": list(self.formulas), "missing": list(self.missing), "remarks": list(self.remarks)}
        return judged | lists | self.report.as_dict()

    def __str__(self) -> str:
        return "\n".join([self.verdict, *self.remarks, *str(self.report).splitlines()[1:]])  # its first is a summary

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{html.escape(text)}</p>" for text in (self.verdict, *self.remarks))
        return said + self.report._repr_html_().partition("</p>")[2]  # without its own summary


class _Marker:
    """A check of an answer, which goes on from the start of the exercise."""

    def __init__(self, exercise: Derivation) -> None:
        self.checker = Checker(SECONDS)
        self.own = set[str]()
        for statement in statements(exercise.start):
            self.own.add(_bare(statement.text))
            line = self.checker.line(statement)
            if line.verdict not in ("given", "defines"):
                raise ValueError(f"{exercise.name}: the start cannot be used: {line}")
        self.known = self.checker.known
        self.loss = self.known.loss()
        self.closed = {goal.removesuffix(WITHOUT_SUM) for goal in exercise.finish if goal.endswith(WITHOUT_SUM)}
        self.given = {*self.known.given, *self.known.numbers}
        self.derived: set[str] = set()  # what a line finds, whether that line is right or wrong
        self.open: dict[str, tuple[int, str]] = {}  # by goal: a line, and what stands in it
        self.claims: set[Any] = set()  # what was right

    def line(self, statement: Statement) -> Line:
        """The verdict on a line of the answer."""
        if _bare(statement.text) in self.own:
            if statement.kind == "equation":
                self.checker.line(statement)  # the next line may go on with it
            return Line(statement.number, statement.text, "given")
        if statement.kind == "given":
            return Line(statement.number, statement.text, "unreadable", _ONLY_START)
        before = dict(self.known.defined)
        line = self.checker.line(statement)
        if self.known.loss() != self.loss and not self.known.upstream():
            self.known.defined = before
            return replace(line, verdict="unreadable", message="This is the name of a loss; choose another name.")
        chain = self.checker.chain
        if line.verdict in ("right", "wrong", "follows") and chain is not None and chain.last is not None:
            self._note(line, chain.left, chain.last)
        return line

    def formula(self, statement: Statement) -> str:
        """The line that has just been marked as MathML; "" if it is no equation or cannot be read."""
        chain = self.checker.chain
        if statement.kind != "equation" or chain is None:
            return ""
        reader = self.checker.reader
        try:
            left, *sides = parsing.sides(statement.text)
            rights = []
            for side in sides:
                reader.bound, reader.comparing = list(chain.left.free), 0
                rights.append(reader.expression(side))
            return setting.equation(None if left is None else chain.left, rights)
        except (Unreadable, Fault, TypeError):
            return ""

    def _note(self, line: Line, left: Node, right: Node) -> None:
        key = self._key(left)
        rest = self._underived(right, key)
        if line.verdict == "right" and left != right and not (rest and key and self._key(rest) == key):
            self.claims.add((left, right))
        if key and rest:
            self.open[key] = (line.number, str(rest))
        elif key:
            self.derived.add(key)

    def _key(self, node: Node) -> str:
        """What a left side finds: "dx", "∂y/∂x", or the name of an array; "" for an expression."""
        if isinstance(node, Ref):
            base = self.known.base_of(node.name)
            return node.name if base is None else f"d{base}"
        if isinstance(node, Partial) and isinstance(node.top, Ref):
            is_loss = node.top.name in ("L", self.loss)
            return f"d{node.bottom.name}" if is_loss else f"∂{node.top.name}/∂{node.bottom.name}"
        return ""

    def _underived(self, node: Node, goal: str) -> Node | None:
        """A part of an expression that must not stand at the finish."""
        key = self._key(node)
        if isinstance(node, Partial):
            return None if key[:1] == "d" and key in self.derived | self.given else node
        if isinstance(node, Ref):
            is_gradient = self.known.base_of(node.name) is not None
            if (is_gradient or key == goal) and key not in self.derived:
                return node
            own = self.known.defined.get(node.name)
            return self._underived(own.tree, goal) if own is not None and not is_gradient else None
        if goal in self.closed and (isinstance(node, Over) or (isinstance(node, Call) and node.function in _TOTALS)):
            return node
        return next((rest for part in node.parts if (rest := self._underived(part, goal))), None)


def mark(exercise: Derivation, text: str) -> Marked:
    """The marks of an answer.

    The answer goes on from the start of the exercise: its lines are claims about the arrays that are given there, and a
    line that defines one of them anew is compared with the start. An answer finds dx with a line dx = ... that has no ∂
    and no gradient that has not been found above it. The score is the share of the lines that are right; a line that
    follows from a wrong one counts neither way. If something is not found, it is the share of the lines of the model
    derivation, or that of what is found, whichever is more.

    Raises TypeError if text is not a str, ValueError if it is too long, and ModuleNotFoundError without the library
    lark.
    """
    if not isinstance(text, str):
        raise TypeError(f"check_derivation: expected the answer as a str, got {type(text).__name__}")
    get_ready(text + exercise.start)
    if too_long(text):
        raise ValueError(f"an answer has fewer than {MOST_LINES} lines, got {text.count(chr(10)) + 1}")
    marker = _Marker(exercise)
    marked = [(marker.line(statement), marker.formula(statement)) for statement in statements(text)]
    lines, formulas = tuple(line for line, _ in marked), tuple(formula for _, formula in marked)
    missing = [goal for goal in exercise.finish if goal.removesuffix(WITHOUT_SUM) not in marker.derived]
    nearly = [marker.open.get(goal.removesuffix(WITHOUT_SUM)) for goal in missing]
    remarks = [f"Line {each[0]} is not the finish: {each[1]} still stands in it." for each in nearly if each]
    lost = sum(line.verdict in ("wrong", "unreadable") for line in lines)
    right = len(marker.claims)
    found = 1.0 - len(missing) / len(exercise.finish)
    share = right / (right + lost) if right else 0.0
    score = max(found * share, right / max(right + lost + len(missing), len(exercise.model))) if missing else share
    return Marked(exercise.name, DerivationReport(lines), tuple(missing), score, tuple(remarks), formulas)


def start_formulas(exercise: Derivation) -> list[str]:
    """The equations that an exercise gives, as MathML."""
    marker = _Marker(exercise)
    told = [(marker.checker.line(statement), marker.formula(statement)) for statement in statements(exercise.start)]
    return [formula for _, formula in told if formula]


def _bare(line: str) -> str:
    return "".join(line.split())
