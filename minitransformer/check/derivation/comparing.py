"""Whether two expressions are equal: on three draws of numbers and, where that is possible, in fractions."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .draws import Draw
from .faults import Fault, Inexact, OutOfTime, Unreadable
from .indexing import PLAIN, Reading
from .names import Names
from .report import Numbers
from .tree import Call, Compare, Node, Number, Over, Partial, Place, Product

DRAWS = 3
TOLERANCE = 1e-9  # of each entry
NOISE = 1e-13  # what rounding may leave of the largest entry, and of one
NO_INVERSE = "A matrix in this line has no inverse."
NOT_FINITE = "is not finite on the numbers tried: a root, a quotient or a power in it fails."


@dataclass
class Outcome:
    """How one equation fared: right, or the reason why not."""

    right: bool
    fault: str = ""
    numbers: Numbers | None = None
    unreadable: str = ""
    reading: Reading = PLAIN  # the one in which it is right


class Trial:
    """The draws on which the equations of a text are tried."""

    def __init__(self, known: Names, deadline: float) -> None:
        self.known, self.deadline = known, deadline
        self.draws: list[Draw] = []
        for seed in range(DRAWS):
            self.draws.append(Draw(known, seed, deadline, others=tuple(self.draws)))
        self.wide = Draw(known, DRAWS, deadline, kind="wide")  # behind a bound such as that of min(x, 6)
        self.exact = Draw(known, 7, deadline, kind="exact")
        self.sweep: list[Draw] = []

    def fill(self, not_given: Iterable[str] = ()) -> None:
        """Draw numbers for what has been given."""
        self.sweep = []
        for draw in [*self.draws, self.wide, self.exact]:
            for name in not_given:
                draw.values.pop(name, None)
            draw.fill()

    def again(self) -> None:
        """Draw all numbers anew, lengths as well."""
        self.sweep = []
        for draw in [*self.draws, self.wide, self.exact]:
            with contextlib.suppress(Inexact, Fault, Unreadable):
                draw.again(lengths=True)

    def ways(self, *sides: Node) -> list[Reading]:
        """How expressions may be read: vectors as columns or as rows; I without its size as that of each size."""
        sizes = list(self.known.sizes) if any("I" in side.names for side in sides) else []
        return [Reading(rows, size) for rows in (False, True) for size in sizes or [""]]

    def decide(self, tree: Node, way: Reading) -> None:
        """Take in that vectors are columns, or rows, if what is right can be computed in no other way.

        Repairs are looked for in that way. Lines are read in both: papers write q_i^T k_j beside P_i V.
        """
        if self.known.rows is None and any(isinstance(part, Product) and "" in part.marks for part in tree.all):
            try:
                self.draws[0].computer(way._replace(rows=not way.rows)).of(tree)
            except (Fault, Unreadable, np.linalg.LinAlgError):
                self.known.rows = way.rows

    def compare(self, left: Node, right: Node, layout: bool | None = None) -> Outcome:
        """Whether both sides are equal, in one of the ways in which they may be read. layout: in that one alone."""
        undefined = [i for i in sorted(right.free - left.free - set(self.known.sizes)) if _only_a_place(i, right)]
        if undefined:
            told = f"{undefined[0]} is not defined. Give it above, as in `given {undefined[0]}: (n, d)`."
            return Outcome(False, unreadable=told)
        outcomes: list[Outcome] = []
        # on the right, ∂a/∂b may hold fixed what stands beside b in the definition of a: the chain rule, path by path
        both = (False, True) if any(isinstance(part, Partial) for part in right.all) else (False,)
        by_vector = self.known.by_vector(left, right)
        turns = (frozenset[str](), by_vector) if by_vector else (by_vector,)
        layouts = self.layouts(left, right) if layout is None else [layout]
        for by_x, way, turned, fixed in itertools.product(layouts, self.ways(left, right), turns, both):
            reading = way._replace(turned=turned, fixed=fixed, by_entries_of_x=by_x)
            outcomes.append(self._compared(left, right, reading))
            if outcomes[-1].right:
                return outcomes[-1]
        return next((outcome for outcome in outcomes if outcome.numbers), outcomes[0])

    def layouts(self, *sides: Node) -> list[bool]:
        """Whether ∂y/∂x may have a row for each entry of x: what the text has decided, or both."""
        decided = self.known.by_entries_of_x
        both = decided is None and self.known.jacobians(*sides)
        return [False, True] if both else [bool(decided)]

    def test_of(self, left: Node, right: Node) -> Callable[[Node], bool]:
        """A quick test, on one draw, of whether an expression equals the left side."""
        ways = [way for way in self.ways(left, right) if self.known.rows in (None, way.rows)]
        computers = [self.draws[0].computer(way) for way in ways]
        try:
            value = computers[0].of(left)
        except (Fault, Unreadable):
            return lambda right: False
        runs = computers[0].runs(left, {})
        for computer in computers:
            computer.kept = {}

        def fits(right: Node) -> bool:
            for computer in computers:
                with contextlib.suppress(Fault, Unreadable, np.linalg.LinAlgError, ValueError):
                    p, q, _ = computer.same(value, computer.of(right, runs))
                    return bool(np.allclose(p, q, rtol=1e-8, atol=1e-11))
            return False

        return fits

    def _compared(self, left: Node, right: Node, way: Reading) -> Outcome:
        tried = infinite = 0
        seen = False
        more = self._sweep() if (branches := self._has_branches(left, right)) else ()
        for draw in itertools.chain(self.draws, [self.wide] if branches else [], more):
            try:
                p, q, labels = both(draw, left, right, way)
            except (Fault, Unreadable, np.linalg.LinAlgError) as problem:
                if draw not in self.draws:
                    continue  # what cannot be computed far out
                if isinstance(problem, Fault):
                    return Outcome(False, fault=str(problem))
                return Outcome(False, unreadable=str(problem) if isinstance(problem, Unreadable) else NO_INVERSE)
            if not np.all(np.isfinite(p)):
                continue
            if not np.all(np.isfinite(q)):
                infinite += 1
                continue
            tried += 1
            gap = np.abs(p - q)
            # far out, 1 - tanh(x)^2 and the like lose digits; a wrong branch is off by more
            largest = float(np.max(np.abs(p), initial=0.0))
            near = TOLERANCE * np.abs(p) if draw in self.draws else 1e-4 * largest
            if np.any(gap > near + NOISE * max(largest, 1.0)):
                if draw is self.wide and largest > 1e20:
                    continue  # log(1 - p) where p is almost 1
                return Outcome(False, numbers=_largest(gap, p, q, labels))
            seen = seen or largest > 1e6 * NOISE or largest < NOISE
        if infinite:
            return Outcome(False, unreadable=f"The line {NOT_FINITE}")
        if not tried:
            return Outcome(False, unreadable="The left side is not finite on the numbers tried.")
        exactly = self._exactly(left, right, way)
        if exactly is False:
            return Outcome(False, fault="The two sides are almost equal on all numbers tried, but not exactly.")
        if exactly is None and not seen:
            return Outcome(False, unreadable="Both sides are so small that rounding hides a difference.")
        if exactly is None and (tiny := self._tiny(left, right)):
            return Outcome(False, unreadable=f"{tiny} is too small to be seen beside others; give it a name, as eps.")
        return Outcome(True, reading=way)

    def _sweep(self) -> Iterator[Draw]:
        """Draws of ever larger numbers, for as long as a tenth of the time lasts: a wrong bound lies between two."""
        until = time.monotonic() + 0.1 * (self.deadline - time.monotonic())
        if not self.sweep:
            self.sweep = [Draw(self.known, 10 + n % 4, self.deadline) for n in range(40)]
            for n, draw in enumerate(self.sweep):
                draw.scale = Fraction(4 ** (n // 4), 3 ** (n // 4)) / 6
        for draw in itertools.takewhile(lambda _: time.monotonic() < until, self.sweep):
            if draw.positive != self.draws[0].positive:
                draw.positive = set(self.draws[0].positive)
                draw.values.clear()
            draw.fill()
            for made in self.known.defined.values():
                if made.name not in draw.values:
                    draw.define(made)
            if all(np.max(np.abs(value.array), initial=0.0) < 20.0 for value in draw.values.values()):
                yield draw  # larger numbers lose digits

    def _tiny(self, *sides: Node) -> str:
        """A number such as 1e-12 in the sides, or in a definition, that rounding may hide."""
        trees = [*sides, *(each.tree for each in self.known.defined.values())]
        numbers = [part.digits for tree in trees for part in tree.all if isinstance(part, Number)]
        return next((n for n in numbers if 0 < float(n) < 1e-8), "")

    def _has_branches(self, *sides: Node) -> bool:
        """Whether a side, or a definition that it comes from, has other branches for other numbers."""
        used = self.known.ancestors({name for side in sides for name in side.names})
        below = {base for name in used if (base := self.known.base_of(name)) is not None}
        trees = [each.tree for each in self.known.defined.values() if below or each.name in used]
        places = (Place, Place)
        for part in itertools.chain.from_iterable(tree.all for tree in (*sides, *trees)):
            if isinstance(part, Compare) and (type(part.left), type(part.right)) != places:
                return True
            if isinstance(part, Call | Over) and part.function in ("max", "min", "relu", "abs", "sign"):
                return True
        return False

    def _exactly(self, left: Node, right: Node, way: Reading) -> bool | None:
        """Whether both sides are equal in fractions; None if they cannot be computed so."""
        now = time.monotonic()
        self.exact.deadline = min(self.deadline, now + (self.deadline - now) * 0.1)
        try:
            p, q, _ = both(self.exact, left, right, way)
        except (Inexact, Fault, Unreadable, OutOfTime, ZeroDivisionError, TypeError, AttributeError):
            return None
        return bool(np.all(np.equal(p, q)))


def both(draw: Draw, left: Node, right: Node, way: Reading) -> tuple[Any, Any, tuple[str, ...]]:
    """Both sides on a draw, and their indices."""
    computer = draw.computer(way._replace(fixed=False))  # as on the right alone
    value = computer.of(left)
    return computer.same(value, draw.computer(way).of(right, computer.runs(left, {})))


def _largest(gap: Any, right: Any, typed: Any, labels: tuple[str, ...]) -> Numbers:
    """The entry with the largest gap."""
    at = np.unravel_index(int(np.argmax(gap)), gap.shape)
    counted = [str(int(n) + 1) for n in at]
    if labels and len(labels) == len(at):
        where = ", ".join(f"{label} = {n}" for label, n in zip(labels, counted, strict=True))
    else:
        where = f"entry ({', '.join(counted)})" if at else "these numbers"
    return Numbers(where, float(typed[at]), float(right[at]))


def _only_a_place(index: str, node: Node) -> bool:
    """Whether a letter stands as a number alone, as in 1[x > a], so that no array says how far it runs."""
    holders = [part for part in node.all if index in part.free and not any(index in child.free for child in part.parts)]
    return {type(part) for part in holders} == {Place}
