"""Computes an expression: its sums over indices, its matrix products, its functions, on one draw of numbers."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from . import functions as mathematics
from . import tree
from .faults import Fault, Inexact, OutOfTime, Unreadable
from .indexing import Indices, Runs, surely
from .shifting import computed
from .values import MOST, Value, spread, with_axes

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, ">": np.greater, "≤": np.less_equal, "≥": np.greater_equal, "=": np.equal, "≠": np.not_equal
}  # fmt: skip


class Computer(Indices):
    """Computes expressions on the numbers of a draw, in fractions if that draw has them."""

    def of(self, node: tree.Node, runs: Runs | None = None) -> Value:
        """The value of an expression. runs: the lengths of indices that it does not show itself."""
        with np.errstate(all="ignore"):
            return self._of(node, surely({**(runs or {}), **self.runs(node, runs or {})}))

    # each kind of expression

    def _of(self, node: tree.Node, runs: Runs) -> Value:
        if self.kept is None:
            return self._anew(node, runs)
        key = (id(node), *sorted(runs.items()))
        if key not in self.kept:
            self.kept[key] = node, self._anew(node, runs)
        value: Value = self.kept[key][1]
        return value

    def _anew(self, node: tree.Node, runs: Runs) -> Value:
        if time.monotonic() > self.draw.deadline:
            raise OutOfTime
        method: Callable[[Any, Runs], Value] = getattr(self, "_" + type(node).__name__.lower())
        value = method(node, runs)
        if value.array.size > MOST:
            raise Unreadable(f"{str(node)[:40]} has {value.array.size} entries; {MOST} are the limit.")
        return value

    def _ref(self, node: tree.Ref, runs: Runs) -> Value:
        head, _, label = node.name.partition("_")
        try:
            value = self.look(node.name)
        except Unreadable:
            if head not in ("I", "ones", "π", "pi"):
                raise
            return self._constant(head, label)
        if self.exact and value.array.dtype != object:
            raise Inexact
        return self.entries(value, node.indices, runs, node.name, node.before) if node.indices else value

    def _constant(self, head: str, label: str) -> Value:
        if head in ("π", "pi"):
            if self.exact:
                raise Inexact
            return self.constant(math.pi)
        length = self.lengths.get(label, int(label) if label.isdigit() else 0)
        if head == "ones":
            return Value(self.cast(np.ones(length or 1)), row=self.reading.rows, loose=not length)
        length = length or self.lengths.get(self.reading.identity, 0)
        if not length or length > 1000:
            raise Unreadable("How large the identity I is cannot be seen here; write I_n, where n is a size.")
        return Value(self.cast(np.eye(length)))

    def _number(self, node: tree.Number, runs: Runs) -> Value:
        return self.constant(Fraction(node.digits) if self.exact else float(node.digits))

    def _place(self, node: tree.Place, runs: Runs) -> Value:
        return self.number_of(node.index, runs)

    def _delta(self, node: tree.Delta, runs: Runs) -> Value:
        left, right = (self.number_of(i, runs) for i in (node.left, node.right))
        letters = left.labels and right.labels and not computed(node.left) and not computed(node.right)
        if letters and left.array.shape != right.array.shape:
            one, other = self.shown(left.array.size), self.shown(right.array.size)
            raise Fault(f"{node}: {node.left} runs over {one}, {node.right} over {other}.")
        return self._truth(left, right, "=", node)

    def _truth(self, left: Value, right: Value, sign: str, node: tree.Node) -> Value:
        value = self.entrywise(left, right, _SIGNS[sign], node)
        return replace(value, array=self.cast(value.array))

    def _compare(self, node: tree.Compare, runs: Runs) -> Value:
        left, right = self._of(node.left, runs), self._of(node.right, runs)
        left, right = (replace(v, array=mathematics.real(v.array)) for v in (left, right))
        return self._truth(left, right, node.sign, node)

    def _terms(self, node: tree.Terms, runs: Runs) -> Value:
        values = [self._of(term, runs) for term in node.terms]
        signed = [replace(v, array=-v.array) if sign == "-" else v for sign, v in zip(node.signs, values, strict=True)]
        return functools.reduce(lambda a, b: self.entrywise(a, b, np.add, node), signed)

    def _product(self, node: tree.Product, runs: Runs) -> Value:
        value = self._of(node.factors[0], runs)
        for left, mark, factor in zip(node.factors, node.marks, node.factors[1:], strict=False):
            right = self._of(factor, runs)
            told = tree.Product(("",), (left, factor))
            both_vectors = value.rank == right.rank == 1 and value.row == right.row
            if mark == "·" and both_vectors:
                product = self.entrywise(value, right, np.multiply, told)
                value = Value(product.array.sum(axis=-1), product.labels)
            elif mark == "⊠":
                value = self._kronecker(value, right, told)
            elif mark in ("", "·"):
                value = self.multiplied(value, right, self.reading.rows, told)
            elif mark == "/":
                below = isinstance(factor, tree.Product) or getattr(factor, "name", None) in self.lengths
                if right.rank > value.rank and (value.rank or below):
                    one = "one divides by a number, or entry by entry by an equal shape"
                    raise Fault(f"{factor} has the shape {self.shown(right.shape)}; {one}.")
                if self.exact and np.any(np.equal(right.array, 0)):
                    raise Inexact
                value = self.entrywise(value, right, np.divide, told)
            else:
                value = self.entrywise(value, right, np.multiply, told)
        return value

    def _kronecker(self, a: Value, b: Value, told: tree.Node) -> Value:
        if a.labels or b.labels or not (a.rank and b.rank):
            raise Unreadable(f"{told} is read as the Kronecker product, of two matrices.")
        one, other = (v.array if v.rank == 2 else v.array[None] if v.row else v.array[:, None] for v in (a, b))
        both = np.kron(one, other)
        return Value(both) if a.rank == 2 or b.rank == 2 or a.row != b.row else Value(both.reshape(-1), row=a.row)

    def _power(self, node: tree.Power, runs: Runs) -> Value:
        base, exponent = self._of(node.base, runs), self._of(node.exponent, runs)
        square = base.rank == 2 and base.shape[0] == base.shape[1]
        if base.rank == 2 and str(node.exponent) == "-1":
            if not square:
                raise Fault(f"{node.base} has the shape {self.shown(base.shape)}, so it has no inverse.")
            if self.exact:
                raise Inexact
            return replace(base, array=np.linalg.inv(base.array))
        if square:  # else only entries have powers
            raise Unreadable(f"{node} has two meanings for a matrix: write X ⊙ X, or X X.")
        if exponent.rank:
            raise Unreadable(f"The exponent {node.exponent} is no number.")
        return self.entrywise(base, exponent, mathematics.power, node)

    def _transposed(self, node: tree.Transposed, runs: Runs) -> Value:
        value = self._of(node.base, runs)
        if value.rank == 1:
            return replace(value, row=not value.row)
        return value if value.rank == 0 else replace(value, array=np.swapaxes(value.array, -1, -2))

    def _entry(self, node: tree.Entry, runs: Runs) -> Value:
        value = self._of(node.base, runs)
        if value.loose:
            raise Unreadable(f"How long {node.base} is cannot be seen here.")
        return self.entries(value, node.indices, runs, node.base)

    def _partial(self, node: tree.Partial, runs: Runs) -> Value:
        return self.draw.slope(node, self, runs)

    def _over(self, node: tree.Over, runs: Runs) -> Value:
        inside = {k: n for k, n in runs.items() if k not in node.indices}
        if node.upper in self.lengths:
            inside.update(dict.fromkeys(node.indices, self.lengths[node.upper]))
        inside = surely({**inside, **self.runs(node.body, inside)})
        value = self._of(node.body, inside)
        for condition in node.conditions:
            value = self.entrywise(value, self._of(condition, inside), np.multiply, "the sum")
        for index in node.indices:
            if index not in inside:
                if node.function != "sum" or index not in runs:
                    raise Fault(f"The sum over {index} is over nothing: no array in it has the index {index}.")
                inside[index] = runs[index]
            last = self.shown(inside[index])
            if node.upper not in ("", "…", last, last + "-1"):
                raise Fault(f"The index {index} runs to {last}, not to {node.upper}.")
            if index not in value.labels:  # the body is the same for each of its values
                value = Value(np.repeat(value.array[None], inside[index], axis=0), (index, *value.labels), value.row)
        if node.function == "softmax" and len(node.indices) > 1:
            raise Unreadable("softmax runs over one index.")
        for index in node.indices:
            array = mathematics.reduced(node.function, value.array, value.labels.index(index))
            keeps = node.function in tree.BINDS_AND_KEEPS
            value = replace(value, array=array, labels=tuple(x for x in value.labels if keeps or x != index))
        return value

    def _call(self, node: tree.Call, runs: Runs) -> Value:
        name = node.function
        values = [self._of(argument, runs) for argument in node.arguments]
        if name in ("max", "min") and len(values) > 1:
            choose = np.greater if name == "max" else np.less

            def chosen(x: Any, y: Any) -> Any:
                return np.where(choose(mathematics.real(x), mathematics.real(y)), x, y)

            return functools.reduce(lambda a, b: self.entrywise(a, b, chosen, node), values)
        if name == "stack":
            shapes = {value.shape for value in values}
            if len(shapes) > 1:
                raise Fault(f"The rows of {node} differ in length.")
            labels = tuple(dict.fromkeys(label for value in values for label in value.labels))
            rows = np.broadcast_arrays(*(spread(value, labels) for value in values))
            return Value(np.stack(rows, axis=len(labels)), labels)
        if len(values) != 1:
            raise Unreadable(f"{name} takes one argument.")
        (value,) = values
        if name in mathematics.ENTRYWISE:
            return replace(value, array=mathematics.entrywise(name, node.primes, value.array))
        if node.primes:
            raise Unreadable(f"{name}' cannot be read: only functions of one number have a derivative with a prime.")
        if node.axis:
            if not -value.rank <= (at := int(node.axis)) < value.rank:
                raise Fault(f"{node.arguments[0]} has {value.rank} axes, so none is axis={node.axis}.")
            if value.rank > 2:
                return replace(value, array=mathematics.reduced(name, value.array, len(value.labels) + at % value.rank))
            name = ("col", "row")[at % 2] + name if value.rank == 2 else name
        if value.rank == 0:
            raise Unreadable(f"{node} needs a vector or a matrix; with indices write {name}_j x_ij.")
        return self._of_positions(name, value)

    def _of_positions(self, name: str, value: Value) -> Value:
        """Functions of whole vectors and matrices."""
        array, rank, rows = value.array, value.rank, self.reading.rows
        if name[:3] in ("row", "col"):
            if rank != 2:
                raise Fault(f"{name} needs a matrix, but its argument has the shape {self.shown(value.shape)}.")
            of_rows = name.startswith("row")
            total = mathematics.reduced(name[3:], array, array.ndim - (1 if of_rows else 2))
            if name[3:] == "softmax":
                return replace(value, array=total)
            return Value(total, value.labels, row=not of_rows and not rows, down=of_rows)
        if name == "diag" and rank == 1:
            return Value(array[..., None] * self.cast(np.eye(array.shape[-1])), value.labels)
        if name == "diag" and rank == 4:  # of a matrix by a matrix, entry by entry
            return Value(np.einsum("...ijij->...ij", array), value.labels)
        if name in ("diag", "tr", "det", "inv"):
            if rank != 2 or value.shape[0] != value.shape[1]:
                raise Fault(f"{name} needs a square matrix, but its argument has the shape {self.shown(value.shape)}.")
            if name in ("diag", "tr"):
                diagonal = np.diagonal(array, axis1=-2, axis2=-1)
                return Value(diagonal, value.labels, rows) if name == "diag" else Value(diagonal.sum(-1), value.labels)
            if self.exact:
                raise Inexact
            return Value(np.linalg.inv(array) if name == "inv" else np.linalg.det(array), value.labels)
        if name == "softmax":
            return replace(value, array=mathematics.softmax(array, array.ndim - 1))
        if name == "logsumexp" and rank == 2:
            raise Unreadable("logsumexp of a matrix: write logsumexp_j S_ij.")
        if name == "vec":  # column by column
            columns = np.swapaxes(array, -1, -2) if rank == 2 else array
            return Value(columns.reshape(*array.shape[: len(value.labels)], -1), value.labels)
        flat = array.reshape(*array.shape[: len(value.labels)], -1)
        if name == "norm":
            return Value(mathematics.entrywise("sqrt", 0, (flat * flat).sum(axis=-1)), value.labels)
        return Value(mathematics.reduced(name, flat, flat.ndim - 1), value.labels)

    def same(self, left: Value, right: Value) -> tuple[Any, Any, tuple[str, ...]]:
        """Both sides of an equation in the axes of the left. Raises Fault if they have other indices or shapes."""
        shapes = f"The left side has the shape {self.shown(left.shape)}, the right side {self.shown(right.shape)}."
        more = [label for label in right.labels if label not in left.labels]
        if more:
            raise Fault(f"The index {' and '.join(more)} is free on the right alone.")
        if left.rank != right.rank:
            zero = not right.rank and not right.labels and not np.any(right.array)
            if not zero:
                raise Fault(shapes)
            right = replace(right, array=with_axes(right.array, left.rank))
        x, y = left.array, spread(right, left.labels)
        if left.there is not None:  # x_{i+1} = ... says nothing about what lies outside x
            y = np.where(with_axes(left.there, x.ndim - left.there.ndim), y, x)
        for p, q in zip(x.shape[len(left.labels) :], y.shape[len(left.labels) :], strict=True):
            if p != q and not (q == 1 and (right.loose or not np.any(right.array))):
                raise Fault(shapes)
        for label, p, q in zip(left.labels, x.shape, y.shape, strict=False):
            if q not in (p, 1):
                one, other = self.shown(p), self.shown(q)
                raise Fault(f"The index {label} runs over {one} on the left and over {other} on the right.")
        return x, np.broadcast_to(y, x.shape), left.labels
