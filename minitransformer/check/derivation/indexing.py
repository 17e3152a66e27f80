"""Indices in an expression: how far each runs, and what stands at x_i, x_{i+1} and x_{2i}."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from .faults import Fault, Unreadable
from .shifting import computed, terms
from .tree import BINDS_AND_KEEPS, Entry, Node, Over, Partial, Ref
from .values import Shapes, Value, entrywise, spread, with_indices

MAYBE = "?"  # behind an index whose length follows from a computed index alone


def surely(runs: dict[str, int]) -> dict[str, int]:
    """The lengths of indices, with those that follow from computed indices where nothing else tells."""
    sure = {index: length for index, length in runs.items() if not index.endswith(MAYBE)}
    return {**{index.removesuffix(MAYBE): length for index, length in runs.items()}, **sure}


class Indices:
    """What a computer knows of indices."""

    look: Callable[[str], Value]
    lengths: dict[str, int]
    names: Shapes
    kept: dict[Any, tuple[Node, Any]] | None
    origin: int
    _of: Callable[[Node, dict[str, int]], Value]
    _cast: Callable[[Any], Any]
    _constant_of: Callable[[float | int | Fraction], Value]

    def runs(self, node: Node, known: dict[str, int]) -> dict[str, int]:
        """The length of each free index, as the arrays it stands at tell."""
        if self.kept is None:
            return self._runs(node, known)
        if id(node) not in self.kept:
            self.kept[id(node)] = node, self._runs(node, known)
        return dict(self.kept[id(node)][1])

    def _runs(self, node: Node, known: dict[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}

        def add(index: str, length: int, part: Node) -> None:
            if computed(index):
                for letter, times in terms(index)[0]:  # as far as the array goes, if nothing else tells
                    if letter not in self.lengths:
                        found.setdefault(letter + MAYBE, length // abs(times))
                return
            if index.isdigit():
                return
            if found.setdefault(index, length) != length:
                one, other = self.names.length(found[index]), self.names.length(length)
                raise Fault(f"The index {index} runs over {one} and, in {part}, over {other}.")

        if isinstance(node, Ref):
            if not node.indices:
                return found
            value = self.look(node.name)
            for index, length in zip(node.indices, value.shape, strict=False):
                add(index, length, node)
            return found
        if isinstance(node, Entry):
            inside = {**known, **self.runs(node.base, known)}
            for index, length in zip(node.indices, self._of(node.base, inside).shape, strict=False):
                if length != 1:
                    add(index, length, node)
        parts = node.parts
        if isinstance(node, Partial):
            parts = [node.bottom] if isinstance(node.top, Ref) and not node.top.indices else [node.top, node.bottom]
        for part in parts:
            for index, length in self.runs(part, {**known, **found}).items():
                if index.endswith(MAYBE):
                    found.setdefault(index, length)
                else:
                    add(index, length, part)
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

    def _along(self, index: str, runs: dict[str, int]) -> Value:
        """The numbers 1, 2, ... along an index."""
        if index not in runs:
            if index in self.lengths:
                return self._constant_of(self.lengths[index])
            raise Unreadable(f"{index} is not defined: it is no name, and no index of an array in this line.")
        numbers = np.arange(self.origin, runs[index] + self.origin)
        return Value(self._cast(numbers), (index,))

    def _number_of(self, index: str, runs: dict[str, int]) -> Value:
        """The number that an index stands for, along its letters."""
        factors, constant = terms(index)
        value = self._constant_of(constant)
        for letter, times in factors:
            along = self._along(letter, runs)
            along = replace(along, array=along.array * times)
            value = entrywise(value, along, np.add, self.names, lambda: f"in {index}")
        return value

    def entries(
        self, value: Value, indices: tuple[str, ...], runs: dict[str, int], told: str, before: str = ""
    ) -> Value:
        """The first positional axes become indices. What lies outside the array is 0, or `before` at place 0."""
        if not any(map(computed, indices)):
            shift = 1 - self.origin if any(index.isdigit() for index in indices) else 0
            shifted = tuple(str(int(index) + shift) if index.isdigit() else index for index in indices)
            return with_indices(value, shifted, self.names, told)
        if len(indices) > value.rank:
            raise Fault(f"{told} has {value.rank} axes, but {len(indices)} indices stand there.")
        value = replace(value, row=False, down=False)
        for n, index in enumerate(indices):
            if computed(index):
                value = self._shifted(value, index, surely(runs), told, "" if n else before)
            else:
                value = replace(self.entries(value, (index,), runs, told), there=value.there)
        return value

    def _shifted(self, value: Value, index: str, runs: dict[str, int], told: str, before: str) -> Value:
        axis = len(value.labels)
        length = value.array.shape[axis]
        number = self._number_of(index, runs)
        places = np.vectorize(int, otypes=[int])(number.array) - self.origin
        there = (places >= 0) & (places < length)
        factors, _ = terms(index)
        if len(factors) == 1 and factors[0][1] > 1 and not np.all(there):
            raise Fault(f"The index {index} of {told} runs to {places.max() + self.origin}, beyond {length}.")
        array = value.array.take(np.clip(places, 0, length - 1), axis=axis)
        mask = there[(..., *(None,) * (array.ndim - axis - there.ndim))]
        found = Value(np.where(mask, array, np.zeros_like(array)), (*value.labels, *number.labels), there=None)
        for letter in set(value.labels) & set(number.labels):
            at, again = (n for n, label in enumerate(found.labels) if label == letter)
            merged = np.moveaxis(np.diagonal(found.array, axis1=at, axis2=again), -1, at)
            found = Value(merged, tuple(label for n, label in enumerate(found.labels) if n != again))
        if before:
            first = Value(self._cast(np.asarray(places == -1, dtype=int)), number.labels)
            initial = entrywise(first, self.look(before), np.multiply, self.names, lambda: told)
            return entrywise(found, initial, np.add, self.names, lambda: told)
        there = spread(Value(there, number.labels), found.labels)
        if value.there is not None:
            there = there & value.there[(..., *(None,) * (len(found.labels) - value.there.ndim))]
        return replace(found, there=there)
