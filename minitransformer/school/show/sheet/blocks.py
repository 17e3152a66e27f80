"""The arrays of a recording as blocks of cells: what was given, and what each line computed, cell by cell, as a term.

A term was written out for one run. So the call runs again with other inputs and parameters, drawn at random, and each
line's terms must then give its new numbers. Where they do not, as where an input decides which expert is chosen, the
line cannot be written as formulas, and the error names it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....check.trace.calls import Binding
from ..stepper.expansion import NotExpandable, term_of
from ..stepper.expressions import Applied, Index, Number, numbers
from ..stepper.page_data import is_expandable
from ..stepper.page_edits import entry_of, other_numbers
from ..stepper.steps import Steps, is_float
from ..stepper.terms import Term, evaluate
from ..stepper.walk import Walk
from .again import again, given_numbers, parameter_gradients

DRAWS = 2
CLOSE = 1e-9  # relative: terms and arrays add in another order
_ORDER = "which numbers are the largest is found by sorting, and jumps with them: no sum or product of them gives it"
Place = tuple[int, int]  # the serial of a block, and which of its numbers


@dataclass(frozen=True, eq=False)
class Block:
    """An array. serial: of its binding. kind: "input", "constant", "forward" or "backward". call, line: where it was
    computed. cells: a term for each number, in order; None for what was given. gradient: of an input, the serials of
    the blocks whose sum is its gradient, each with whether it is transposed, as of a table that is also a weight.
    """

    serial: int
    name: str
    call: str
    array: np.ndarray
    kind: str
    line: str
    cells: tuple[Term, ...] | None
    gradient: tuple[tuple[int, bool], ...] = ()


def blocks_of(recording: Steps, name: str) -> Blocks:
    """The blocks of a recording: without the sides of its choices that were not taken, if it can do without."""
    try:
        return Blocks(recording, name)
    except ValueError:
        return Blocks(_with_choices(recording), name)


class Blocks:
    """The blocks that the output and the gradients of a recording are made of, in the order of their lines.

    name: of the example, for errors. output, upstream: the serials of the output and of its gradient. Raises ValueError
    that names the lines which cannot be written as formulas.
    """

    def __init__(self, recording: Steps, name: str) -> None:
        self.recording, self.name, self.title = recording, name, recording.about or recording.name
        self._homes: dict[int, int] = {}
        self._cells: dict[int, tuple[Term, ...] | None] = {}
        self._why: dict[int, str] = {}  # there are no terms
        self._literal: set[int] = set()  # single numbers that a formula writes out
        entries = (recording.steps[0], entry_of(recording))
        self._inputs = {b.serial: b.name for step in entries for b in step.bound if is_float(b)}
        self._same_parameter: dict[int, int] = {}
        self._transposed: dict[int, int] = {}  # by serial, the parameter whose transpose it holds
        draws = self._draws()
        self._parameters = self._found_parameters(draws)
        output = recording.calls[0].results[0].serial
        if output is None:
            raise ValueError(f"sheet: {name} returns an array that has no name in the code; give it one")
        self.output, self.upstream = self._home(output), entry_of(recording).bound[0].serial
        gradients = self._gradients()
        needed = self._needed([self.output, self.upstream, *(s for found in gradients.values() for s, _ in found)])
        if problems := self._problems(needed, [fresh for _, fresh in draws]):
            raise self._refusal(problems)
        self._literal = self._constants(needed, draws)
        self.all = [self._block(serial, gradients) for serial in needed if serial not in self._literal]
        self._by_serial = {block.serial: block for block in self.all}

    def place(self, number: Number) -> Place | None:
        """The block that holds a number of a term, and where in it; None for a constant."""
        if number.serial is None or self._home(number.serial) in self._literal:
            return None
        shape = self.recording.binding(number.serial)[1].value.shape
        return self._home(number.serial), int(np.ravel_multi_index(number.index, shape)) if shape else 0

    def of(self, serial: int) -> Block:
        """The block of this serial."""
        return self._by_serial[serial]

    # ---- Where an array is held. ----

    def _home(self, serial: int) -> int:
        """The serial of the block that holds a binding's array, which may have been bound under another name."""
        if serial not in self._homes:
            _, bound = self.recording.binding(serial)
            if bound.origin is not None and not bound.in_place:
                self._homes[serial] = self._home(bound.origin)
            else:
                self._homes[serial] = self._same_parameter.get(serial) or self._reshaped(bound) or serial
        return self._homes[serial]

    def _reshaped(self, bound: Binding) -> int | None:
        """The home of an array that has the same rows, in the same order, if this one was only given another shape."""
        cells = self._terms(bound.serial) or ()
        places = [self.place(cell) for cell in cells if isinstance(cell, Number)]
        homes = {place[0] for place in places if place is not None}
        if len(homes) != 1 or [place and place[1] for place in places] != list(range(len(cells))):
            return None
        (home,) = homes
        there = self.recording.binding(home)[1].value.shape
        same = np.prod(there, dtype=int) == len(cells) and there[-1:] == bound.value.shape[-1:]
        return home if same else None

    def _terms(self, serial: int) -> tuple[Term, ...] | None:
        """A term for each number of a binding; None if they are given."""
        if serial not in self._cells:
            step, bound = self.recording.binding(serial)
            made: tuple[Term, ...] | None = None
            if serial not in self._inputs and is_expandable(bound):
                try:
                    made = tuple(term_of(self.recording, step, bound, i) for i in np.ndindex(bound.value.shape))
                except NotExpandable as error:
                    self._why[serial] = str(error)
            is_read = made is not None and any(n.serial is not None for term in made for n in numbers(term))
            self._cells[serial] = made if is_read else None
        return self._cells[serial]

    def _needed(self, roots: Sequence[int]) -> list[int]:
        """The homes of all arrays that these are computed from, in the order of their lines."""
        found, waiting = set[int](), list(roots)
        while waiting:
            serial = waiting.pop()
            if serial not in found:
                found.add(serial)
                read = {n.serial for term in self._terms(serial) or () for n in numbers(term)}
                waiting += [self._home(other) for other in read if other is not None]
        return sorted(found, key=self.recording.number_of.__getitem__)

    # ---- What other inputs change. ----

    def _draws(self) -> list[tuple[dict[str, np.ndarray], Steps]]:
        rng = np.random.default_rng(0)
        arrays = {name: x for name, x in given_numbers(self.recording).items() if x.shape}
        given = [{name: other_numbers(x, rng) for name, x in arrays.items()} for _ in range(DRAWS)]
        return [(numbers, self._again(numbers)) for numbers in given]

    def _again(self, given: Mapping[str, np.ndarray]) -> Steps:
        with np.errstate(all="ignore"):
            fresh = again(self.recording, given)
        titles = [bound.title for _, bound in fresh.bindings]
        for number, (_, bound) in enumerate(self.recording.bindings):
            if titles[number : number + 1] != [bound.title]:
                raise self._refusal([bound.serial])
        return fresh

    def _now(self, fresh: Steps, serial: int) -> np.ndarray | None:
        """The array of a binding in another run."""
        return fresh.bindings[self.recording.number_of[serial]][1].value.array

    def _found_parameters(self, draws: Sequence[tuple[Mapping[str, np.ndarray], Steps]]) -> dict[int, str]:
        """The names of parameters, by the serials of the bindings that hold them first.

        Another binding of the same numbers has the first one as its home, one of their transpose reads it.
        """
        found = {name: serial for serial, name in self._inputs.items()}
        base = {name: x for name, x in given_numbers(self.recording).items() if x.shape}
        runs = [(base, self.recording), *draws]
        turned: dict[int, str] = {}
        for _, bound in self.recording.bindings:
            serial = bound.serial
            if bound.origin is not None or not bound.value.shape or serial in self._inputs or not is_float(bound):
                continue
            now = [self._now(fresh, serial) for _, fresh in runs]
            for name in base:
                values = [numbers[name] for numbers, _ in runs]
                if all(a is not None and np.array_equal(a, x) for a, x in zip(now, values, strict=True)):
                    self._same_parameter[serial] = found.setdefault(name, serial)
                    self._cells[serial] = None
                elif all(a is not None and np.array_equal(a, x.T) for a, x in zip(now, values, strict=True)):
                    turned.setdefault(serial, name)
        for serial, name in turned.items():
            if name in found and self._terms(serial) is None:
                value = base[name]
                self._transposed[serial] = found[name]
                at = [(j, i) for i, j in np.ndindex(value.T.shape)]
                self._cells[serial] = tuple(Number(value[place].item(), name, place, found[name]) for place in at)
        self._same_parameter = {s: first for s, first in self._same_parameter.items() if s != first}
        return {serial: name for name, serial in found.items() if serial not in self._inputs}

    def _problems(self, needed: Sequence[int], runs: Sequence[Steps]) -> list[int]:
        """The serials of the arrays whose terms do not give the numbers that they have in another run."""
        wrong = set()
        for fresh in runs:
            for _, bound in self.recording.bindings:
                home, now = self._home(bound.serial), self._now(fresh, bound.serial)
                held = self._now(fresh, home)
                if home in needed and not _close(held, now):
                    wrong.add(bound.serial)
            for serial in needed:
                array, now = self.recording.binding(serial)[1].value.array, self._now(fresh, serial)
                expected = now if serial in self._inputs or serial in self._parameters else array
                if (cells := self._terms(serial)) is not None:
                    expected = np.array([self._value(cell, fresh) for cell in cells], float)
                if array is None or np.isnan(array).any() or np.isposinf(array).any() or not _close(expected, now):
                    wrong.add(serial)
        return sorted(wrong, key=self.recording.number_of.__getitem__)

    def _value(self, term: Term, fresh: Steps) -> Any:
        """The number that a term gives with the numbers of another run."""

        def now(number: Number) -> Any:
            array = None if number.serial is None else self._now(fresh, number.serial)
            return number.value if array is None else array[number.index].item()

        return evaluate(term, now)

    def _constants(self, needed: Sequence[int], draws: Sequence[tuple[Mapping[str, np.ndarray], Steps]]) -> set[int]:
        """The single numbers that cannot be edited: sizes, flags, and settings that decide how the others compute."""
        rng = np.random.default_rng(1)

        def decides(name: str, array: np.ndarray) -> bool:
            try:
                return bool(self._problems(needed, [self._again({**draws[-1][0], name: other_numbers(array, rng)})]))
            except (ValueError, TypeError):
                return True

        constant = set()
        for serial in needed:
            bound = self.recording.binding(serial)[1]
            if bound.value.shape == () and self._terms(serial) is None and serial != self.upstream:
                name, array = self._inputs.get(serial), bound.value.array
                if name is None or array is None or bound.call.index != 0 or decides(name, array):
                    constant.add(serial)
        return constant

    def _refusal(self, serials: Sequence[int]) -> ValueError:
        told: dict[str, None] = {}
        for serial in serials:
            step, bound = self.recording.binding(serial)
            source = " ".join(step.source.split())
            file = Path(self.recording.calls[step.call].file).name
            why = _ORDER if bound.value.dtype.startswith(("int", "bool")) else self._why.get(self._home(serial))
            line = f"line {step.line} of {file}, `{source[:60]}{'…' * (len(source) > 60)}`"
            told[f"{line} ({why})" if why else line] = None
        more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
        return ValueError(
            f"sheet: {self.name} cannot be written as formulas. With other inputs these lines compute other sums: "
            f"{'; '.join(list(told)[:3])}{more}"
        )

    # ---- What is shown. ----

    def _gradients(self) -> dict[int, list[tuple[int, bool]]]:
        """The gradients of inputs and parameters, by their serials. A parameter that is used twice has several."""
        found: dict[int, list[tuple[int, bool]]] = {}
        for step, bound in self.recording.bindings:
            value = self.recording.pair_of(step, bound) if self.recording.is_gradient(bound) else None
            if value is None or not is_float(bound):
                continue
            there = self._home(value.serial)
            home, gradient = self._transposed.get(there, there), (self._home(bound.serial), there in self._transposed)
            whole = bound.call.forward_call == 0 if home in self._inputs else home in self._parameters
            if bound.in_place and whole:  # one array, to which parts were added: only what it holds at the end
                earlier = {b.serial for group in bound.call.bound[bound.name] for b in group}
                found[home] = [part for part in found.get(home, []) if part[0] not in earlier]
            if whole and gradient not in found.setdefault(home, []):
                found[home].append(gradient)
        added = parameter_gradients(self.recording)
        for home, name in self._parameters.items():
            if not self._is_sum(added[name], found.get(home, [])):
                found.pop(home, None)
        return found

    def _is_sum(self, whole: np.ndarray, parts: Sequence[tuple[int, bool]]) -> bool:
        """Whether a gradient is the sum of these arrays, some of them transposed."""
        total = np.zeros_like(whole)
        for serial, transposed in parts:
            array = self.recording.binding(serial)[1].value.array
            if array is None or (array.T if transposed else array).shape != whole.shape:
                return False
            total += array.T if transposed else array
        return bool(parts) and _close(total, whole)

    def _block(self, serial: int, gradients: Mapping[int, Sequence[tuple[int, bool]]]) -> Block:
        step, bound = self.recording.binding(serial)
        same = [
            (b.call.depth, n, b) for n, (_, b) in enumerate(self.recording.bindings) if self._home(b.serial) == serial
        ]
        shown = min(same, key=lambda each: each[:2])[2]
        cells = self._terms(serial)
        given = "input" if serial in self._inputs or serial in self._parameters else "constant"
        kind = given if cells is None else "backward" if bound.call.in_backward else "forward"
        name = self._parameters.get(serial) or shown.name
        line = "" if cells is None else " ".join(step.source.partition("  #")[0].split())
        assert bound.value.array is not None
        array = bound.value.array.reshape(shown.value.shape if shown.value.shape[-1:] == bound.value.shape[-1:] else -1)
        gradient = tuple(gradients.get(serial, ()))
        return Block(serial, name, shown.call.label, array, kind, line, cells, gradient)


def _close(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether two arrays hold the same numbers in the same order, up to rounding."""
    if one is None or other is None or one.size != other.size:
        return False
    one, other = np.asarray(one, float).ravel(), np.asarray(other, float).ravel()
    return np.allclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)


# ---- Lines that choose, number by number: `xp.where(x < 0.0, a, b)`. The stepper writes out the side that was taken,
# because that is what a reader of one run wants to see. A sheet whose inputs change needs both: IF(x<0,a,b). ----


def _with_choices(recording: Steps) -> Steps:
    """The same recording, whose terms keep both sides of a choice that depends on its numbers."""
    copy = dataclasses.replace(recording)
    for step in copy.steps:
        copy.kept(step.index, functools.partial(_Choosing, copy, step))
    return copy


class _Choosing(Walk):
    def _applied(self, whole: Applied, index: Index) -> Term:
        if whole.name == "where" and len(whole.operands) == 3:
            try:
                test, *sides = (self.under(part, index) for part in whole.operands)
                if self._depends(test):
                    return Applied("where", (test, *sides))
            except NotExpandable:
                pass  # a test that is not written out, such as a mask that was given, does not depend on the numbers
        return super()._applied(whole, index)

    def _depends(self, test: Term) -> bool:
        """Whether a test was computed from recorded numbers."""
        if isinstance(test, Number) and test.serial is not None:
            test = term_of(self.recording, *self.recording.binding(test.serial), test.index)
            return not isinstance(test, Number) and self._depends(test)
        return any(number.serial is not None for number in numbers(test))
