"""What was recorded: calls, what they bound to names, and which gradient belongs to which value.

The convention that the gradient of `scores` is called `dscores` makes this possible: `name` is looked up in a call,
and `dname` in the pullback that this call made.
"""

from __future__ import annotations

import dis
import functools
import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .values import Value


@dataclass(eq=False)
class Call:
    """One call of an op, layer or model, of a helper that one of these calls, or of a pullback.

    name: "attention", "Linear", ...; label: the same with a number, "Linear#2", if there are several. A pullback has
    the label of the call that made it. A function that runs forward during the backward pass, as in the second run of a
    recomputed layer, is named "linear in backward".
    """

    index: int
    name: str
    code: types.CodeType = field(repr=False)
    globals: dict[str, Any] = field(repr=False)
    parent: int | None
    depth: int
    maker: int | None  # for a pullback: the call that made it
    in_backward: bool  # whether it ran during the backward pass
    label: str = ""
    source: tuple[str, ...] = field(default=(), repr=False)
    results: Any = field(default=None, repr=False)  # a Returned, a tuple of these, or None
    bound: dict[str, list[Group]] = field(default_factory=dict, repr=False)  # the bindings of each name, in order

    @property
    def backward(self) -> bool:
        """Whether it is a pullback."""
        return self.maker is not None

    @property
    def forward_call(self) -> int:
        """For a pullback, the index of the call that made it; for any other call, its own index."""
        return self.index if self.maker is None else self.maker

    @property
    def file(self) -> str:
        """The file that contains its code."""
        return self.code.co_filename

    @property
    def first_line(self) -> int:
        """The line of this file where its function begins."""
        return self.code.co_firstlineno


@dataclass(frozen=True, eq=False)
class Binding:
    """One binding of a name. serial: its number among all bindings; origin: the serial of another binding of this very
    array; in_place: the name already held this array, and the array's numbers changed.
    """

    name: str
    value: Value
    call: Call = field(repr=False)
    serial: int = field(repr=False)
    origin: int | None = field(default=None, repr=False)
    in_place: bool = False

    @property
    def title(self) -> str:
        """The label of the call, and the name: "attention.scores", "linear#2.product"."""
        return f"{self.call.label}.{self.name}"


GRADIENT_OF = ("d", "grad_")  # what comes before a name in the name of its gradient
Group = list[Binding]  # a binding, then each in-place change of its array while the name held it


@dataclass(frozen=True)
class Pair:
    """A value and its gradient: binding number `occurrence` of `name` in call number `call`.

    code, turn: that call is number `turn` of the calls of this code, forward, from 0.
    order: the serial of the gradient's binding, or of the value's if it has no gradient; earlier: what the gradient's
    name held before, if the name of the value is bound once. Zeros, which wait to be filled, are left out.
    """

    call: int
    name: str
    occurrence: int
    title: str
    value: np.ndarray
    gradient: np.ndarray | None
    why_not: str = ""  # why there is no gradient to compare the value with
    order: int = -1
    earlier: tuple[np.ndarray, ...] = ()
    code: types.CodeType | None = field(default=None, repr=False)
    turn: int = 0


def label_calls(calls: Sequence[Call]) -> None:
    """Label all calls: the k-th of several calls with the same name is "linear#k"."""
    total = Counter(call.name for call in calls if call.maker is None)
    count: Counter[str] = Counter()
    for call in calls:
        if call.maker is None:
            count[call.name] += 1
            call.label = call.name if total[call.name] == 1 else f"{call.name}#{count[call.name]}"
        else:
            call.label = calls[call.maker].label


def matched(values: list[Group], gradients: list[Group], again: list[Group]) -> dict[int, int]:
    """The pairing rule: {i: j} if gradient j of a name belongs to its value i, each numbered in order of binding.

    again: the bindings of the name in backward. If it computes the name once more, such as the scores of a tile, a
    gradient belongs to the value whose numbers the name holds when the gradient is bound; if one finds no such value,
    the name means something else there, and there are no pairs. Otherwise, if name and dname are bound n times
    each, as in a loop, they pair in reverse order. A name bound once pairs with the last dname (a gradient that is
    summed in steps), a dname bound once with the last name. Other counts have no pairs.
    """
    held = [[group[-1] for group in again if group[0].serial < gradient[0].serial][-1:] for gradient in gradients]
    if any(held):
        same = [[i for i, value in enumerate(values) if now and _equal(value[0], now[0])] for now in held]
        # Equal ones in a row are steps of one value, such as a mask that hides nothing; others could be confused.
        rows = [found for found in same if found and found[-1] - found[0] == len(found) - 1]
        return {found[-1]: same.index(found) for found in rows if same.count(found) == 1} if all(same) else {}
    if len(values) == 1 or len(gradients) == 1:
        return {len(values) - 1: len(gradients) - 1}
    return {i: len(values) - 1 - i for i in range(len(values))} if len(values) == len(gradients) else {}


def _equal(one: Binding, other: Binding) -> bool:
    a, b = one.value.array, other.value.array
    return a is not None and b is not None and a.shape == b.shape and np.allclose(a, b, equal_nan=True)


def _meetings(calls: Iterable[Call]) -> Iterator[tuple[Call, str, list[Group], list[Group], dict[int, int]]]:
    """(call, name, bindings of name, bindings of dname, which belong together) for each name that has a gradient."""
    pullbacks: dict[int, list[Call]] = {}
    calls = list(calls)
    for call in calls:
        if call.maker is not None:
            pullbacks.setdefault(call.maker, []).append(call)
    for call in calls:
        for name in call.bound if call.index in pullbacks else ():
            values = _of_arrays([call], name)
            pulled = (_of_arrays(pullbacks[call.index], start + name) for start in GRADIENT_OF)
            gradients = next(filter(None, pulled), [])
            if values and gradients:
                yield call, name, values, gradients, matched(values, gradients, _of_arrays(pullbacks[call.index], name))


def _of_arrays(calls: Iterable[Call], name: str) -> list[Group]:
    return [group for call in calls for group in call.bound.get(name, ()) if group[0].value.is_float_array]


def _title(values: list[Group], i: int) -> str:
    return values[i][0].title + (f"[{i}]" if len(values) > 1 else "")


@functools.lru_cache(maxsize=1024)  # the same few ops are called again and again
def _used_at_once(code: types.CodeType) -> frozenset[str]:
    """The names that a line binds and then uses, as `y = f(x); return y, backward` does.

    The checker puts a changed value in its place only after the line, too late for that use: the difference would be 0.
    """
    lines = {offset: line for start, end, line in code.co_lines() for offset in range(start, end)}
    bound: dict[str, int | None] = {}  # the line that has bound each name last
    found = set()
    for each in dis.get_instructions(code):
        if "_FAST" not in each.opname and "_DEREF" not in each.opname:
            continue
        names = each.argval if isinstance(each.argval, tuple) else (each.argval,)  # one opcode may do two things
        for use, name in zip(re.findall("LOAD|STORE", each.opname), names, strict=False):
            if use == "STORE":
                bound[name] = lines[each.offset]
            elif name in bound and bound[name] == lines[each.offset]:
                found.add(name)
    return frozenset(found)


def values_of(calls: Iterable[Call]) -> dict[tuple[int, str], list[Pair]]:
    """Every floating-point array that the calls bind, by call and name, as Pairs that have no gradient yet."""
    turns: Counter[types.CodeType] = Counter()
    found: dict[tuple[int, str], list[Pair]] = {}
    for call in calls:
        for name in call.bound:
            values, pairs = _of_arrays([call], name), found.setdefault((call.index, name), [])
            for i, (first, *_) in enumerate(values):
                assert first.value.array is not None
                pair = Pair(call.index, name, i, _title(values, i), first.value.array, None, order=first.serial)
                pairs.append(replace(pair, code=call.code, turn=turns[call.code]))
        turns[call.code] += not call.in_backward
    return found


def pairs_of(calls: Iterable[Call]) -> list[Pair]:
    """Every value whose gradient has a name, with the gradient, or with the reason why they cannot be paired.

    A value is taken as it was when bound; a gradient, which may be filled later, as it was at the end.
    """
    found: list[Pair] = []
    calls = list(calls)
    bound = values_of(calls)
    for call, name, values, gradients, partners in _meetings(calls):
        why_not = ""
        if any(len(group) > 1 for group in values):
            why_not = f"the array of {name} was changed in place after it was bound"
        elif name in _used_at_once(call.code):
            why_not = f"{name} is used in the very line that binds it; give each statement a line of its own"
        elif not partners:
            counts = f"{name} gets {len(values)} values, {gradients[0][0].name} {len(gradients)}"
            why_not = counts if len(values) != len(gradients) else f"{name} has other values in backward"
        if why_not:
            found += [replace(pair, why_not=why_not) for pair in bound[call.index, name]]
            continue
        for i in partners:
            pair = bound[call.index, name][i]
            *others, last = [binding for group in gradients[: partners[i] + 1] for binding in group]
            arrays = (binding.value.array for binding in others if len(values) == 1)
            earlier = tuple(x for x in arrays if x is not None and x.shape == pair.value.shape and x.any())
            found.append(replace(pair, gradient=last.value.array, order=last.serial, earlier=earlier))
    return found


def partners_of(calls: Iterable[Call]) -> dict[int, tuple[Binding, str]]:
    """By the serial of each gradient: the value to show beside it, and the title of their Pair or "".

    If a gradient is filled or summed in steps, the last step has the title. A gradient without a value of its own is
    shown beside the last value.
    """
    found: dict[int, tuple[Binding, str]] = {}
    for _, _, values, gradients, partners in _meetings(calls):
        found |= {binding.serial: (values[-1][-1], "") for group in gradients for binding in group}
        for i, j in partners.items():
            found |= {binding.serial: (values[i][-1], "") for binding in gradients[j]}
            found[gradients[j][-1].serial] = (values[i][-1], _title(values, i))
    return found
