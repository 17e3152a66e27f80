"""Indices in an expression: how far each runs, and what stands at x_i, x_{i+1} and x_{2i}."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .faults import Fault, Unreadable
from .shifting import computed, terms
from .tree import BINDS_AND_KEEPS, Compare, Entry, Node, Over, Partial, Place, Ref
from .values import Arithmetic, Value, spread, with_axes

Runs = dict[str, int]  # how far each index runs
MAYBE = "?"  # behind an index whose length follows from a computed index alone


class Reading(NamedTuple):
    """How an equation is read.

    rows: vectors are rows unless transposed. identity: the size of I where nothing else says so. turned: names of
    derivatives by a vector, with ∂, that are rows where vectors are columns. fixed: ∂a/∂b holds fixed what stands
    beside b in the definition of a. by_entries_of_x: ∂y/∂x of vectors has a row for each entry of x, not of y; None:
    what the text has decided.
    """

    rows: bool = False
    identity: str = ""
    turned: frozenset[str] = frozenset()
    fixed: bool = False
    by_entries_of_x: bool | None = None


PLAIN = Reading()


def surely(runs: Runs) -> Runs:
    """The lengths of indices, with those that follow from computed indices where nothing else tells."""
    sure = {index: length for index, length in runs.items() if not index.endswith(MAYBE)}
    return {**{index.removesuffix(MAYBE): length for index, length in runs.items()}, **sure}


class Indices(Arithmetic):
    """What a computer knows of indices. draw: the `Draw` that has the numbers; moved: values that replace its own."""

    def __init__(self, draw: Any, reading: Reading, moved: dict[str, Value]) -> None:
        super().__init__(draw.lengths)
        self.draw, self.reading, self.moved = draw, reading, moved
        self.exact, self.origin = draw.exact, draw.known.origin
        self.kept: dict[Any, tuple[Node, Any]] | None = None  # by the identity of a node, for those who try many edits

    def look(self, name: str) -> Value:
        """The value of a name."""
        value = self.moved[name] if name in self.moved else self.draw.look(name)
        return replace(value, row=not value.row) if name in self.reading.turned and value.rank == 1 else value

    def cast(self, array: Any) -> Any:
        """Whole numbers as those of the draw: fractions, or of double precision."""
        if not self.exact:
            return np.asarray(array, dtype=np.float64)
        return np.vectorize(lambda n: Fraction(int(n)), otypes=[object])(array)

    def constant(self, number: float | int | Fraction) -> Value:
        """A number."""
        return Value(np.array(Fraction(number), dtype=object) if self.exact else np.asarray(float(number)))

    def _of(self, node: Node, runs: Runs) -> Value:
        raise NotImplementedError

    def runs(self, node: Node, known: Runs) -> Runs:
        """The length of each free index, as the arrays it stands at tell."""
        if self.kept is None:
            return self._runs(node, known)
        if id(node) not in self.kept:
            self.kept[id(node)] = node, self._runs(node, known)
        return dict(self.kept[id(node)][1])

    def _runs(self, node: Node, known: Runs) -> Runs:
        found: Runs = {}

        def add(index: str, length: int, part: Node) -> None:
            if index.endswith(MAYBE):
                found.setdefault(index, length)
            elif computed(index):
                for letter, times in terms(index)[0]:  # as far as the array goes, if nothing else tells
                    if letter not in self.lengths:
                        found.setdefault(letter + MAYBE, length // abs(times))
            elif not index.isdigit() and found.setdefault(index, length) != length:
                one, other = self.shown(found[index]), self.shown(length)
                raise Fault(f"The index {index} runs over {one} and, in {part}, over {other}.")

        if isinstance(node, Ref):
            for index, length in zip(node.indices, self.look(node.name).shape if node.indices else (), strict=False):
                add(index, length, node)
            return found
        if isinstance(node, Entry):
            inside = {**known, **self.runs(node.base, known)}
            for index, length in zip(node.indices, self._of(node.base, inside).shape, strict=False):
                if length != 1:
                    add(index, length, node)
        whole = isinstance(node, Partial) and isinstance(node.top, Ref) and not node.top.indices
        for part in node.parts[1:] if whole else node.parts:
            for index, length in self.runs(part, {**known, **found}).items():
                add(index, length, part)
        if isinstance(node, Compare) and isinstance(node.left, Place) and isinstance(node.right, Ref):
            given = self.draw.known.given.get(node.right.name)  # k in [k = y], where y is a label
            if given and given.kind.startswith(".."):
                found.setdefault(node.left.index, self.lengths[given.kind[2:]])
        if isinstance(node, Over) and node.function not in BINDS_AND_KEEPS:
            for one, other in node.compared * 2:  # again, for chains such as δ_ij δ_jk
                if one in found and not computed(other):
                    found.setdefault(other, found[one])
                elif computed(one) and len(terms(one)[0]) == 1 and not computed(other):  # j in δ_{j,2i}
                    ((letter, times),), _ = terms(one)
                    inner = found.get(letter, found.get(letter + MAYBE, 0))
                    if inner and times > 0:
                        found.setdefault(other, times * inner)
            for index in node.indices:
                found.pop(index, None)
                found.pop(index + MAYBE, None)
        return found

    def _along(self, index: str, runs: Runs) -> Value:
        """The numbers 1, 2, ... along an index."""
        if index in runs:
            return Value(self.cast(np.arange(self.origin, runs[index] + self.origin)), (index,))
        if index in self.lengths:
            return self.constant(self.lengths[index])
        raise Unreadable(f"{index} is not defined: it is no name, and no index of an array in this line.")

    def number_of(self, index: str, runs: Runs) -> Value:
        """The number that an index stands for, along its letters."""
        factors, constant = terms(index)
        value = self.constant(constant)
        for letter, times in factors:
            along = self._along(letter, runs)
            value = self.entrywise(value, replace(along, array=along.array * times), np.add, index)
        return value

    def entries(self, value: Value, indices: tuple[str, ...], runs: Runs, told: object, before: str = "") -> Value:
        """The first positional axes become indices. What lies outside the array is 0, or `before` at place 0."""
        if len(indices) > value.rank:
            raise Fault(f"{told} has {value.rank} axes, but {len(indices)} indices stand there.")
        value = replace(value, row=False, down=False)
        for n, index in enumerate(indices):
            axis = len(value.labels)
            length = value.array.shape[axis]
            if computed(index):
                value = self._shifted(value, index, surely(runs), told, "" if n else before)
            elif index.isdigit():
                place = int(index) - self.origin
                if not 0 <= place < length:
                    raise Fault(f"{told} has the entries 1 to {self.shown(length)} along this axis, not {place + 1}.")
                value = replace(value, array=value.array.take(place, axis=axis))
            elif index in value.labels:
                at = value.labels.index(index)
                if value.array.shape[at] != length:
                    one, other = self.shown(value.array.shape[at]), self.shown(length)
                    raise Fault(f"{told}: the index {index} runs over {one} and over {other}.")
                value = replace(value, array=_diagonal(value.array, at, axis))
            else:
                value = replace(value, labels=(*value.labels, index))
        return value

    def _shifted(self, value: Value, index: str, runs: Runs, told: object, before: str) -> Value:
        axis = len(value.labels)
        length = value.array.shape[axis]
        number = self.number_of(index, runs)
        places = np.vectorize(int, otypes=[int])(number.array) - self.origin
        there = (places >= 0) & (places < length)
        factors, _ = terms(index)
        if len(factors) == 1 and factors[0][1] > 1 and not np.all(there):
            raise Fault(f"The index {index} of {told} runs to {places.max() + self.origin}, beyond {length}.")
        array = value.array.take(np.clip(places, 0, length - 1), axis=axis)
        mask = with_axes(there, array.ndim - axis - there.ndim)
        found = Value(np.where(mask, array, np.zeros_like(array)), (*value.labels, *number.labels))
        for letter in set(value.labels) & set(number.labels):
            at, again = (n for n, label in enumerate(found.labels) if label == letter)
            labels = tuple(label for n, label in enumerate(found.labels) if n != again)
            found = Value(_diagonal(found.array, at, again), labels)
        if before:
            first = Value(self.cast(places == -1), number.labels)
            return self.entrywise(found, self.entrywise(first, self.look(before), np.multiply, told), np.add, told)
        there = spread(Value(there, number.labels), found.labels)
        if value.there is not None:
            there = there & with_axes(value.there, len(found.labels) - value.there.ndim)
        return replace(found, there=there)


def _diagonal(array: Any, at: int, again: int) -> Any:
    """The entries at which two axes have the same place, along the first of them."""
    return np.moveaxis(np.diagonal(array, axis1=at, axis2=again), -1, at)
