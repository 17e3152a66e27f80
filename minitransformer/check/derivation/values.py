"""Numbers with axes: some carry an index's letter, the others are those of vectors and matrices.

`labels` name the first axes of the array; the rest are positions: none for a number, one for a vector, two for a
matrix.
A vector is a column, or a row if `row`; one that is `down` has an entry for each row of a matrix, as rowsum(X) has.
Axes of length one in a `loose` value fit any length: the vector of ones.
"""

import math
from dataclasses import dataclass
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


def spread(a: Value, labels: tuple[str, ...]) -> Any:
    """The array of a, with an axis for each of the labels (of length one where a has none) before its positions."""
    order = [a.labels.index(label) for label in labels if label in a.labels]
    array = a.array.transpose(*order, *range(len(a.labels), a.array.ndim))
    places = tuple(slice(None) if label in a.labels else None for label in labels)
    return array[(*places, ...)]


def with_axes(array: Any, n: int) -> Any:
    """The array with n more axes, of length one, behind its own."""
    return array[(..., *(None,) * n)]


def _there(a: Value, labels: tuple[str, ...]) -> Any:
    """The same of which entries are within their array."""
    return spread(Value(with_axes(a.there, len(a.labels) - a.there.ndim), a.labels), labels)


def _union(a: Value, b: Value) -> tuple[str, ...]:
    """The labels of both, those of the first in front."""
    return a.labels + tuple(label for label in b.labels if label not in a.labels)


def _fit(n: int) -> None:
    if n > MOST:
        raise Unreadable(f"An array of {n} numbers is too large to try; {MOST} are the limit. Take smaller sizes.")


class Arithmetic:
    """Puts values together. lengths: of each size's letter, which messages name. `told` is what stands there."""

    def __init__(self, lengths: dict[str, int]) -> None:
        self.lengths = lengths
        self.letters = {n: letter for letter, n in lengths.items()}

    def shown(self, length: int | tuple[int, ...]) -> str:
        """A length by its letter, or a shape."""
        if isinstance(length, tuple):
            return "(" + ", ".join(map(self.shown, length)) + ")" if length else "a number"
        return self.letters.get(length, str(length))

    def entrywise(self, a: Value, b: Value, function: Any, told: object) -> Value:
        """A function of two values, entry by entry."""
        labels = _union(a, b)
        x, y = spread(a, labels), spread(b, labels)

        def no() -> Fault:
            return Fault(f"The shapes {self.shown(a.shape)} and {self.shown(b.shape)} do not fit in {told}.")

        if not a.rank or not b.rank:
            x, y = with_axes(x, b.rank) if not a.rank else x, with_axes(y, a.rank) if not b.rank else y
        elif a.rank != b.rank:
            small, large = (a, b) if a.rank < b.rank else (b, a)
            if small.rank != 1 or large.rank != 2:
                raise no()
            (length,) = small.shape
            if length == large.shape[1] and not small.down:
                array = spread(small, labels)[..., None, :]
            elif (length == large.shape[0] and not small.row) or (small.loose and length == 1):
                array = spread(small, labels)[..., :, None]
            else:
                raise no()
            x, y = (array, y) if small is a else (x, array)
        elif a.shape != b.shape:
            pairs = list(zip(a.shape, b.shape, strict=True))
            crossed = tuple(map(max, pairs)) not in (a.shape, b.shape)  # a column and a row
            if crossed or any(p != q and 1 not in (p, q) for p, q in pairs):
                raise no()
        for p, q in zip(x.shape, y.shape, strict=True):
            if p != q and 1 not in (p, q):
                raise Fault(f"Lengths {self.shown(p)} and {self.shown(q)} do not fit in {told}.")
        _fit(math.prod(map(max, x.shape, y.shape)))
        vectors = [v for v in (a, b) if v.rank] if max(a.rank, b.rank) == 1 else []
        loose = (a.loose or not a.rank) and (b.loose or not b.rank) and (a.loose or b.loose)
        there = [_there(v, labels) for v in (a, b) if v.there is not None]
        inside = there[0] & there[-1] if there else None
        row, down = any(v.row for v in vectors), any(v.down for v in vectors)
        return Value(function(x, y), labels, row, loose, down, inside)

    def multiplied(self, a: Value, b: Value, rows: bool, told: object) -> Value:
        """The matrix product. rows: vectors are rows unless transposed, as in x W + b."""
        if not a.rank or not b.rank:
            return self.entrywise(a, b, np.multiply, told)
        labels = _union(a, b)
        x, y = spread(a, labels), spread(b, labels)

        def no(reason: str = "") -> Fault:
            shapes = f"The shapes {self.shown(a.shape)} and {self.shown(b.shape)} do not multiply in {told}"
            return Fault(f"{shapes}{reason}.")

        a_row, b_row = a.row != rows, b.row != rows
        if a.rank == 1:
            x = x[..., None, :] if a_row else x[..., :, None]
        if b.rank == 1:
            y = y[..., None, :] if b_row else y[..., :, None]
        if a.rank == b.rank == 1 and a_row == b_row:
            raise no(": write xᵀ y for a number, x ⊙ y for entries")
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
                raise Fault(f"The index {label} runs over {self.shown(m)} and over {self.shown(n)} in {told}.")
        _fit(int(np.prod(x.shape)) * y.shape[-1])
        array = np.matmul(x, y)
        loose = (a.loose and a.rank == 1 and not a_row) or (b.loose and b.rank == 1 and b_row)
        from_left, from_right = a.rank == 1 and a_row, b.rank == 1 and not b_row
        if from_left and from_right:
            return Value(array[..., 0, 0], labels)
        if from_left:
            return Value(array[..., 0, :], labels, not rows, loose)
        if from_right:
            return Value(array[..., :, 0], labels, rows, loose, down=a.rank == 2)
        return Value(array, labels, False, loose)
