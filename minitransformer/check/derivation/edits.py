"""Small changes of an expression, each with the question that suggests it.

The order is that in which they are tried: what people slip on most comes first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .names import Names
from .rewriting import Way, everywhere, letters_of, rebuilt, renamed, times, turned
from .shifting import computed, letters, others
from .tree import (
    Call,
    Delta,
    Entry,
    Node,
    Number,
    Over,
    Partial,
    Power,
    Product,
    Ref,
    Terms,
    Transposed,
    free,
    names,
    with_child,
    written,
)


@dataclass(frozen=True)
class Edit:
    """A changed expression. kind: what was changed, for known mistakes; what: the part that was put in or taken out."""

    tree: Node
    question: str
    kind: str
    what: str = ""


def is_it(new: Node, old: Node) -> str:
    """The change as a question."""
    return f"Is it {written(new)}, not {written(old)}?"


class Edits:
    """The changes of one right side. left: the other side; known: the names of the text."""

    def __init__(self, left: Node, right: Node, known: Names) -> None:
        self.left, self.right, self.known = left, right, known
        self.letters = sorted(letters_of(left) | letters_of(right))
        self.free = sorted(free(left))
        self.parts = [
            (part, way) for part, way in everywhere(right) if not any(isinstance(p, Partial) for p, _, _ in way)
        ]

        trees = [left, right, *(each.tree for each in known.defined.values())]
        held = [part for tree in trees for part, _ in everywhere(tree) if isinstance(part, Ref | Entry)]
        self.shifts = any(computed(index) for part in held for index in part.indices)
        self.lengths: dict[str, set[str]] = {}
        for part, _ in [*everywhere(right), *everywhere(left)]:
            if isinstance(part, Ref):
                for index, size in zip(part.indices, known.axes(part.name), strict=False):
                    self.lengths.setdefault(index, set()).add(size)

    def _fits(self, indices: tuple[str, ...], axes: tuple[str, ...]) -> bool:
        """Whether each index runs, somewhere in the line, as far as the axis at which it would stand."""
        return all(size in self.lengths.get(i, {size}) for i, size in zip(indices, axes, strict=False))

    def likely(self) -> Iterator[Edit]:
        """A sign, a sum, an index, a transpose."""
        for kind in (self.signs, self.sums, self.indices, self.transposes):
            yield from kind()

    def others(self) -> Iterator[Edit]:
        """A factor or a term too much or too few, a number, a function, a name."""
        for kind in (self.fewer, self.scalars, self.factors, self.marks, self.numbers, self.terms, self.functions):
            yield from kind()
        yield from self.other_names()

    def signs(self) -> Iterator[Edit]:
        """One sign turned."""
        for part, way in self.parts:
            if isinstance(part, Terms):
                for n, sign in enumerate(part.signs):
                    other = "+" if sign == "-" else "-"
                    new = replace(part, signs=(*part.signs[:n], other, *part.signs[n + 1 :]))
                    told = f"Is the sign before {written(part.terms[n], 'term')} {other}, not {sign}?"
                    yield Edit(rebuilt(way, new), told, "sign", written(part.terms[n]))
        yield Edit(Terms(("-",), (self.right,)), "Is the sign of the whole right side -, not +?", "minus")
        if isinstance(self.right, Terms) and set(self.right.signs) == {"-"} and len(self.right.terms) == 1:
            yield Edit(self.right.terms[0], "Is the sign of the whole right side +, not -?", "minus")

    def indices(self) -> Iterator[Edit]:
        """One index in place of another."""
        for part, way in self.parts:
            spots: list[Node] = []
            if isinstance(part, Ref | Entry):
                spots += [self._with(part, x) for x in self._shifted(part.indices)]
                axes = self.known.axes(part.name) if isinstance(part, Ref) else ()
                spots += [replace(part, indices=x) for x in self._other(part.indices) if self._fits(x, axes)]
            elif isinstance(part, Delta):
                pairs = [*self._other((part.left, part.right)), *itertools.combinations(self.letters, 2)]
                spots = [Delta(*x) for x in pairs if x[0] != x[1]]
            elif isinstance(part, Partial) and isinstance(part.top, Ref):
                above, below = part.top.indices, part.bottom.indices
                for both in self._other((*above, *below)):
                    top = replace(part.top, indices=both[: len(above)])
                    spots.append(Partial(top, replace(part.bottom, indices=both[len(above) :])))
            for new in spots:
                yield Edit(rebuilt(way, new), is_it(new, part), "index", written(new))

    def _with(self, part: Ref | Entry, indices: tuple[str, ...]) -> Node:
        if isinstance(part, Ref) and computed(indices[0]) and self.known.own_rank(f"{part.name}_0") is not None:
            return replace(part, indices=indices, before=f"{part.name}_0")
        return replace(part, indices=indices)

    def _shifted(self, indices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """x_{i-1} for x_{i+1}; and x_{i+1} for x_i, where a line or a definition has such indices."""
        for n, index in enumerate(indices):
            if not index.isdigit() and (computed(index) or self.shifts):
                for other in [*others(index), *(sorted(letters(index)) if computed(index) else [])]:
                    yield (*indices[:n], other, *indices[n + 1 :])
        if sum(map(computed, indices)) > 1:  # both shifts of x_{i-u+1,j-v+1}
            yield from zip(*(others(x) if computed(x) else itertools.repeat(x) for x in indices), strict=False)

    def _other(self, indices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for n, index in enumerate(indices):
            for letter in self.letters:
                if letter != index:
                    yield (*indices[:n], letter, *indices[n + 1 :])
        for a, b in itertools.combinations(range(len(indices)), 2):
            swapped = list(indices)
            swapped[a], swapped[b] = indices[b], indices[a]
            if swapped != list(indices):
                yield tuple(swapped)

    def sums(self) -> Iterator[Edit]:
        """A sum more, or one less."""
        extra = sorted(free(self.right) - set(self.free))
        for index in extra:
            yield Edit(Over("sum", (index,), self.right), f"Is the sum over {index} missing?", "no sum", index)
        if len(extra) > 1:
            told = " and ".join(extra)
            yield Edit(Over("sum", tuple(extra), self.right), f"Is the sum over {told} missing?", "no sum", told)
        for part, way in self.parts:
            if isinstance(part, Product):
                for n in range(1, len(part.factors)):
                    tail = Product(part.marks[n:], part.factors[n:]) if part.marks[n:] else part.factors[n]
                    for index in sorted(free(tail) & set(extra)):
                        new: Node = Product(part.marks[:n], (*part.factors[:n], Over("sum", (index,), tail)))
                        told = f"Is the sum over {index} missing, before {written(tail)}?"
                        yield Edit(rebuilt(way, new), told, "no sum", index)
            if isinstance(part, Terms | Product):
                for n, below in enumerate(part.terms if isinstance(part, Terms) else part.factors):
                    field = "terms" if isinstance(part, Terms) else "factors"
                    for index in sorted(free(below)):
                        if index in extra or (index in self.letters and isinstance(part, Terms)):
                            new = with_child(part, field, n, Over("sum", (index,), below))
                            yield Edit(
                                rebuilt(way, new),
                                f"Is the sum over {index} missing, before {written(below, 'factor')}?",
                                "no sum",
                                index,
                            )
            if isinstance(part, Over):
                for index in self.letters:
                    if index not in part.indices and len(part.indices) == 1:
                        yield Edit(
                            rebuilt(way, replace(part, indices=(index,))),
                            f"Does the sum run over {index}, not over {part.indices[0]}?",
                            "other sum",
                            index,
                        )
                if part.function == "sum":
                    bodies = [part.body] + [renamed(part.body, part.indices[0], letter) for letter in self.free]
                    for body in bodies:
                        yield Edit(
                            rebuilt(way, body),
                            f"Is it {written(body)} alone, without the sum over {part.indices[0]}?",
                            "needless sum",
                        )
                    if part.conditions:
                        yield Edit(
                            rebuilt(way, replace(part, conditions=())),
                            f"Does the sum run over every {part.indices[0]}?",
                            "condition",
                        )

    def transposes(self) -> Iterator[Edit]:
        """One factor transposed, or not."""
        for part, way in self.parts:
            axes = (self.known.rank(part.name) or 0) - len(part.indices) if isinstance(part, Ref) else 0
            if isinstance(part, Ref) and (axes == 2 or (axes == 1 and not part.indices)):  # A, and the A_h of a head
                if way and isinstance(way[-1][0], Transposed):
                    yield Edit(rebuilt(way[:-1], part), is_it(part, way[-1][0]), "transpose", part.name)
                else:
                    new: Node = Transposed(part)
                    yield Edit(rebuilt(way, new), is_it(new, part), "transpose", part.name)
        for part, way in self.parts:
            if isinstance(part, Product) and "" in part.marks:
                for n, mark in enumerate(part.marks):
                    if mark != "":
                        continue
                    a, b = part.factors[n], part.factors[n + 1]
                    if self._is_number(a) or self._is_number(b) or free(part):
                        continue
                    for p, q in ((a, b), (b, a)):
                        for x, y in itertools.product((p, turned(p)), (q, turned(q))):
                            if (x, y) != (a, b):
                                pair = (*part.factors[:n], x, y, *part.factors[n + 2 :])
                                told = is_it(Product(("",), (x, y)), Product(("",), (a, b)))
                                yield Edit(rebuilt(way, replace(part, factors=pair)), told, "transpose", written(x))

    def _is_number(self, node: Node) -> bool:
        return isinstance(node, Number) or all(self.known.rank(name) == 0 for name in names(node))

    def fewer(self) -> Iterator[Edit]:
        """A factor or a term that is too much."""
        for part, way in self.parts:
            if isinstance(part, Product):
                for n, factor in enumerate(part.factors):
                    mark = part.marks[n - 1] if n else (part.marks[0] if part.marks[0] != "/" else "")
                    if n == 0 and part.marks[0] == "/":
                        new: Node = replace(part, factors=(Number("1"), *part.factors[1:]))
                    else:
                        marks = part.marks[: n - 1] + part.marks[n:] if n else part.marks[1:]
                        new = Product(marks, part.factors[:n] + part.factors[n + 1 :])
                        new = new.factors[0] if isinstance(new, Product) and len(new.factors) == 1 else new
                    told = f"Is it without {'/ ' if mark == '/' and n else 'the factor '}{written(factor, 'factor')}?"
                    yield Edit(rebuilt(way, new), told, "needless factor", written(factor))
            if isinstance(part, Terms) and len(part.terms) > 1:
                for n, term in enumerate(part.terms):
                    fewer = Terms(part.signs[:n] + part.signs[n + 1 :], part.terms[:n] + part.terms[n + 1 :])
                    new = fewer.terms[0] if len(fewer.terms) == 1 and fewer.signs == ("+",) else fewer
                    told = f"Is it without the term {part.signs[n]} {written(term, 'term')}?"
                    yield Edit(rebuilt(way, new), told, "needless term", written(term))
            if isinstance(part, Power | Entry):
                yield Edit(rebuilt(way, part.base), is_it(part.base, part), "power")

    def places(self) -> Iterator[tuple[Node, Way]]:
        """Where a factor may be missing: at the whole, at terms, at bodies of sums and arguments of functions."""
        yield self.right, []
        for part, way in self.parts:
            if way and isinstance(way[-1][0], Terms | Over | Call):
                yield part, way

    def _numbers(self) -> list[Number | Ref]:
        own = [name for name, each in self.known.defined.items() if each.rank == 0]
        return [Number("2"), *(Ref(name) for name in (*self.known.numbers, *self.known.sizes, *own))]

    def scalars(self) -> Iterator[Edit]:
        """A factor of the text more, or one less."""
        numbers = self._numbers()
        for part, way in self.places():
            for number in numbers:
                both = (
                    (number, Call("sqrt", (number,)))
                    if isinstance(number, Number) or number.name in self.known.sizes
                    else (number,)
                )
                for factor, divide in itertools.product(both, (True, False)):
                    new = Product(("/",), (part, factor)) if divide else times(factor, part)
                    told = f"Is the factor {'1/' if divide else ''}{written(factor)} missing{_at(part, way)}?"
                    yield Edit(rebuilt(way, new), told, "factor", ("1/" if divide else "") + written(factor))

    def marks(self) -> Iterator[Edit]:
        """Another mark between two factors: a division, a product of entries, or a matrix product."""
        for part, way in self.parts:
            if isinstance(part, Product):
                for n, mark in enumerate(part.marks):
                    for other in ("/", "*", ""):
                        if other != mark and not (mark == "" and other == "*" and free(part)):
                            new = replace(part, marks=(*part.marks[:n], other, *part.marks[n + 1 :]))
                            yield Edit(rebuilt(way, new), is_it(new, part), "mark", other)

    def numbers(self) -> Iterator[Edit]:
        """Another number, or a power."""
        for part, way in self.parts:
            if isinstance(part, Number):
                for digits in ("1", "2", "3", "4", "0"):
                    if digits != part.digits:
                        where = f" in {written(way[-1][0])}" if way else ""
                        yield Edit(
                            rebuilt(way, Number(digits)), f"Is it {digits}, not {part.digits}{where}?", "number", digits
                        )
            if isinstance(part, Ref | Call) or (isinstance(part, Terms) and way):
                for digits in ("2", "3"):
                    if not (way and isinstance(way[-1][0], Power)):
                        new = Power(part, Number(digits))
                        yield Edit(rebuilt(way, new), is_it(new, part), "power", digits)

    def functions(self) -> Iterator[Edit]:
        """One function in place of another."""
        for part, way in self.parts:
            if isinstance(part, Call) and len(part.arguments) == 1:
                yield Edit(rebuilt(way, part.arguments[0]), is_it(part.arguments[0], part), "function", part.function)
                for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "Φ", "φ", "rowsum", "colsum"):
                    if name != part.function:
                        new = replace(part, function=name)
                        yield Edit(rebuilt(way, new), is_it(new, part), "function", name)
                new = replace(part, primes=1 - part.primes) if part.primes < 2 else part
                yield Edit(rebuilt(way, new), is_it(new, part), "function", part.function)
            if isinstance(part, Ref) and not (way and isinstance(way[-1][0], Call | Partial)):
                for name in ("sqrt", "log", "exp"):
                    new = Call(name, (part,))
                    yield Edit(rebuilt(way, new), is_it(new, part), "function", name)

    def refs(self, letters: list[str], only: str = "") -> list[Node]:
        """Every array of the text with indices out of these letters whose lengths fit."""
        found: list[Node] = []
        lengths = self.lengths
        for name in self.known.arrays():
            axes = self.known.axes(name)
            choices = [[i for i in letters if size in lengths.get(i, ())] for size in axes]
            for indices in itertools.islice(itertools.product(*choices), 6):
                if axes and len(set(indices)) == len(indices) and (not only or only in indices):
                    found.append(Ref(name, indices))
        return found

    def factors(self) -> Iterator[Edit]:
        """An array of the text, or a δ, that is missing as a factor."""
        for part, way in self.places():
            inside = sorted(free(part) | set(self.free))
            for new_factor in self.refs(inside):
                for divide in (False, True):
                    new = Product(("/",), (part, new_factor)) if divide else times(new_factor, part)
                    told = f"Is the factor {'1/' if divide else ''}{written(new_factor)} missing{_at(part, way)}?"
                    yield Edit(
                        rebuilt(way, new), told, "factor", new_factor.name if isinstance(new_factor, Ref) else ""
                    )
            for i, j in itertools.combinations(inside, 2):
                told = f"Is δ_{i}{j} missing{_at(part, way)}?"
                yield Edit(rebuilt(way, times(Delta(i, j), part)), told, "delta")

    def terms(self) -> Iterator[Edit]:
        """A whole gradient or product that comes by another path, or a small term."""
        for new in self._paths():
            if new != self.left:
                kind = "path" if written(new)[0] == "d" else "term"
                told = f"Is the term + {written(new)} missing: a gradient that comes by another path?"
                yield Edit(Terms(("+", "+"), (self.right, new)), told, kind, written(new))
                told = f"Is the term - {written(new)} missing?"
                yield Edit(Terms(("+", "-"), (self.right, new)), told, "term", written(new))
        for part, way in self.parts:
            if isinstance(part, Number | Terms | Delta | Ref | Call) and not (way and isinstance(way[-1][0], Power)):
                old = part if isinstance(part, Terms) else Terms(("+",), (part,))
                for new, sign in itertools.product(self._small(part), "-+"):
                    tree = rebuilt(way, Terms((*old.signs, sign), (*old.terms, new)))
                    yield Edit(
                        tree, f"Is the term {sign} {written(new, 'term')} missing after {written(part)}?", "term"
                    )
        for part, way in self.parts:
            if isinstance(part, Ref | Product | Call | Power):
                for signs in (("+", "-"), ("+", "+")):
                    one = Terms(signs, (Number("1"), part))
                    yield Edit(rebuilt(way, one), is_it(one, part), "one")

    def _paths(self) -> Iterator[Node]:
        """Arrays of the shape of the left side, and products of two that have it."""
        left = self.left.bottom if isinstance(self.left, Partial) else self.left
        if not isinstance(left, Ref) or self.free:
            yield from self.refs(self.free) if self.free else ()
            return
        rank, axes = self.known.rank(left.name), self.known.axes(left.name)
        yield from (Ref(name) for name in self.known.arrays() if self.known.rank(name) == rank)
        matrices = [(Ref(name), self.known.axes(name)) for name in self.known.arrays() if self.known.rank(name) == 2]
        both: list[tuple[Node, tuple[str, ...]]] = [*matrices, *((Transposed(a), shape[::-1]) for a, shape in matrices)]
        for (a, above), (b, below) in itertools.product(both, both):
            if rank == 2 and above[1] == below[0] and (above[0], below[1]) == axes:
                yield Product(("",), (a, b))

    def _small(self, part: Node) -> list[Node]:
        """Terms that may be missing beside a part: arrays with indices, numbers, vectors."""
        letters = sorted(free(part) | set(self.free))
        found: list[Node] = [*self.refs(letters), *self._numbers()]
        if not letters:
            vectors = [Ref(name) for name in self.known.arrays() if self.known.rank(name) == 1]
            found += [Ref(name) for name in self.known.arrays() if self.known.rank(name) == 2]
            found += [*vectors, *(Product(("",), (v, Transposed(v))) for v in vectors)]
        numbers = [Ref(name) for name in self.known.numbers]
        return found + [times(n, ref) for n in numbers for ref in self.refs(self.free)]

    def other_names(self) -> Iterator[Edit]:
        """One name in place of another."""
        for part, way in self.parts:
            if isinstance(part, Ref):
                rank = self.known.rank(part.name)
                for name in (*self.known.arrays(), *self.known.sizes, *self.known.numbers):
                    if name != part.name and self.known.rank(name) == rank:
                        new = replace(part, name=name)
                        yield Edit(rebuilt(way, new), is_it(new, part), "name", name)


def _at(part: Node, way: Way) -> str:
    return f" at {written(part, 'factor')}" if way else ""
