"""One draw: numbers for all that is given, and from them every definition, gradient and partial derivative.

A derivative is that of the definitions: an array gets an imaginary part of 1e-30 in one entry after another, all of
them at once along an axis "#", and what is computed from it carries the slope in its own imaginary part. Fractions
carry it as `dual.py` says.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from .computing import Computer
from .dual import moving, slopes_of
from .faults import Fault, Inexact, Unreadable
from .functions import STEP, exactly
from .indexing import PLAIN, Reading
from .names import SIZE, Definition, Given, Names
from .tree import Partial, Ref
from .values import MOST, Value, spread

MOST_EXACT = 24  # entries of an array that are moved in fractions, which takes its time
ALL = "#"  # the axis along which entries are moved


class Draw:
    """Numbers for the names of a text. kind: "exact" for fractions, "wide" for numbers far out."""

    def __init__(self, known: Names, seed: int, deadline: float, others: Sequence[Draw] = (), kind: str = "") -> None:
        self.known, self.deadline, self.others = known, deadline, others
        self.exact, self.wide, self.scale = kind == "exact", kind == "wide", Fraction(1)
        self.pick = random.Random(seed)
        self.positive: set[str] = set()  # given names that a root or a logarithm needs so
        self.values: dict[str, Value] = {}
        self.lengths: dict[str, int] = {}
        self.slopes: dict[Any, Any] = {}

    def fill(self) -> None:
        """Draw what has been given and has no numbers yet."""
        if missing := [size for size in self.known.sizes if size not in self.lengths]:
            self._draw_lengths(missing)
        for name in self.known.numbers:
            if name not in self.values:
                most = 75 if re.match("β|beta|ρ|rho", name) else 120  # rates of decay are below 1
                number: Any = Fraction(self.known.strides.get(name) or Fraction(self.pick.randint(40, most), 83))
                self.values[name] = Value(self._array(np.array(number, dtype=object)))
        for name, given in self.known.given.items():
            if name not in self.values:
                self.values[name] = Value(self._array(np.asarray(self._numbers(given, name), dtype=object)))

    def _draw_lengths(self, missing: list[str]) -> None:
        products = {axis for given in self.known.given.values() for axis in given.axes}
        numbers = {int(times) for times, letter in products if not letter}
        taken = numbers | set(self.lengths.values())
        most = 4 + len(missing) + len(taken)
        pool = [n for n in range(2, most + 1) if n not in taken]
        found: list[tuple[int, dict[str, int]]] = []
        for _ in range(300):  # all lengths of a draw differ, and each size differs from draw to draw
            chosen = dict(zip(missing, self.pick.sample(pool, len(missing)), strict=True))
            chosen |= {each: times * chosen[each] for each, times in self.known.multiples.items() if each in chosen}
            lengths = {**self.lengths, **chosen}
            all_axes = [times * lengths[letter] if letter else times for times, letter in products]
            as_before = any(other.lengths.get(letter) == n for other in self.others for letter, n in chosen.items())
            if len(set(all_axes)) == len(all_axes) and not as_before:
                found.append((max(math.prod(self.shape(each, lengths)) for each in self.known.given.values()), chosen))
            if len(found) > 20:
                break
        self.lengths.update(min(found, key=lambda each: each[0])[1] if found else chosen)

    def again(self, lengths: bool = False) -> None:
        """Draw anew, lengths as well if that is asked for, and compute all definitions from that."""
        if lengths:
            self.lengths.clear()
        self.values.clear()
        self.slopes.clear()
        self.fill()
        for definition in self.known.defined.values():
            self.define(definition)

    def shape(self, given: Given, lengths: dict[str, int] | None = None) -> tuple[int, ...]:
        """That of a given array, with these lengths of the sizes or with the draw's own."""
        lengths = lengths or self.lengths
        return tuple(int(times * lengths[letter] if letter else times) for times, letter in given.axes)

    def _numbers(self, given: Given, name: str) -> Any:
        shape = self.shape(given)
        if math.prod(shape) > 20_000:
            raise Unreadable(f"An array of {math.prod(shape)} entries is too large to try; give smaller sizes.")
        numbers: Any = np.empty(shape, dtype=object)
        values = [n for n in range(-15, 16) if n]
        far = itertools.cycle((80, -80, 25, -25, 3, -3))
        for place in np.ndindex(shape):
            eighths = next(far) if self.wide else self.pick.choice(values)
            if not shape:  # the t of f(t) = ...: of both signs
                eighths = abs(eighths) * (-1) ** len(self.others)
            numbers[place] = Fraction(eighths, 8) * self.scale + Fraction(self.pick.randint(1, 60), 997)
        if name in self.positive or given.kind in ("positive", "probabilities"):
            numbers = abs(numbers) + Fraction(1, 16)
        if given.kind == "probabilities":
            numbers = numbers / numbers.sum(axis=-1, keepdims=True)
        if given.kind == "one-hot":
            numbers = numbers * 0
            for place in np.ndindex(shape[:-1]):
                numbers[(*place, self.pick.randrange(shape[-1]))] += 1
        if given.kind.startswith(".."):
            for place in np.ndindex(shape):
                numbers[place] = Fraction(self.pick.randrange(self.lengths[given.kind[2:]]) + self.known.origin)
        if given.kind == "mask":
            for place in np.ndindex(shape):
                numbers[place] = Fraction(self.pick.random() < 0.6)
        if given.kind == "symmetric" and len(shape) == 2 and shape[0] == shape[1]:
            numbers = numbers + numbers.T
        return numbers

    def _array(self, numbers: Any) -> Any:
        return numbers if self.exact else np.asarray(numbers.astype(np.float64))

    # computing

    def computer(self, reading: Reading = PLAIN, moved: dict[str, Value] | None = None) -> Computer:
        """A computer of expressions. moved: values that replace the draw's own."""
        return Computer(self, reading, moved or {})

    def look(self, name: str) -> Value:
        """The value of a name."""
        if name in self.values:
            return self.values[name]
        if (size := name.removesuffix(SIZE)) in self.lengths:
            return Value(self._array(np.array(Fraction(self.lengths[size]), dtype=object)))
        if (base := self.known.base_of(name)) is not None:
            array = self.differential(base) if self.known.differentials() else self.gradient(base)
            return Value(array, row=self.look(base).row)
        raise Unreadable(f"{name} is not defined.")

    def define(self, definition: Definition) -> None:
        """Compute a definition, and keep it."""
        self.values[definition.name] = self.defined(definition)

    def defined(self, definition: Definition, moved: dict[str, Value] | None = None) -> Value:
        """The value of a definition. moved: values that replace the draw's own."""
        return (self._repeated if definition.recurrent else self._once)(definition, moved)

    def _repeated(self, definition: Definition, moved: dict[str, Value] | None, steps: Any = None) -> Value:
        """A recurrence, from entries of 0 on until all are right. steps: what is added to its entries."""
        found: list[Value] = []
        itself = f"{definition.name} is defined by itself; a recurrence goes one way, as h_t = a_t h_{{t-1}} + x_t."
        if not definition.rank:
            raise Unreadable(itself)
        known = self.values.get(definition.name)
        if known is not None and self.exact and known.array.dtype != object:
            raise Inexact
        lengths = sorted(set(self.lengths.values()))
        shapes = itertools.product(lengths, repeat=definition.rank)
        for shape in [known.array.shape] if known is not None else shapes:
            value = last = Value(self._array(np.full(shape, Fraction(0), dtype=object)))
            try:
                for _ in range(shape[0] + 1):
                    last, value = value, self._once(definition, {**(moved or {}), definition.name: value})
                    if steps is not None:
                        value = replace(value, array=value.array + steps, labels=(ALL,))
            except Fault:
                if known is not None:
                    raise
                continue
            if value.shape == shape:
                exact = value.array.dtype == object
                if not exact and not np.allclose(last.array.real, value.array.real, 1e-12, 0, True):
                    raise Unreadable(itself)
                found.append(value)
        if len(found) != 1:
            raise Unreadable(f"How long {definition.name} is cannot be seen; let an array x_t stand beside it.")
        return found[0]

    def _once(self, definition: Definition, moved: dict[str, Value] | None) -> Value:
        given = self.known.given.get(f"d{definition.name}")  # it says how far t goes in y_t = x_{2t+1}
        runs = dict(zip(definition.indices, self.shape(given), strict=False)) if given else {}
        value = self.computer(definition.reading, moved).of(definition.tree, runs)
        moving = tuple(label for label in value.labels if label == ALL)
        order = (*moving, *definition.indices)
        if set(order) != set(value.labels):
            raise Fault(f"{definition.name} has other indices than its right side.")
        return Value(spread(value, order), moving) if definition.indices else value

    # derivatives

    def _moving(self, slopes: Any) -> Any:
        return moving(slopes) if self.exact else 1j * STEP * slopes

    def _slopes(self, array: Any) -> Any:
        return slopes_of(array) if self.exact else array.imag / STEP

    def _moved(self, name: str, targets: set[str], fixed: bool = False, held: str = "") -> dict[str, Value]:
        """What is computed from a name on the way to the targets, with the slope of each entry of that name.

        fixed: the targets alone, so that what stands beside the name in their definitions holds still. held: a name
        that does not move either.
        """
        own = self.look(name)
        array = own.array
        others = [self.look(other).array for other in targets] if self.exact else []
        if self.exact and (array.size > MOST_EXACT or not all(map(exactly, [array, *others]))):
            raise Inexact
        if array.size**2 > MOST:
            raise Unreadable(f"{name} has {array.size} entries; that is too many to move each. Give smaller sizes.")
        steps = self._moving(np.eye(array.size, dtype=int)).reshape(array.size, *array.shape)
        moved = {name: replace(own, array=array[None] + steps, labels=(ALL, *own.labels))}
        needed = self.known.ancestors(targets)
        itself = self.known.defined.get(name)
        if fixed:
            needed &= targets
        elif itself and itself.recurrent:
            moved[name] = self._repeated(itself, None, steps)
        return self._carried(moved, needed - {name, held})

    def _carried(self, moved: dict[str, Value], needed: set[str]) -> dict[str, Value]:
        """What is moved, and with it those of the needed names that are computed from it."""
        for definition in self.known.defined.values():
            if definition.name in needed and definition.tree.names & set(moved):
                moved[definition.name] = self.defined(definition, moved)
        return moved

    def gradient(self, name: str, loss: str = "", held: str = "") -> Any:
        """The derivative by each entry of an array, of the loss or of the output whose gradient is given.

        held: a name that is taken as constant.
        """
        key = ("gradient", name, loss, held)
        if key not in self.slopes:
            self.slopes[key] = self._gradient(name, loss, held)
        return self.slopes[key]

    def differential(self, name: str) -> Any:
        """How an array changes, to first order, if what has a given differential changes by that."""
        moved = {
            base: replace(self.look(base), array=self.look(base).array + self._moving(self.values[given].array))
            for given, base in self.known.differentials().items()
        }
        moved = self._carried(moved, self.known.ancestors({name}))
        return self._slopes(moved[name].array) if name in moved else 0 * self.look(name).array

    def _gradient(self, name: str, of: str, held: str) -> Any:
        upstream, loss = ({}, of) if of else (self.known.upstream(), self.known.loss())
        if name == loss:
            raise Unreadable(f"d{name} is a differential: give those it depends on as well, as in `given dX: (n, d)`.")
        if not upstream and loss is None:
            give = "Give the gradient of the output, as in `given dO: (T, e)`, or define a scalar L."
            raise Unreadable(f"d{name} is the gradient of a loss, but of which? {give}")
        moved = self._moved(name, set(upstream.values()) or {str(loss)}, held=held)
        reached = [each for each in upstream.items() or [("", str(loss))] if each[1] in moved]
        if not reached:
            told = " and ".join(upstream.values()) or loss
            raise Unreadable(f"d{name} cannot be tried: by the definitions above, {told} does not depend on {name}.")
        total: Any = 0
        for gradient, output in reached:
            weight, slopes = self.values[gradient].array if gradient else np.array(1), self._slopes(moved[output].array)
            if weight.shape not in ((), slopes.shape[1:]):
                raise Unreadable(f"{gradient} is given as the gradient of {output}, but has another shape.")
            total = total + (slopes * weight).reshape(slopes.shape[0], -1).sum(axis=1)
        return total.reshape(self.look(name).array.shape)

    def slope(self, node: Partial, computer: Computer, runs: dict[str, int]) -> Value:
        """∂top/∂bottom with the indices that stand there."""
        top, bottom = node.top, node.bottom
        if isinstance(top, Ref) and top.name in ("L", self.known.loss()) and not self.known.rank(top.name):
            gradient = self.gradient(bottom.name, top.name if self.known.rank(top.name) == 0 else "")
            value = Value(gradient, row="∂" in computer.reading.turned and gradient.ndim == 1)
            return computer.entries(value, bottom.indices, runs, bottom.name) if bottom.indices else value
        told = f"∂{top:factor}/∂{bottom.name}"
        entry = isinstance(top, Ref) and len(top.indices) == self.known.rank(top.name)  # by a row, or the whole array
        if bottom.indices and len(bottom.indices) != self.known.rank(bottom.name) and not entry:
            raise Unreadable(f"{told} needs an index for each axis, or none at all.")
        whole = Ref(top.name) if isinstance(top, Ref) else top
        key = (whole, bottom.name, computer.reading.fixed, computer.reading.rows)
        if key not in self.slopes:
            moved = self._moved(bottom.name, whole.names, computer.reading.fixed)
            if not whole.names & set(moved):
                raise Unreadable(f"By the definitions above, {top} does not depend on {bottom.name}.")
            value = self.computer(Reading(computer.reading.rows), moved).of(whole)
            at = value.labels.index(ALL)
            slopes = self._slopes(np.moveaxis(value.array, at, -1))
            below = self.look(bottom.name).array.shape
            labels = tuple(label for label in value.labels if label != ALL)
            self.slopes[key] = Value(slopes.reshape((*slopes.shape[:-1], *below)), labels)
        value = self.slopes[key]
        indices = (*(top.indices if isinstance(top, Ref) else ()), *bottom.indices)
        if indices and len(indices) != value.rank and not entry:
            raise Unreadable(f"{told} needs an index for each axis, or none at all.")
        by_entries_of_x = computer.reading.by_entries_of_x
        by_entries_of_x = self.known.by_entries_of_x if by_entries_of_x is None else by_entries_of_x
        if by_entries_of_x and self.known.jacobians(node):
            return replace(value, array=np.swapaxes(value.array, -1, -2))
        return computer.entries(value, indices, runs, told) if indices else value
