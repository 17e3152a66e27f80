"""What a line defines: the first line of a name says what it is."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .comparing import NOT_FINITE, Trial
from .explaining import free_alone, summed
from .faults import Fault, Inexact, OutOfTime, Unreadable
from .indexing import Reading
from .mending import by_entries, lengths_of, slash_readings, tightened, unclear_slashes, with_entries
from .names import TOTAL, Definition, Names, as_sizes
from .parsing import After, Expression, Factor
from .reading import Reader
from .recognising import row_of
from .rewriting import letters_of, put_in, renamed, times
from .shifting import computed, index_of, indices_of, letters, terms
from .tree import Call, Delta, Node, Number, Over, Partial, Ref, Terms
from .values import Value

TWO_READINGS = "This has two readings, as a / b c, A ⊙ B C and cos(a) b have; put brackets around the one you mean."


def _letters(label: str | None) -> list[str]:
    """The index letters of a label such as _ij, or none if it is a word or a number."""
    with contextlib.suppress(Unreadable):
        found = list(indices_of((label or "")[1:], axes=1))
        return [] if any(index.isdigit() for index in found) else found
    return []


def _all_letters(indices: Iterable[str]) -> set[str]:
    return set[str]().union(*map(letters, indices))


def _from_here(indices: tuple[str, ...], tree: Node) -> tuple[tuple[str, ...], Node]:
    """h_{t+1} = f(t) as h_t = f(t-1)."""
    found = []
    for index in indices:
        factors, constant = terms(index)
        if computed(index) and len(factors) == 1 and factors[0][1] == 1:
            ((letter, _),) = factors
            tree = renamed(tree, letter, index_of({letter: 1}, -constant))
            index = letter
        found.append(index)
    return tuple(found), tree


def _stride(index: str) -> tuple[int, int]:
    """The 2 and the 1 of y_{2i+1}. Raises Unreadable for an index at which no array can be defined."""
    factors, constant = terms(index)
    if len(factors) != 1 or factors[0][1] < 2:
        raise Unreadable(f"What stands at the index {index} cannot be defined; write y_i = ..., or y_{{2i}} = ...")
    return factors[0][1], constant


class Definitions:
    """Reads the sides of equations, and defines the names that are new."""

    def __init__(self, known: Names, reader: Reader, trial: Trial) -> None:
        self.known, self.reader, self.trial = known, reader, trial
        self.entries = False  # whether a dot of the last side is read entry by entry

    def side(self, side: Expression, indices: Iterable[str]) -> Node:
        """A side as a tree; the indices of the other side are indices here as well."""
        self.reader.bound = list(indices)
        self.reader.comparing = 0
        self.reader.swallowed = self.entries = False
        tree = self.reader.expression(side)
        if self.known.einstein:
            tree = summed(tree, set(self.reader.bound))
        if self.known.bars:
            tree = lengths_of(tree, self._is_vector)
        lengths = lengths_of(tree, self._is_vector)
        for other in (tightened(tree), lengths, by_entries(tree), with_entries(tree, self._is_vector)):
            if other != tree and not self.value(tree) and self.value(other):
                self.known.bars = self.known.bars or other is lengths
                self.entries = "·" in str(tree) and "·" not in str(other)
                return other
        return tree

    def by_entry(self, left: Node, right: Node) -> Node:
        """∂y/∂x of y = f(x) entry by entry, as the vector f'(x), if that is what stands on the right."""
        value = self.value(right) if isinstance(left, Partial) else None
        if value and value.rank and self.known.jacobians(left, rank=value.rank):
            slopes = [draw.computer().of(left).array for draw in self.trial.draws]
            flat = [x.reshape(math.isqrt(x.size), -1) for x in slopes if x.shape[: x.ndim // 2] * 2 == x.shape]
            if flat and all(np.array_equal(x, x * np.eye(len(x))) for x in flat):
                return Call("diag", (left,))
        return left

    def _is_vector(self, tree: Node) -> bool:
        value = self.value(tree)
        return value is not None and value.rank == 1

    def value(self, tree: Node) -> Value | None:
        """The value of an expression on the first draw, in the first way in which it can be computed."""
        for reading in self.trial.ways(tree):
            with contextlib.suppress(Fault, Unreadable, np.linalg.LinAlgError):
                return self.trial.draws[0].computer(reading).of(tree)
        return None

    def is_number(self, side: Expression) -> bool:
        """Whether a side is a number, so that d = 64 says how large d is, and S = Q Kᵀ what the array S is."""
        tree = self.side(side, ())
        return not tree.names - set(self.known.sizes) and not tree.free

    def new(self, single: Factor, right: Expression) -> Node | None:
        """Define a name that is new; its Ref. None if the left side claims something about known names."""
        name, after = single.name, single.after
        found = self.reader.found(name, after)
        if found is not None and found[0][0] == name[0].upper() != name[0]:
            found = None  # s_i = ... defines s, although S is known
        if after and (capital := row_of(name)) and self.known.rank(name) is None and f"d{capital}" in self.known.given:
            name = capital if self.known.rank(capital) is None else name  # o_i = ..., where dO is given
        if found is not None and (layer := self._of_other_letters(found[0], after, right)):
            return layer
        if found is not None and self._is_total(found[0], after, right):
            return self._define(name + TOTAL, (), self.side(right, ()))
        if partly := self._part_of(name, after, right) or self._entry_of(name, after, right):
            return partly
        if found is not None and not self.known.only_size(found[0]) and not self._new_label(name, after, right):
            return None
        tree, more = self._right(name, after, right)
        if self.reader.swallowed or (any(unclear_slashes(tree)) and any(map(self.value, slash_readings(tree)))):
            raise Unreadable(TWO_READINGS)
        tight = tightened(tree)
        one, other = (self.value(tree), self.value(tight)) if tight is not tree else (None, None)
        if one and other and not (one.shape == other.shape and np.allclose(one.array, other.array, equal_nan=True)):
            raise Unreadable("A ⊙ B C has two readings, (A ⊙ B) C and A ⊙ (B C); put brackets around the one you mean.")
        open_indices = tree.free - set(self.known.sizes)
        indices: list[str] = []
        square = ""
        once = sum(part.kind == "_" for part in after) == 1  # unlike log_probs_ij
        for part in after:
            own = _letters(part.label) if part.kind == "_" else []
            if part.label is None:
                raise Unreadable(f"{name} is not defined, and only a name can be: {name} = ...")
            if part.label == "^2":
                square = "^2"
            elif own and ((at := _all_letters(own)) <= tree.free or (once and (at & tree.free or open_indices))):
                indices += own
            else:
                name += part.label
        name += square
        if self.known.own_rank(name) is not None and not self.known.only_size(name):
            return None
        if any(map(computed, indices)):
            return self._define_shifted(name, tuple(indices), tree, more)
        extra, missing = sorted(open_indices - set(indices)), [i for i in indices if i not in tree.free]
        if extra or missing or len(set(indices)) != len(indices):
            raise Fault(free_alone(Ref(name, tuple(indices)), tree, extra, missing))
        return self._define(name, tuple(indices), tree, rank=len(indices) + more)

    def _of_other_letters(self, name: str, after: Sequence[After], right: Expression) -> Node | None:
        """δ_j = ..., where δ_k is known and j runs elsewhere: in books the letter says which layer is meant."""
        made = self.known.defined.get(name)
        own = tuple(_letters(after[0].label)) if len(after) == 1 else ()
        known = (name, *own) in self.known.by_letters
        if not made or not own or known or len(own) != len(made.indices) or set(own) & set(made.indices):
            return None
        with contextlib.suppress(Unreadable, Fault):
            tree = self.side(right, own)
            runs = self.trial.draws[0].computer().runs(tree, {})
            shape = self.trial.draws[0].look(name).shape
            if set(own) == tree.free and any(runs[i] != n for i, n in zip(own, shape, strict=True)):
                other = name + "\u200d" * (1 + len(self.known.by_letters))
                self._define(other, own, tree, rank=len(own))
                self.known.by_letters[(name, *own)] = other
                return Ref(other, own)
        return None

    def _right(self, name: str, after: Sequence[After], right: Expression) -> tuple[Node, int]:
        """The right side. Of a recurrence, which uses the name itself, also how many axes that has beside indices."""
        own = [x for part in after for x in _letters(part.label)]
        bound = sorted(_all_letters(own))
        try:
            return self.side(right, bound), 0
        except Unreadable as unknown:
            if not own or self.known.own_rank(name) is not None:
                raise
            problem: Exception = unknown
        for more in (0, 1, 2):  # h_t may be a number, a vector, a matrix
            try:
                self.known.defined[name] = Definition(name, tuple(bound), Number("0"), len(own) + more)
                tree = self.side(right, bound)
                if name not in tree.names:
                    break
                self._fits(name, tuple(own), tree, len(own) + more)
                return tree, more
            except (Unreadable, Fault) as error:
                problem = problem if more else error
            finally:
                del self.known.defined[name]
        raise problem

    def _fits(self, name: str, indices: tuple[str, ...], tree: Node, rank: int) -> None:
        """Raises Unreadable or Fault if a recurrence with so many axes cannot be computed."""
        indices, tree = _from_here(indices, tree)
        draw = self.trial.draws[0]
        self._first_way([tree], lambda tree, way: draw._repeated(Definition(name, indices, tree, rank, way), None))

    def _first_way(self, trees: list[Node], use: Callable[[Node, Reading], Any]) -> Any:
        """What comes of the first way of reading that can be computed. Raises what is wrong with the first of all."""
        problem: Exception | None = None
        for tree, way in itertools.product(trees, self.trial.ways(*trees)):
            try:
                return use(tree, way)
            except (Fault, Unreadable) as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def _part_of(self, name: str, after: Sequence[After], right: Expression) -> Node | None:
        """y_{2i+1} = ... where y_{2i} has been defined above."""
        made = self.known.defined.get(name)
        own = _letters(after[0].label) if len(after) == 1 else []
        if not made or not made.parts or len(own) != len(made.indices) or not any(map(computed, own)):
            return None
        stride, place = _stride(next(filter(computed, own)))
        if any((place - _stride(index)[1]) % stride == 0 for index, _ in made.parts):
            return None
        tree = self.side(right, sorted(_all_letters(own)))
        return self._define_shifted(name, tuple(own), tree, 0)

    def _entry_of(self, name: str, after: Sequence[After], right: Expression) -> Node | None:
        """y_{i1} = ..., where dy is given, says what one column of y is, and other lines say what the others are."""
        given, made = self.known.given.get(f"d{name}"), self.known.defined.get(name)
        subscript = len(after) == 1 and after[0].kind == "_"
        if given is None or not subscript or name in self.known.given or (made and not made.parts):
            return None
        with contextlib.suppress(Unreadable):
            own = indices_of(after[0].text, len(given.axes))
            numbers = [index for index in own if index.isdigit()]
            there = {index for index, _ in made.parts} if made else set()
            new = len(numbers) == 1 and numbers[0] not in there and not any(map(computed, there))
            if new and len(own) == len(given.axes):
                tree = self.side(right, [index for index in own if index not in numbers])
                value = self.value(tree)
                return self._define_shifted(name, own, tree, 0) if value is None or value.rank == 0 else None
        return None

    def _define_shifted(self, name: str, indices: tuple[str, ...], tree: Node, more: int) -> Node:
        """h_{t+1} = ... says what h_t is; y_{2i} = ... is a part of y, and other lines have the other parts."""
        indices, tree = _from_here(indices, tree)
        parted = [n for n, index in enumerate(indices) if computed(index) or index.isdigit()]
        if not parted:
            return self._define(name, indices, tree, rank=len(indices) + more)
        (at,) = parted
        if computed(indices[at]):
            _stride(indices[at])
        used = letters_of(tree) | _all_letters(indices)
        new = next(letter for letter in "jklmnpqrsuvw" if letter not in used and letter not in self.known.sizes)
        made = self.known.defined.pop(name, None)
        parts = (*(made.parts if made else ()), (indices[at], tree))
        sums = []
        for index, body in parts:
            body = times(Delta(new, index), body)
            sums.append(Over("sum", tuple(letters(index)), body) if computed(index) else body)
        whole = Terms(("+",) * len(sums), tuple(sums))
        self._define(name, (*indices[:at], new, *indices[at + 1 :]), whole, rank=len(indices), parts=parts)
        return Ref(name, indices)

    def _is_total(self, name: str, after: Sequence[After], right: Expression) -> bool:
        """Whether a line is like L = sum_i L_i: a number that has the name of an array defined with indices."""
        known = self.known.defined.get(name)
        if after or known is None or not known.indices:
            return False
        tree = self.side(right, ())
        return name in tree.names and not tree.free and self.trial.draws[0].computer().of(tree).rank == 0

    def _new_label(self, name: str, after: Sequence[After], right: Expression) -> bool:
        """Whether x_max is a new name although x is known: its subscript is a word, not indices."""
        found = self.reader.found(name, after)
        if found is None or not found[1] or (found[0] != name and not found[0].startswith(f"{name}_")):
            return False
        rank = self.known.rank(found[0]) or 0
        kind, text, *_ = found[1][0]
        if kind == "'":
            return True
        if kind != "_" or self.known.own_rank(found[0]) is None:
            return False  # dx_1 is an entry of dx, never a new name
        if text.isdigit():  # x_1 is an entry if it is a number, else the array of a first step
            return len(text) != rank or self._rank(right) != 0
        own = _letters(found[1][0].label)
        if own and text[0] == "t" and rank and self._rank(right) == rank:  # the m_t of a next step, beside a known m
            return "t" not in self.side(right, ()).free
        return not own or len(own) > rank or text.isupper()

    def _rank(self, side: Expression) -> int:
        """How many axes a side has, free indices included."""
        value = self.trial.draws[0].computer().of(self.side(side, ()))
        return value.rank + len(value.labels)

    def _define(
        self, name: str, indices: tuple[str, ...], tree: Node, rank: int = 0, parts: tuple[tuple[str, Node], ...] = ()
    ) -> Node:
        sized = as_sizes(tree, self.known)
        definition, values = self._first_way(
            [tree] if sized is tree else [tree, sized],
            lambda each, way: self._computed(Definition(name, indices, each, rank, way, parts=parts)),
        )
        self.trial.decide(definition.tree, definition.reading)
        letters = {n: letter for letter, n in self.trial.draws[0].lengths.items()}
        axes = tuple(letters.get(n, str(n)) for n in values[0].shape)
        self._come_by(replace(definition, rank=values[0].rank, axes=axes))
        for draw, value in zip(self.trial.draws, values, strict=True):
            draw.values[name] = value
        with contextlib.suppress(Fault, Unreadable, np.linalg.LinAlgError):
            self.trial.wide.define(self.known.defined[name])
        try:
            self.trial.exact.define(definition)
        except (Inexact, OutOfTime, ZeroDivisionError, Unreadable, Fault, TypeError, AttributeError):
            self.trial.exact.values[name] = Value(np.nan)  # of no exact type, so that nothing exact uses it
        return Ref(name, indices)

    def _computed(self, definition: Definition) -> tuple[Definition, list[Value]]:
        """A definition, and its values on all draws."""
        values = [draw.defined(definition) for draw in self.trial.draws]
        if not all(np.all(np.isfinite(value.array)) for value in values):
            values = self._drawn_again(definition)
        if any(value.loose for value in values):
            raise Unreadable(f"How long {definition.name} is cannot be seen; write ones_n, where n is a size.")
        return definition, values

    def _come_by(self, new: Definition) -> None:
        """Take in a definition. If its right side stands in ones above, as in y = σ(W x), a = W x, they come by it."""
        made = list(self.known.defined.items())
        at = len(made)
        if not new.parts and not new.recurrent:  # and P_ij = exp(q_i^T k_j) by the S_ij that is q_i^T k_j
            for name, each in made:
                if not (isinstance(each.tree, Ref | Number) or each.parts or each.recurrent):
                    new = replace(new, tree=put_in(new.tree, each.tree, Ref(name, each.indices)))
        if not (isinstance(new.tree, Ref | Number) or new.indices or new.parts):
            trees = [put_in(each.tree, new.tree, Ref(new.name)) for _, each in made]
            at = next((n for n, (_, each) in enumerate(made) if trees[n] is not each.tree), at)
            made = [(name, replace(each, tree=tree)) for (name, each), tree in zip(made, trees, strict=True)]
        self.known.defined = dict([*made[:at], (new.name, new), *made[at:]])

    def _drawn_until_finite(self, definition: Definition) -> list[Value] | None:
        """Of a logarithm of a determinant or the like: other numbers for the draws that need some."""
        values = []
        for draw in self.trial.draws:
            for _ in range(12):
                value = draw.defined(definition)
                if np.all(np.isfinite(value.array)):
                    break
                draw.again()
            values.append(value)
        return values if all(np.all(np.isfinite(value.array)) for value in values) else None

    def _drawn_again(self, definition: Definition) -> list[Value]:
        """Roots and logarithms need positive numbers: of one given array if that is enough, else of all they use."""
        used = [name for name in self.known.given if name in self.known.ancestors(definition.tree.names)]
        before = self.trial.draws[0].positive
        for choice in [{name} for name in used] + ([set(used)] if len(used) > 1 else []):
            for draw in [*self.trial.draws, self.trial.wide]:
                draw.positive = before | choice
                draw.again()
            values = [draw.defined(definition) for draw in self.trial.draws]
            if all(np.all(np.isfinite(value.array)) for value in values):
                return values
        for draw in self.trial.draws:
            draw.positive = before
            draw.again()
        determinant = any(isinstance(part, Call) and part.function == "det" for part in definition.tree.all)
        if determinant and (found := self._drawn_until_finite(definition)):
            return found
        raise Unreadable(f"{definition.name} {NOT_FINITE}")
