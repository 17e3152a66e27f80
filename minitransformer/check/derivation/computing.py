"""Computes an expression: its sums over indices, its matrix products, its functions, on one draw of numbers."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from . import functions as mathematics
from .faults import Fault, Inexact, OutOfTime, Unreadable
from .indexing import Indices, surely
from .shifting import computed
from .tree import (
    BINDS_AND_KEEPS,
    Call,
    Compare,
    Delta,
    Entry,
    Node,
    Number,
    Over,
    Partial,
    Place,
    Power,
    Product,
    Ref,
    Terms,
    Transposed,
)
from .values import MOST, Shapes, Value, entrywise, multiplied, spread

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, ">": np.greater, "≤": np.less_equal, "≥": np.greater_equal, "=": np.equal, "≠": np.not_equal
}  # fmt: skip


def _pair(left: Node, right: Node) -> str:
    return f"in {left:product} {right:product}"


class Computer(Indices):
    """Computes expressions.

    look: gives the value of a name. lengths: of each size's letter. exact: in fractions, where that is possible.
    rows: vectors are rows unless transposed. identity: how long I and the identity are where nothing else says so.
    """

    def __init__(
        self,
        look: Callable[[str], Value],
        slope: Callable[[Partial, Computer, dict[str, int]], Value],
        lengths: dict[str, int],
        exact: bool = False,
        rows: bool = False,
        identity: int = 0,
        deadline: float = math.inf,
    ) -> None:
        self.look, self.slope, self.lengths = look, slope, lengths
        self.exact, self.rows, self.identity, self.deadline = exact, rows, identity, deadline
        self.origin = 1  # the number of the first entry
        self.turned = False  # whether ∂L/∂x, by a vector, is a row where vectors are columns
        self.by_entries_of_x = False  # whether ∂y/∂x, of vectors, has a row for each entry of x
        self.kept: dict[Any, tuple[Node, Any]] | None = None  # by the identity of a node, for those who try many edits
        self.names = Shapes({n: letter for letter, n in lengths.items()})

    def of(self, node: Node, runs: dict[str, int] | None = None) -> Value:
        """The value of an expression. runs: the lengths of indices that it does not show itself."""
        with np.errstate(all="ignore"):
            return self._of(node, surely({**(runs or {}), **self.runs(node, runs or {})}))

    def _cast(self, array: Any) -> Any:
        if self.exact:
            exact = np.empty(np.shape(array), dtype=object)
            for place in np.ndindex(exact.shape):
                exact[place] = Fraction(int(array[place]) if np.ndim(array) else int(array))
            return exact
        return np.asarray(array, dtype=np.float64)

    def _constant_of(self, number: float | int | Fraction) -> Value:
        if self.exact:
            array = np.empty((), dtype=object)
            array[()] = Fraction(number)
            return Value(array)
        return Value(np.asarray(float(number)))

    # each kind of expression

    def _of(self, node: Node, runs: dict[str, int]) -> Value:
        if self.kept is None:
            return self._anew(node, runs)
        key = (id(node), *sorted(runs.items()))
        if key not in self.kept:
            self.kept[key] = node, self._anew(node, runs)
        value: Value = self.kept[key][1]
        return value

    def _anew(self, node: Node, runs: dict[str, int]) -> Value:
        if time.monotonic() > self.deadline:
            raise OutOfTime
        method: Callable[[Any, dict[str, int]], Value] = getattr(self, "_" + type(node).__name__.lower())
        value = method(node, runs)
        if value.array.size > MOST:
            raise Unreadable(f"{str(node)[:40]} has {value.array.size} entries; {MOST} are the limit.")
        return value

    def _ref(self, node: Ref, runs: dict[str, int]) -> Value:
        head, _, label = node.name.partition("_")
        if head in ("I", "ones", "π", "pi"):
            try:
                value = self.look(node.name)
            except Unreadable:
                return self._constant(head, label)
        else:
            value = self.look(node.name)
        if self.exact and value.array.dtype != object:
            raise Inexact
        return self.entries(value, node.indices, runs, node.name, node.before) if node.indices else value

    def _constant(self, head: str, label: str) -> Value:
        if head in ("π", "pi"):
            if self.exact:
                raise Inexact
            return self._constant_of(math.pi)
        length = self.lengths.get(label, int(label) if label.isdigit() else 0)
        if head == "ones":
            return Value(self._cast(np.ones(length or 1, dtype=int)), row=self.rows, loose=not length)
        length = length or self.identity
        if not length or length > 1000:
            raise Unreadable("How large the identity I is cannot be seen here; write I_n, where n is a size.")
        return Value(self._cast(np.eye(length, dtype=int)))

    def _number(self, node: Number, runs: dict[str, int]) -> Value:
        return self._constant_of(Fraction(node.digits) if self.exact else float(node.digits))

    def _place(self, node: Place, runs: dict[str, int]) -> Value:
        return self._number_of(node.index, runs)

    def _delta(self, node: Delta, runs: dict[str, int]) -> Value:
        left, right = (self._number_of(i, runs) for i in (node.left, node.right))
        letters = left.labels and right.labels and not computed(node.left) and not computed(node.right)
        if letters and left.array.shape != right.array.shape:
            one, other = self.names.length(left.array.size), self.names.length(right.array.size)
            raise Fault(f"{node}: {node.left} runs over {one}, {node.right} over {other}.")
        return self._truth(entrywise(left, right, np.equal, self.names, functools.partial(str, node)))

    def _truth(self, value: Value) -> Value:
        return replace(value, array=self._cast(np.asarray(value.array, dtype=int)))

    def _compare(self, node: Compare, runs: dict[str, int]) -> Value:
        left, right = self._of(node.left, runs), self._of(node.right, runs)
        left, right = (replace(v, array=mathematics.real(v.array)) for v in (left, right))
        return self._truth(entrywise(left, right, _SIGNS[node.sign], self.names, lambda: f"in {node}"))

    def _terms(self, node: Terms, runs: dict[str, int]) -> Value:
        total: Value | None = None
        for sign, term in zip(node.signs, node.terms, strict=True):
            value = self._of(term, runs)
            value = replace(value, array=-value.array) if sign == "-" else value
            total = value if total is None else entrywise(total, value, np.add, self.names, lambda: f"in {node}")
        assert total is not None
        return total

    def _product(self, node: Product, runs: dict[str, int]) -> Value:
        value = self._of(node.factors[0], runs)
        for n, (mark, factor) in enumerate(zip(node.marks, node.factors[1:], strict=True)):
            right = self._of(factor, runs)
            told = functools.partial(_pair, node.factors[n], factor)
            if mark == "":
                value = multiplied(value, right, self.names, self.rows, told)
            elif mark == "·" and value.rank == right.rank == 1 and value.row == right.row:
                product = entrywise(value, right, np.multiply, self.names, told)
                value = Value(product.array.sum(axis=-1), product.labels)
            elif mark == "·":
                value = multiplied(value, right, self.names, self.rows, told)
            elif mark == "/":
                if right.rank > value.rank:
                    raise Fault(
                        f"{factor} has the shape {self.names.of(right.shape)}; one divides by a number, "
                        "or entry by entry by an equal shape."
                    )
                if self.exact and np.any(np.equal(right.array, 0)):
                    raise Inexact
                value = entrywise(value, right, np.divide, self.names, told)
            else:
                value = entrywise(value, right, np.multiply, self.names, told)
        return value

    def _power(self, node: Power, runs: dict[str, int]) -> Value:
        base, exponent = self._of(node.base, runs), self._of(node.exponent, runs)
        if base.rank == 2:
            if str(node.exponent) == "-1":
                if base.shape[0] != base.shape[1]:
                    raise Fault(f"{node.base} has the shape {self.names.of(base.shape)}, so it has no inverse.")
                if self.exact:
                    raise Inexact
                return replace(base, array=np.linalg.inv(base.array))
            if base.shape[0] == base.shape[1]:  # else only entries have powers
                raise Unreadable(f"{node} has two meanings for a matrix: write X ⊙ X, or X X.")
        if exponent.rank:
            raise Unreadable(f"The exponent {node.exponent} is no number.")
        return entrywise(base, exponent, mathematics.power, self.names, lambda: f"in {node}")

    def _transposed(self, node: Transposed, runs: dict[str, int]) -> Value:
        value = self._of(node.base, runs)
        if value.rank == 1:
            return replace(value, row=not value.row)
        return value if value.rank == 0 else replace(value, array=np.swapaxes(value.array, -1, -2))

    def _entry(self, node: Entry, runs: dict[str, int]) -> Value:
        value = self._of(node.base, runs)
        if value.loose:
            raise Unreadable(f"How long {node.base} is cannot be seen here.")
        return self.entries(value, node.indices, runs, str(node.base))

    def _partial(self, node: Partial, runs: dict[str, int]) -> Value:
        return self.slope(node, self, runs)

    def _over(self, node: Over, runs: dict[str, int]) -> Value:
        inside = {k: n for k, n in runs.items() if k not in node.indices}
        if node.upper in self.lengths:
            inside.update(dict.fromkeys(node.indices, self.lengths[node.upper]))
        inside = surely({**inside, **self.runs(node.body, inside)})
        value = self._of(node.body, inside)
        for condition in node.conditions:
            value = entrywise(value, self._of(condition, inside), np.multiply, self.names, lambda: "in the sum")
        for index in node.indices:
            if index not in inside:
                if node.function == "sum" and index in runs:
                    inside[index] = runs[index]
                else:
                    raise Fault(f"The sum over {index} is over nothing: no array in it has the index {index}.")
            if node.upper and node.upper not in (
                "…",
                self.names.length(inside[index]),
                self.names.length(inside[index]) + "-1",
            ):
                raise Fault(f"The index {index} runs to {self.names.length(inside[index])}, not to {node.upper}.")
            if index not in value.labels:  # the body is the same for each of its values
                value = Value(np.repeat(value.array[None], inside[index], axis=0), (index, *value.labels), value.row)
        if node.function in ("sum", "prod", "mean", "softmax") and len(node.indices) > 1 and node.function == "softmax":
            raise Unreadable("softmax runs over one index.")
        for index in node.indices:
            at = value.labels.index(index)
            array = mathematics.reduced(node.function, value.array, at)
            kept = value.labels if node.function in BINDS_AND_KEEPS else tuple(x for x in value.labels if x != index)
            value = replace(value, array=array, labels=kept)
        return value

    def _call(self, node: Call, runs: dict[str, int]) -> Value:
        name = node.function
        values = [self._of(argument, runs) for argument in node.arguments]
        if name in ("max", "min") and len(values) > 1:
            choose = np.greater if name == "max" else np.less

            def chosen(x: Any, y: Any) -> Any:
                return np.where(choose(mathematics.real(x), mathematics.real(y)), x, y)

            told = functools.partial(str, node)
            return functools.reduce(lambda a, b: entrywise(a, b, chosen, self.names, told), values)
        if len(values) != 1:
            raise Unreadable(f"{name} takes one argument.")
        (value,) = values
        if name in mathematics.ENTRYWISE:
            return replace(value, array=mathematics.entrywise(name, node.primes, value.array))
        if node.primes:
            raise Unreadable(f"{name}' cannot be read: only functions of one number have a derivative with a prime.")
        return self._of_positions(name, value, node)

    def _of_positions(self, name: str, value: Value, node: Call) -> Value:
        """Functions of whole vectors and matrices."""
        array, rank = value.array, value.rank
        if rank == 0:
            raise Unreadable(f"{node} needs a vector or a matrix; with indices write {name}_j x_ij.")
        if name in ("rowsum", "rowmean", "colsum", "colmean"):
            if rank != 2:
                raise Fault(f"{name} needs a matrix, but its argument has the shape {self.names.of(value.shape)}.")
            axis = -1 if name.startswith("row") else -2
            total = mathematics.reduced(name[3:], array, array.ndim + axis)
            return Value(total, value.labels, row=axis == -2 and not self.rows, down=axis == -1)
        if name in ("diag", "tr", "det", "inv"):
            return self._of_matrix(name, value)
        if name == "norm":
            squares = (array * array).reshape(*array.shape[: len(value.labels)], -1).sum(axis=-1)
            return Value(mathematics.entrywise("sqrt", 0, squares), value.labels)
        if name == "softmax":
            return replace(value, array=mathematics.softmax(array, array.ndim - 1))
        if name == "logsumexp" and rank == 2:
            raise Unreadable("logsumexp of a matrix: write logsumexp_j S_ij.")
        flat = array.reshape(*array.shape[: len(value.labels)], -1)
        return Value(mathematics.reduced(name, flat, flat.ndim - 1), value.labels)

    def _of_matrix(self, name: str, value: Value) -> Value:
        array, labels = value.array, value.labels
        if name == "diag" and value.rank == 1:
            eye = self._cast(np.eye(array.shape[-1], dtype=int))
            return Value(array[..., None] * eye, labels)
        if value.rank != 2 or value.shape[0] != value.shape[1]:
            raise Fault(f"{name} needs a square matrix, but its argument has the shape {self.names.of(value.shape)}.")
        if name == "diag":
            return Value(np.diagonal(array, axis1=-2, axis2=-1), labels, row=self.rows)
        if name == "tr":
            return Value(np.diagonal(array, axis1=-2, axis2=-1).sum(axis=-1), labels)
        if self.exact:
            raise Inexact
        return Value(np.linalg.inv(array), labels) if name == "inv" else Value(np.linalg.det(array), labels)

    def same(self, left: Value, right: Value) -> tuple[Any, Any, tuple[str, ...]]:
        """Both sides of an equation in the axes of the left. Raises Fault if they have other indices or shapes."""
        shapes = (
            f"The left side has the shape {self.names.of(left.shape)}, the right side {self.names.of(right.shape)}."
        )
        more = [label for label in right.labels if label not in left.labels]
        if more:
            raise Fault(f"The index {' and '.join(more)} is free on the right alone.")
        if left.rank != right.rank:
            zero = not right.rank and not right.labels and not np.any(right.array)
            if not zero:
                raise Fault(shapes)
            right = replace(right, array=right.array[(..., *(None,) * left.rank)])
        x, y = left.array, spread(right, left.labels)
        if left.there is not None:  # x_{i+1} = ... says nothing about what lies outside x
            inside = left.there[(..., *(None,) * (x.ndim - left.there.ndim))]
            y = np.where(inside, y, x)
        for p, q in zip(x.shape[len(left.labels) :], y.shape[len(left.labels) :], strict=True):
            if p != q and not (q == 1 and (right.loose or not np.any(right.array))):
                raise Fault(shapes)
        for label, p, q in zip(left.labels, x.shape, y.shape, strict=False):
            if q not in (p, 1):
                one, other = self.names.length(p), self.names.length(q)
                raise Fault(f"The index {label} runs over {one} on the left and over {other} on the right.")
        return x, np.broadcast_to(y, x.shape), left.labels
