"""The steps at which the page stops, unless all lines are asked for: those that show numbers which nobody has seen yet.

They leave out what only gives an array another name, hands it on or reshapes it, and a number that formulas write out,
such as 1/√d_k. A call that shows one array alone is one step: its caller's line. So is a function without calls of its
own, such as a linear map or a softmax, after its first time; and from its first time on where that would be more than
LONG steps, if it is called again. A pullback is one step if the call that made it is, or if its one formula can be
written in the symbols of its caller; but not where its caller gives the gradient no name, as for a table's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....check.trace.calls import Binding, Call
from .paper import inlined, paper
from .sentences import names_of
from .steps import Step, Steps, counts, is_float
from .walk import walk_of

LONG = 60


@dataclass(frozen=True)
class Stop:
    """into: the call that is one step here, or None. also: the gradients of parameters that its pullback bound."""

    into: int | None
    also: tuple[Binding, ...]


class Stops:
    """found: the stops, by the index of their step. See above for the rules."""

    def __init__(self, recording: Steps, folds: bool = False) -> None:
        """folds: whether functions without calls of their own are one step from their first time on."""
        self.recording, self.folds = recording, folds
        self.known: set[int] = set()  # serials of the first bindings of arrays that have been shown
        self.met: set[object] = set()  # the code of functions that were shown line by line, or rearranged an array
        self.folded: set[int] = set()  # calls that are one step
        self.idle: set[int] = set()  # calls that hand back what they are given, such as dropout that is switched off
        self.times = Counter(call.code for call in recording.calls if not call.in_backward)
        self.moving: list[int] = []  # calls since the last one began that put numbers into another order
        steps = [s for call in recording.calls if call.parent is None for s in self._visit(call)]
        last = recording.steps[-1]
        if last.source.startswith("return ") and "," in last.source:  # all gradients together
            steps.append(last)
        self.found = {step.index: self._stop(step) for step in steps}

    def _visit(self, call: Call) -> list[Step]:
        """The stops in a call and in what it calls."""
        found: list[Step] = []
        for step in self.recording.steps_of(call):
            for inner in self.recording.calls_in(step):
                found += self._within(inner, step)
            if self._is_stop(step, call):
                found.append(step)
                self.known |= {self.recording.first(bound).serial for bound in step.bound}
        return found

    def _within(self, call: Call, around: Step) -> list[Step]:
        before, self.moving = set(self.known), []
        named = self._names_result(around, call)
        stops = [] if call.forward_call in self.folded and call.backward and named else self._visit(call)
        is_leaf = self._is_leaf(call)
        repeated = is_leaf and (call.code in self.met or (self.folds and self.times[call.code] > 1))
        if not stops and not any(call.index <= moving for moving in self.moving):
            self.idle.add(call.index)
        one = inlined(self.recording, around) is not None if call.backward else len(stops) <= 1 or repeated
        if one and named:
            self.folded.add(call.index)
        if is_leaf and len(stops) > 1 and not call.backward:
            self.met.add(call.code)
        if self.is_folded(call) and named:
            self.known = before
            return []
        return stops

    def is_folded(self, call: Call) -> bool:
        return call.index in self.folded or call.forward_call in self.folded

    def _is_leaf(self, call: Call) -> bool:
        """Whether it calls nothing, or nothing but one such function, as a layer calls its op."""
        inner = [c for step in self.recording.steps_of(call) for c in self.recording.calls_in(step)]
        return not inner or (len(inner) == 1 and self._is_leaf(inner[0]))

    def _names_result(self, step: Step, call: Call) -> bool:
        """Whether the caller's line, or one around it, gives the result a name."""
        return any(bound.origin is not None or bound.value.shape for bound in step.bound) or (
            step.source.startswith("return ") and self.recording.calls[step.call].parent is not None
        )

    def _is_stop(self, step: Step, call: Call) -> bool:
        steps = self.recording.steps_of(call)
        if step is steps[0] and call.code.co_name != "<lambda>":
            return call.parent is None and any(b.value.shape or is_float(b) for b in step.bound)
        if step.quiet:
            return False
        new = [b for b in step.bound if counts(b) and (b.in_place or self.recording.first(b).serial not in self.known)]
        if not new:
            return False
        made = [inner for inner in self.recording.calls_in(step) if not inner.backward]
        moved = all(self._is_moved(step, bound) for bound in new)
        if moved:
            self.moving.append(call.index)
        if moved and made:  # split_heads, the first time
            first = made[0].code not in self.met
            self.met.add(made[0].code)
            return first and not self.folds
        written_out = all(bound.value.shape == () for bound in new) and not any(b.value.shape for b in self._read(step))
        if moved or written_out or (step.source and paper(self.recording, step) is None):
            self.known |= {self.recording.first(bound).serial for bound in step.bound}
            return False
        return True

    def _is_moved(self, step: Step, bound: Binding) -> bool:
        """Whether it has the numbers of one array that the line reads, maybe in another order."""
        array = bound.value.array
        if array is None or array.size < 2 or array.dtype.kind != "f" or bound.in_place:
            return False
        arrays = [other for b in self._read(step) if (other := b.value.array) is not None]
        read = [other for other in arrays if other.size == array.size and other.dtype.kind == "f"]
        ordered = np.sort(array, axis=None)
        return any(np.array_equal(np.sort(other, axis=None), ordered) for other in read)

    def _read(self, step: Step) -> Iterator[Binding]:
        """The arrays and numbers that a line reads or, from an inner call, is given."""
        walk = walk_of(self.recording, step)
        names = names_of(step)
        yield from (bound for name, bound in walk.bound.items() if name in names)

    def _stop(self, step: Step) -> Stop:
        folded = [call for call in self.recording.calls_in(step) if self.is_folded(call)]
        also = self._parameters(step, [call for call in folded if call.backward])
        return Stop(folded[0].index if folded else None, tuple(also))

    def _parameters(self, step: Step, waiting: list[Call]) -> Iterator[Binding]:
        """The gradients of parameters in these calls and in what they call, each once."""
        own = {self.recording.first(bound).serial for bound in step.bound}
        while waiting:
            call = waiting.pop(0)
            for inner in self.recording.steps_of(call):
                waiting += self.recording.calls_in(inner)
                for bound in inner.bound:
                    if (
                        bound.name in ("dweight", "dbias", "dgamma", "dbeta", "dtable", "dtransposed")
                        and self.recording.first(bound).serial not in own
                    ):
                        own.add(self.recording.first(bound).serial)
                        yield bound


def stops_of(recording: Steps) -> Stops:
    """The stops of a recording, few enough to go through. They are found once: a terminal asks at every step."""

    def few() -> Stops:
        stops = Stops(recording)
        return stops if len(stops.found) <= LONG else Stops(recording, folds=True)

    return recording.kept("stops", few)
