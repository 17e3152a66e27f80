"""Which value a gradient belongs to, and the name under which the report of finite differences has the two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..show.stepper.recording import Bound, Call, Step

Pairs = dict[int, tuple["Bound", str]]  # serial number of a gradient: its value, and the report's name or ""


def pairs_of(calls: Iterable[Call], steps_of: Sequence[Sequence[Step]]) -> Pairs:
    """Match every `dname` that a pullback bound with the `name` of the call that made it. steps_of: by call."""
    pullbacks: dict[int, list[Call]] = {}
    for call in calls:
        if call.backward:
            pullbacks.setdefault(call.forward_call, []).append(call)
    pairs: Pairs = {}
    for maker, made in pullbacks.items():
        values = _bindings(steps_of[maker])
        gradients = _bindings([step for call in made for step in steps_of[call.index]])
        for name, bindings in values.items():
            pairs |= _matched(bindings, gradients.get("d" + name, []))
    return pairs


def _bindings(steps: Iterable[Step]) -> dict[str, list[list[Bound]]]:
    """For each name of a floating-point array its bindings, each followed by what was changed of it in place."""
    found: dict[str, list[list[Bound]]] = {}
    for step in steps:
        for bound in step.bound:
            if bound.value.is_float_array:
                bindings = found.setdefault(bound.name, [])
                if bound.in_place and bindings:
                    bindings[-1].append(bound)
                else:
                    bindings.append([bound])
    return found


def _matched(values: list[list[Bound]], gradients: list[list[Bound]]) -> Pairs:
    """The pairs of one name.

    As in verify: a name bound once meets the last dname, one bound n times in a loop meets dname bound n times in the
    reverse order, and these have a row in its report. Any other dname, such as a sum that is not yet complete, is
    shown beside the last value and has no row.
    """
    pairs: Pairs = {bound.serial: (values[-1][-1], "") for changes in gradients for bound in changes}
    if len(values) == 1 and gradients:
        pairs[gradients[-1][-1].serial] = (values[0][-1], values[0][0].title)
    elif len(values) == len(gradients):
        for i, (value, changes) in enumerate(zip(values, reversed(gradients), strict=True)):
            pairs |= {bound.serial: (value[-1], "") for bound in changes}
            pairs[changes[-1].serial] = (value[-1], f"{value[0].title}[{i}]")
    return pairs
