"""The steps of a recorded forward and backward pass, and what can be asked of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...trace.calls import Binding, Call, partners_of
from ...trace.values import Value
from ...verify import Report, Row


@dataclass(frozen=True, eq=False)
class Step:
    """One executed statement and what it bound. It stands after the steps of the calls that ran inside it.

    quiet: nothing to see: it bound no number, or belongs to a check of the arguments.
    """

    index: int
    call: int
    line: int
    source: str
    bound: tuple[Binding, ...]
    quiet: bool
    other: dict[str, Any] = field(repr=False, compare=False)  # names bound to something that is no number: None, ...


class Summarised:
    """Stands for an array of which only a summary was recorded: its shape is known, its numbers are not."""

    def __init__(self, value: Value) -> None:
        self.shape, self.ndim, self.dtype = value.shape, len(value.shape), np.dtype(value.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class Steps:
    """`.steps` in the order they ended, the `.calls` they stand in, and the `.report` of a check where there was one.

    `.again()` records the same call once more, on the code as it is then: with a mistake in it, say.
    """

    name: str
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    report: Report | None = None
    again: Callable[[], Steps] | None = field(default=None, repr=False, compare=False)

    def find(self, title: str) -> tuple[Step, Binding]:
        """The last step that bound the given title, such as "attention.scores" or "attention.dscores"."""
        if title not in self._by_title:
            raise KeyError(f"nothing called {title!r} was recorded")
        return self._by_title[title]

    def steps_of(self, call: Call) -> tuple[Step, ...]:
        """The steps of one call, in order, without those of the calls inside it."""
        return self._by_call[call.index]

    def calls_in(self, step: Step) -> tuple[Call, ...]:
        """The calls that ran inside this step's statement, in order."""
        own = self._by_call[step.call]
        before = own[own.index(step) - 1].index if own[0] is not step else -1
        return tuple(c for c in self._children[step.call] if before < self._by_call[c.index][-1].index < step.index)

    def path(self, step: Step) -> tuple[Call, ...]:
        """The calls that were running, from the outermost to the step's own."""
        path: list[Call] = []
        index: int | None = step.call
        while index is not None:
            path.insert(0, self.calls[index])
            index = self.calls[index].parent
        return tuple(path)

    def binding(self, serial: int) -> tuple[Step, Binding]:
        """The step that made the binding of this serial number, and the binding."""
        return self._by_serial[serial]

    def visible(self, step: Step) -> dict[str, Binding]:
        """The latest binding before this step of every name of an array or number that its line could see."""
        call = self.calls[step.call]
        seen = [] if call.forward_call == call.index else list(self._by_call[call.forward_call])
        seen += [other for other in self._by_call[call.index] if other.index < step.index]
        return {bound.name: bound for other in seen for bound in other.bound}

    def names_before(self, step: Step) -> dict[str, Any]:
        """Every name that the step's line could see, arrays as the copies that were recorded (on the host)."""
        call = self.calls[step.call]
        names = dict(call.globals)
        for index in dict.fromkeys((call.forward_call, call.index)):
            for other in self._by_call[index]:
                if index != call.index or other.index < step.index:
                    names |= other.other | {bound.name: _as_seen(bound.value) for bound in other.bound}
        return names | {"xp": np}

    def pair_of(self, step: Step, bound: Binding) -> Binding | None:
        """In backward, the value whose gradient this is: for `dname` the `name` of the call that made the pullback.

        A name that was bound as often as its gradient, in a loop, meets it in the reverse order; else the last one.
        """
        return self._partners.get(bound.serial, (None, ""))[0]

    def check_of(self, step: Step, bound: Binding) -> Row | None:
        """The report's row for a gradient: of `dname` in a pullback the row of `name`. Without `verify` there is none.

        A gradient that is filled or summed up in steps has its row at the last of them.
        """
        return self._checks.get(self._partners.get(bound.serial, (None, ""))[1])

    def is_gradient(self, bound: Binding) -> bool:
        """Whether it is a gradient: `dname` in a pullback, or in a helper that a pullback calls what came of one."""
        call = bound.call
        if call.backward:
            return bound.name.startswith("d")
        if not call.in_backward or not bound.value.is_float_array:
            return False
        given = self._by_call[call.index][0].bound
        if bound not in given:
            return any(map(self.is_gradient, given))
        return bound.origin is not None and self.is_gradient(self.binding(bound.origin)[1])

    def is_unreachable(self, step: Step, bound: Binding) -> bool:
        """Whether this gradient would have a row in the report, had its value not been computed during backward.

        A Checkpoint runs its layer again there. Finite differences displace what the forward pass binds, and what runs
        in the second pass has no place in it; a mistake there shows in the rows of the inputs and the parameters.
        """
        ran_again = self.calls[bound.call.forward_call].in_backward
        return self.report is not None and ran_again and self._partners.get(bound.serial, (None, ""))[1] != ""

    @functools.cached_property
    def _by_title(self) -> dict[str, tuple[Step, Binding]]:
        return {bound.title: (step, bound) for step in self.steps for bound in step.bound}

    @functools.cached_property
    def _by_serial(self) -> dict[int, tuple[Step, Binding]]:
        return {bound.serial: (step, bound) for step in self.steps for bound in step.bound}

    @functools.cached_property
    def _by_call(self) -> tuple[tuple[Step, ...], ...]:
        steps: list[list[Step]] = [[] for _ in self.calls]
        for step in self.steps:
            steps[step.call].append(step)
        return tuple(map(tuple, steps))

    @functools.cached_property
    def _children(self) -> tuple[tuple[Call, ...], ...]:
        children: list[list[Call]] = [[] for _ in self.calls]
        for call in self.calls:
            if call.parent is not None:
                children[call.parent].append(call)
        return tuple(map(tuple, children))

    @functools.cached_property
    def _partners(self) -> dict[int, tuple[Binding, str]]:
        return partners_of(self.calls)

    @functools.cached_property
    def _checks(self) -> dict[str, Row]:
        rows = () if self.report is None else self.report.rows
        inputs = {f"{self.calls[0].label}.{row.name}": row for row in rows if row.kind == "input"}
        return inputs | {row.name: row for row in rows if row.kind == "intermediate"}

    @functools.cached_property
    def workings(self) -> dict[Any, Any]:
        """Where expansion.py keeps what it has worked out of a step, for the next cell of the same step."""
        return {}


def _as_seen(value: Value) -> Any:
    return Summarised(value) if value.array is None else value.plain()
