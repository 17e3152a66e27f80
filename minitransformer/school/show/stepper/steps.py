"""The steps of a recorded forward and backward pass, and ways to look things up in them."""

from __future__ import annotations

import bisect
import copy
import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....check.trace.calls import Binding, Call, partners_of
from ....check.trace.values import Value
from ....check.verify import Report, Row
from ....core.layers import Module
from .naming import as_function, in_words


@dataclass(frozen=True, eq=False)
class Step:
    """One executed statement and what it bound. It comes after the steps of the calls that ran inside it.

    quiet: there is nothing to see: it bound no number, or belongs to a check of the arguments, or to a helper that
    returns what it was given.
    """

    index: int
    call: int
    line: int
    source: str
    bound: tuple[Binding, ...]
    quiet: bool
    other: dict[str, Any] = field(repr=False, compare=False)  # names bound to other values than numbers: None, ...


def counts(bound: Binding) -> bool:
    """Whether a name is worth a step of its own: an array, or a number that is neither a size nor a flag.

    A mask that is the same everywhere is a flag.
    """
    array = bound.value.array
    if array is not None and array.dtype == bool:
        return bool(array.any() and not array.all())
    return bound.value.shape != () or is_float(bound)


def is_float(bound: Binding) -> bool:
    """Whether it holds numbers with respect to which one can differentiate."""
    return bound.value.dtype.startswith("float")


class Summarised:
    """A placeholder for an array that was only summarised: its shape is known, its numbers are not."""

    def __init__(self, value: Value) -> None:
        self.shape, self.ndim, self.dtype = value.shape, len(value.shape), np.dtype(value.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class Steps:
    """`.steps` in the order they ended, the `.calls` they belong to, and the `.report` of a check, if there was one.

    `.again()` records the same call once more, with the code as it is then: with a mistake in it, for example.
    """

    name: str
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    report: Report | None = None
    again: Callable[[], Steps] | None = field(default=None, repr=False, compare=False)
    about: str = ""  # what is recorded, in a few words
    tokens: tuple[str, ...] = ()  # the words behind the rows
    whole: str = ""  # the class of the model that what is recorded is a part of

    def find(self, title: str) -> tuple[Step, Binding]:
        """The last step that bound the given title, such as "attention.scores" or "attention.dscores"."""
        if title not in self._by_title:
            raise KeyError(f"nothing called {title!r} was recorded")
        return self._by_title[title]

    def steps_of(self, call: Call) -> tuple[Step, ...]:
        """The steps of one call, in order, without the steps of inner calls."""
        return self._by_call[call.index]

    def calls_in(self, step: Step) -> tuple[Call, ...]:
        """The calls that ran inside this step's statement, in order."""
        own = self._by_call[step.call]
        before = own[own.index(step) - 1].index if own[0] is not step else -1
        return tuple(c for c in self._children[step.call] if before < self._by_call[c.index][-1].index < step.index)

    def step_around(self, call: Call) -> Step | None:
        """The caller's step inside which the call ran; None for the outermost calls."""
        if call.parent is None:
            return None
        own = self._by_call[call.parent]
        place = bisect.bisect(own, self._by_call[call.index][-1].index, key=lambda step: step.index)
        return own[place] if place < len(own) else None

    def path(self, step: Step) -> tuple[Call, ...]:
        """The calls that were running, from the outermost to the step's own."""
        path = [self.calls[step.call]]
        while (parent := path[0].parent) is not None:
            path.insert(0, self.calls[parent])
        return tuple(path)

    def words_for(self, call: Call) -> str:
        """What papers call what is called."""
        return in_words(call.name, self._without_encoder)

    def function_for(self, call: Call) -> str:
        """What is called, in a formula."""
        return as_function(call.name, self._without_encoder)

    @functools.cached_property
    def _without_encoder(self) -> bool:
        return "LanguageModel" in {self.whole, *(call.name.partition(".")[0] for call in self.calls)}

    def is_helper(self, call: Call) -> bool:
        """Whether it is a part of its caller: a private function, or a method of the layer that calls it."""
        owner, _, name = call.name.rpartition(".")
        return name.startswith("_") or (owner != "" and owner == self.calls[call.parent or 0].name)

    def is_one_of_several(self, call: Call) -> bool:
        """Whether its caller makes more calls of the same name."""
        return self._alike[call.parent, call.name, call.backward] > 1

    def binding(self, serial: int) -> tuple[Step, Binding]:
        """The step that made the binding of this serial number, and the binding."""
        return self._by_serial[serial]

    def returned(self, step: Step) -> list[Binding]:
        """The named arrays that a return statement returns; pullbacks are skipped."""
        waiting = [self.calls[step.call].results] if step.source.startswith("return ") else []
        found = []
        while waiting:
            result = waiting.pop(0)
            if isinstance(result, tuple):
                waiting = [*result, *waiting]
            elif result is not None and result.value.shape and result.serial in self._by_serial:
                found.append(self._by_serial[result.serial][1])
        return found

    def first(self, bound: Binding) -> Binding:
        """The first name of the very array."""
        while bound.origin is not None:
            bound = self.binding(bound.origin)[1]
        return bound

    def visible(self, step: Step) -> dict[str, Binding]:
        """The arrays and numbers that the step's line could see: by name, the latest binding before this step."""
        return {bound.name: bound for other in self._before(step) for bound in other.bound}

    def _before(self, step: Step) -> list[Step]:
        """The steps whose names the step's line could see: those before it, and in a pullback those of its maker."""
        call = self.calls[step.call]
        made = [] if call.forward_call == call.index else self._by_call[call.forward_call]
        return [*made, *(other for other in self._by_call[call.index] if other.index < step.index)]

    def scalars(self, step: Step) -> set[str]:
        """The names that the step's line sees or binds which are single numbers."""
        bindings = [*self.visible(step).values(), *step.bound]
        return {bound.name for bound in bindings if bound.value.shape == ()}

    def names_before(self, step: Step) -> dict[str, Any]:
        """Every name that the step's line could see, with its value; arrays are the recorded copies (on the host)."""
        names = dict(self.calls[step.call].globals)
        for other in self._before(step):
            names |= {name: self._on_host(x) for name, x in other.other.items()}
            names |= {bound.name: as_seen(bound.value) for bound in other.bound}
        return names | {"xp": np}

    def _on_host(self, x: Any) -> Any:
        """A copy on the host of a module that is on a device; any other object as it is."""
        if not isinstance(x, Module) or all(parameter.device == "numpy" for _, parameter in x.parameters()):
            return x
        if id(x) not in self._copies:
            self._copies[id(x)] = copy.deepcopy(x).to("numpy")
        return self._copies[id(x)]

    @functools.cached_property
    def _copies(self) -> dict[int, Module]:
        return {}

    def pair_of(self, step: Step, bound: Binding) -> Binding | None:
        """In backward, the value whose gradient this is: for `dname`, the `name` of the call that made the pullback.

        If both were bound equally often, as in a loop, they pair in reverse order; otherwise it is the last value.
        """
        return self._partners.get(bound.serial, (None, ""))[0]

    def check_of(self, step: Step, bound: Binding) -> Row | None:
        """The report's row for a gradient: for `dname` in a pullback, the row of `name`. Without `verify`, None.

        If a gradient is filled or summed in steps, its last step has the row. A gradient without a value of its own,
        such as a parameter's in a layer, has the row of the gradient that it is another name for.
        """
        if bound.serial in self._partners:
            return self._checks.get(self._partners[bound.serial][1])
        if bound.origin is None or not self.is_gradient(bound):
            return None
        return self.check_of(*self.binding(bound.origin))

    def is_gradient(self, bound: Binding) -> bool:
        """Whether it is a gradient: `dname` in a pullback, or what a pullback's helper computed from a gradient."""
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
        """Whether this gradient has no row in the report because its value was computed during backward.

        Recompute runs its layer again there. Finite differences displace only what the forward pass binds, so they
        cannot check this second run; a mistake in it shows in the rows of the inputs and the parameters.
        """
        ran_again = self.calls[bound.call.forward_call].in_backward
        return self.report is not None and ran_again and self._partners.get(bound.serial, (None, ""))[1] != ""

    @functools.cached_property
    def bindings(self) -> tuple[tuple[Step, Binding], ...]:
        """All bindings in the order of their steps, each with its step."""
        return tuple((step, bound) for step in self.steps for bound in step.bound)

    @functools.cached_property
    def number_of(self) -> dict[int, int]:
        """By the serial of a binding: its place among all bindings."""
        return {bound.serial: number for number, (_, bound) in enumerate(self.bindings)}

    @functools.cached_property
    def _by_title(self) -> dict[str, tuple[Step, Binding]]:
        return {bound.title: (step, bound) for step, bound in self.bindings}

    @functools.cached_property
    def _by_serial(self) -> dict[int, tuple[Step, Binding]]:
        return {bound.serial: (step, bound) for step, bound in self.bindings}

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
    def _alike(self) -> Counter[tuple[int | None, str, bool]]:
        return Counter((call.parent, call.name, call.backward) for call in self.calls)

    @functools.cached_property
    def _partners(self) -> dict[int, tuple[Binding, str]]:
        return partners_of(self.calls)

    @functools.cached_property
    def _checks(self) -> dict[str, Row]:
        rows = () if self.report is None else self.report.rows
        inputs = {f"{self.calls[0].label}.{row.name}": row for row in rows if row.kind == "input"}
        return inputs | {row.name: row for row in rows if row.kind == "intermediate"}

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """What walk.py and symbols.py make of a step or of all of them, made at the first request."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    @functools.cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}


def as_seen(value: Value) -> Any:
    """What a line sees: the array or number, or a placeholder."""
    return Summarised(value) if value.array is None else value.plain()
