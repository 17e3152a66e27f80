"""Numbers with axes: some carry an index's letter, the others are those of vectors and matrices.

`labels` name the first axes of the array; the rest are positions: none for a number, one for a vector, two for a
matrix.
A vector is a column, or a row if `row`; one that is `down` has an entry for each row of a matrix, as rowsum(X) has.
Axes of length one in a `loose` value fit any length: the vector of ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .faults import Fault, Unreadable

MOST = 1_000_000  # entries of an array


@dataclass(frozen=True)
class Value:
    """An array, and the letters of its first axes; the module says what the rest means."""

    array: Any
    labels: tuple[str, ...] = ()
    row: bool = False
    loose: bool = False
    down: bool = False
    there: Any = None  # along the first labels, whether an entry such as x_{i+1} is within its array

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", np.asarray(self.array))  # NumPy gives a fraction, not an array of one

    @property
    def rank(self) -> int:
        return int(self.array.ndim) - len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the positional axes."""
        return tuple(self.array.shape[len(self.labels) :])


class Shapes:
    """Says lengths by their letters."""

    def __init__(self, letters: dict[int, str]) -> None:
        self.letters = letters

    def of(self, shape: tuple[int, ...]) -> str:
        return "(" + ", ".join(self.letters.get(n, str(n)) for n in shape) + ")" if shape else "a number"

    def length(self, n: int) -> str:
        return self.letters.get(n, str(n))


def spread(a: Value, labels: tuple[str, ...]) -> Any:
    """The array of a, with an axis for each of the labels (of length one where a has none) before its positions."""
    order = [a.labels.index(label) for label in labels if label in a.labels]
    array = a.array.transpose(*order, *range(len(a.labels), a.array.ndim))
    places = tuple(slice(None) if label in a.labels else None for label in labels)
    return array[(*places, ...)]


def union(a: Value, b: Value) -> tuple[str, ...]:
    """The labels of both, those of the first in front."""
    return a.labels + tuple(label for label in b.labels if label not in a.labels)


def _fit(n: int) -> None:
    if n > MOST:
        raise Unreadable(
            f"An array of {n} numbers is too large to try; {MOST} are the limit. Take smaller sizes, or fewer indices."
        )


def aligned(a: Value, b: Value, names: Shapes, what: Callable[[], str]) -> tuple[Any, Any, Value]:
    """Both arrays so that NumPy combines them entry by entry; and the form of the result."""
    labels = union(a, b)
    x, y = spread(a, labels), spread(b, labels)
    if a.rank and b.rank and a.rank != b.rank:
        small, large = (a, b) if a.rank < b.rank else (b, a)
        array = spread(small, labels)
        (length,) = small.shape if small.rank == 1 else (None,)
        if length is None or large.rank != 2:
            raise Fault(f"The shapes {names.of(a.shape)} and {names.of(b.shape)} do not fit {what()}.")
        if length == large.shape[1] and not small.down:
            array = array[..., None, :]
        elif length == large.shape[0] and not small.row:
            array = array[..., :, None]
        elif not (small.loose and length == 1):
            raise Fault(f"The shapes {names.of(a.shape)} and {names.of(b.shape)} do not fit {what()}.")
        x, y = (array, y) if small is a else (x, array)
    elif a.rank and b.rank and a.shape != b.shape:
        crossed = tuple(map(max, a.shape, b.shape)) not in (a.shape, b.shape)  # a column and a row
        for length, other in zip(a.shape, b.shape, strict=True):
            if crossed or (length != other and not (length == 1 or other == 1)):
                raise Fault(f"The shapes {names.of(a.shape)} and {names.of(b.shape)} do not fit {what()}.")
    if not a.rank and b.rank:
        x = x[(..., *(None,) * b.rank)]
    if not b.rank and a.rank:
        y = y[(..., *(None,) * a.rank)]
    total = 1
    for p, q in zip(x.shape, y.shape, strict=True):
        if p != q and 1 not in (p, q):
            raise Fault(f"Lengths {names.length(p)} and {names.length(q)} do not fit {what()}.")
        total *= max(p, q)
    _fit(total)
    vectors = [v for v in (a, b) if v.rank] if max(a.rank, b.rank) == 1 else []
    loose = (a.loose or not a.rank) and (b.loose or not b.rank) and (a.loose or b.loose)
    there = None
    for value in (v for v in (a, b) if v.there is not None):
        inside = value.there[(..., *(None,) * (len(value.labels) - value.there.ndim))]
        inside = spread(Value(inside, value.labels), labels)
        there = inside if there is None else there & inside
    return x, y, Value(x, labels, any(v.row for v in vectors), loose, any(v.down for v in vectors), there)


def entrywise(a: Value, b: Value, function: Any, names: Shapes, what: Callable[[], str]) -> Value:
    """A function of two values, entry by entry."""
    x, y, form = aligned(a, b, names, what)
    return replace(form, array=function(x, y))


def multiplied(a: Value, b: Value, names: Shapes, rows: bool, told: Callable[[], str]) -> Value:
    """The matrix product. rows: vectors are rows unless transposed, as in x W + b."""
    if not a.rank or not b.rank:
        return entrywise(a, b, np.multiply, names, told)
    labels = union(a, b)
    x, y = spread(a, labels), spread(b, labels)

    def no(reason: str = "") -> Fault:
        return Fault(
            f"The shapes {names.of(a.shape)} and {names.of(b.shape)} do not multiply {told()}"
            f"{': ' + reason if reason else ''}."
        )

    a_row, b_row = a.row != rows, b.row != rows
    if a.rank == 1:
        x = x[..., None, :] if a_row else x[..., :, None]
    if b.rank == 1:
        y = y[..., None, :] if b_row else y[..., :, None]
    if a.rank == b.rank == 1 and a_row == b_row:
        raise no("write xᵀ y for a number, x ⊙ y for entries")
    p, q = x.shape[-1], y.shape[-2]
    if p != q:
        if a.loose and p == 1:
            x = np.broadcast_to(x, (*x.shape[:-1], q))
        elif b.loose and q == 1:
            y = np.broadcast_to(y, (*y.shape[:-2], p, y.shape[-1]))
        else:
            raise no()
    elif p == 1 and (a.loose or b.loose) and not (a.rank == b.rank == 1 and b_row):
        raise Unreadable("How long the vector of ones is cannot be seen here; write ones_n.")
    for label, m, n in zip(labels, x.shape, y.shape, strict=False):
        if m != n and 1 not in (m, n):
            raise Fault(f"The index {label} runs over {names.length(m)} and over {names.length(n)} {told()}.")
    _fit(int(np.prod(x.shape)) * y.shape[-1])
    array = np.matmul(x, y)
    loose = (a.loose and a.rank == 1 and not a_row) or (b.loose and b.rank == 1 and b_row)
    if a.rank == 1 and a_row and b.rank == 1 and not b_row:
        return Value(array[..., 0, 0], labels)
    if a.rank == 1 and a_row:
        return Value(array[..., 0, :], labels, not rows, loose)
    if b.rank == 1 and not b_row:
        return Value(array[..., :, 0], labels, rows, loose, down=a.rank == 2)
    return Value(array, labels, False, loose)


def with_indices(a: Value, indices: tuple[str, ...], names: Shapes, told: str) -> Value:
    """The first positional axes become labels; a digit picks an entry."""
    if len(indices) > a.rank:
        raise Fault(f"{told} has {a.rank} axes, but {len(indices)} indices stand there.")
    value = a
    for index in indices:
        axis = len(value.labels)
        length = value.array.shape[axis]
        if index.isdigit():
            if not 1 <= int(index) <= length:
                raise Fault(f"{told} has the entries 1 to {names.length(length)} along this axis, not {index}.")
            value = Value(value.array.take(int(index) - 1, axis=axis), value.labels)
        elif index in value.labels:
            at = value.labels.index(index)
            if value.array.shape[at] != length:
                one, other = names.length(value.array.shape[at]), names.length(length)
                raise Fault(f"{told}: the index {index} runs over {one} and over {other}.")
            array = np.moveaxis(np.diagonal(value.array, axis1=at, axis2=axis), -1, at)
            value = Value(array, value.labels)
        else:
            value = Value(value.array, (*value.labels, index))
    return replace(value, row=False, down=False)
