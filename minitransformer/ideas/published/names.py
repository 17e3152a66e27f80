"""Tables of names: where each of our parameters lies in a published file.

Each line is `theirs  mark  ours`. Either side names a module or one tensor, and * is the number of a layer:

    =     stored unchanged
    T     a Linear's weight, stored as (out, in)
    T8    the same of several side by side, head by head: of each of 8 heads its query, its key and its value
    row   a vector, stored as a matrix of one row
    ~     a second copy of the tensor; if the file has it, it must be equal
    -     not used here: a buffer that can be computed, or a head that is not read
    +     not used in their model either, which has it nevertheless: written as a copy of ours, and not read

A name with / before it lies outside the body: in a model with a head, the prefix of the body does not precede it.
query|key|value on our side means that one of their tensors holds the three side by side. A line is skipped if the model
does not have the name on our side, so one table serves models with and without biases, gates or a pooler.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...core.arrays.backend import to_numpy
from ...core.layers import Parameter

_LEAVES = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "table": "weight"}


@dataclass(frozen=True)
class Place:
    """One of their tensors, and our parameters that it holds side by side along the last axis."""

    theirs: str
    mark: str
    ours: tuple[tuple[str, Parameter], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that their tensor must have."""
        shapes = [parameter.value.shape for _, parameter in self.ours]
        whole = (*shapes[0][:-1], sum(shape[-1] for shape in shapes))
        return (1, *whole) if self.mark == "row" else whole[::-1] if self._is_transposed else whole

    @property
    def _is_transposed(self) -> bool:
        return self.mark[0] == "T" and self.ours[0][1].value.ndim == 2

    @property
    def _heads(self) -> int:
        """In how many groups our parameters alternate: 1 where each lies in one piece."""
        return int(self.mark[1:] or 1) if self.mark[0] == "T" else 1

    def split(self, stored: np.ndarray) -> list[np.ndarray]:
        """The values of our parameters, each in a separate array."""
        whole = stored[0] if self.mark == "row" else stored.T if self._is_transposed else stored
        whole = _regrouped(whole, self._heads, len(self.ours))
        if len(self.ours) == 1:
            return [np.ascontiguousarray(whole)]
        ends = np.cumsum([parameter.value.shape[-1] for _, parameter in self.ours])[:-1]
        return [np.array(part, order="C") for part in np.split(whole, ends, axis=-1)]

    def read(self) -> np.ndarray:
        """Their tensor, made from our values."""
        whole = np.concatenate([to_numpy(parameter.value) for _, parameter in self.ours], axis=-1)
        whole = _regrouped(whole, len(self.ours), self._heads)
        return np.ascontiguousarray(whole[None] if self.mark == "row" else whole.T if self._is_transposed else whole)


def _regrouped(whole: np.ndarray, outer: int, inner: int) -> np.ndarray:
    """The last axis of outer · inner equal pieces, with all pieces of one inner place side by side."""
    *rows, width = whole.shape
    if 1 in (outer, inner):
        return whole
    return whole.reshape(*rows, outer, inner, width // (outer * inner)).swapaxes(-3, -2).reshape(*rows, width)


@dataclass(frozen=True)
class Layout:
    """How a model lies in a file. again: {the name of a copy: the place it copies}; unread: patterns of names.

    unused: copies that are written, and not read.
    """

    places: list[Place]
    again: dict[str, Place]
    unread: list[str]
    unused: list[Place]

    def ignores(self, name: str) -> bool:
        """Whether a tensor of this name is one that our model does not use."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.unread)


def lines(table: str, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The lines of a table: theirs, mark, ours. prefix: of the body."""
    for line in filter(str.strip, table.splitlines()):
        theirs, mark, *ours = line.split()
        yield theirs[1:] if theirs[0] == "/" else prefix + theirs, mark, ours[0] if ours else ""


def layout(parameters: Mapping[str, Parameter], rows: Iterable[tuple[str, str, str]]) -> Layout:
    """Find the place of every parameter. Raises ValueError for a parameter without a line in the tables."""
    places: dict[str, Place] = {}
    again: dict[str, Place] = {}
    unread: list[str] = []
    unused: list[Place] = []
    known: set[str] = set()
    of_parameter: dict[str, Place] = {}
    for theirs, mark, ours in rows:
        if mark in "-+":
            unread += [theirs, f"{theirs}.weight", f"{theirs}.bias"]
        for number, leaf, found in _matches(parameters, ours):
            place = Place(_their_name(theirs, number, leaf), mark, tuple(found))
            if mark == "+":
                unused.append(place)
            elif mark != "~":
                places[place.theirs] = place
                known |= {name for name, _ in found}
                of_parameter |= {name: place for name, _ in found}
            elif found[0][0] in of_parameter:
                again[place.theirs] = of_parameter[found[0][0]]
    if missing := [name for name in parameters if name not in known]:
        raise ValueError(f"this family has no place for {', '.join(missing[:3])}")
    again = {name: place for name, place in again.items() if name not in places}
    return Layout(list(places.values()), again, unread, unused)


def _matches(parameters: Mapping[str, Parameter], ours: str) -> Iterator[tuple[str, str, list[tuple[str, Parameter]]]]:
    """(number of the layer, leaf, parameters) for each tensor of a line. The leaf of a bare tensor is ""."""
    *start, last = ours.split(".")
    parts = [".".join([*start, part]) for part in last.split("|")]
    pattern = re.compile(re.escape(parts[0]).replace(r"\*", r"(\d+)") + r"(?:\.(\w+))?")
    for name in parameters:
        if (match := pattern.fullmatch(name)) is None:
            continue
        number, leaf = match.groups()[:-1], match.groups()[-1]
        if leaf is not None and leaf not in _LEAVES:
            continue
        found = [part.replace("*", number[0]) if number else part for part in parts]
        full = [f"{part}.{leaf}" if leaf else part for part in found]
        yield (number or ("",))[0], leaf or "", [(each, parameters[each]) for each in full]


def _their_name(theirs: str, number: str, leaf: str) -> str:
    name = theirs.replace("*", number)
    return f"{name}.{_LEAVES[leaf]}" if leaf else name
