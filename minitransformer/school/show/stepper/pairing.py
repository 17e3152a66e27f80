"""Which numbers of two recordings of the same call belong together, where one of them ran with a mistake in the code.

First the calls are paired. A pullback belongs to that of its maker's partner. Any other call belongs to the one that
the same statement made in its caller's partner; what a changed statement called is paired by its name, in order. So a
call that one recording lacks does not shift the others. Within two calls, the executed statements are aligned by their
text. A name is compared as it is after the statement that binds it and after the lines that only the wrong code has
there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from difflib import SequenceMatcher

from ....check.trace.calls import Binding, Call
from .steps import Step, Steps


def partners(right: Steps, wrong: Steps) -> dict[int, tuple[Step, Binding]]:
    """By the serial of a binding in `right`: its partner in `wrong`, with its step. Those without one are missing."""
    found: dict[int, tuple[Step, Binding]] = {}
    for call, other in paired_calls(right, wrong):
        own, theirs = right.steps_of(call), wrong.steps_of(other)
        for step, (start, end) in zip(own, _aligned([s.source for s in own], [s.source for s in theirs]), strict=True):
            for bound in step.bound:
                there = next((b for s in reversed(theirs[:end]) for b in s.bound if b.name == bound.name), None)
                if there is None:
                    continue
                at = wrong.binding(there.serial)[0]
                if at in theirs[start:end]:
                    found[bound.serial] = at, there
                elif bound.in_place:  # what these statements should have changed is as it was
                    found[bound.serial] = theirs[end - 1], there
    return found


def _aligned(ours: list[str], theirs: list[str]) -> list[tuple[int, int]]:
    """For each of our statements, which of theirs correspond: from the first to behind the last."""
    if ours == theirs:
        return [(i, i + 1) for i in range(len(ours))]
    found: list[tuple[int, int]] = []
    for kind, a, b, start, end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "insert" and found:
            found[-1] = found[-1][0], end
        elif b - a == end - start:
            found += [(start + i, start + i + 1) for i in range(b - a)]
        else:
            found += [(start, end)] * (b - a)
    return found


def paired_calls(right: Steps, wrong: Steps) -> Iterator[tuple[Call, Call]]:
    """Each call of `right` with its partner in `wrong`."""
    statements = {call: step.source for r in (right, wrong) for step in r.steps for call in r.calls_in(step)}

    def called_by(recording: Steps, caller: Call | None) -> list[Call]:
        parent = None if caller is None else caller.index
        return [call for call in recording.calls if call.parent == parent and not call.backward]

    def made_by(recording: Steps, maker: Call) -> list[Call]:
        return [call for call in recording.calls if call.maker == maker.index]

    def paired_within(caller: Call | None, other: Call | None) -> Iterator[tuple[Call, Call]]:
        ours, theirs = called_by(right, caller), called_by(wrong, other)
        same = list(_in_order(ours, theirs, lambda call: (call.name, statements.get(call))))
        paired = {call for pair in same for call in pair}
        yield from same
        ours, theirs = ([call for call in calls if call not in paired] for calls in (ours, theirs))
        yield from _in_order(ours, theirs, lambda call: call.name)

    waiting = list(paired_within(None, None))
    while waiting:
        call, other = waiting.pop()
        yield call, other
        waiting += [*paired_within(call, other), *zip(made_by(right, call), made_by(wrong, other), strict=False)]


def _in_order(ours: list[Call], theirs: list[Call], key: Callable[[Call], Hashable]) -> Iterator[tuple[Call, Call]]:
    """Each of our calls with the first of theirs that has its key and is not taken."""
    left = list(theirs)
    for call in ours:
        other = next((other for other in left if key(other) == key(call)), None)
        if other is not None:
            left.remove(other)
            yield call, other
