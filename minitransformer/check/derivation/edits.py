"""Small changes of an expression, each with the question that suggests it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .names import Names
from .rewriting import Way, everywhere, letters_of, put_in, rebuilt, renamed, times, turned
from .shifting import computed, letters, others
from .tree import Call, Delta, Entry, Node, Number, Over, Partial, Power, Product, Ref, Terms, Transposed


@dataclass(frozen=True)
class Edit:
    """A changed expression. kind, what: for known mistakes, what was changed, and the part that was put in."""

    tree: Node
    question: str
    kind: str = ""
    what: str = ""


def is_it(new: Node, old: Node) -> str:
    """The change as a question."""
    return f"Is it {new}, not {old}?"


class Spot(NamedTuple):
    """A part of an expression, and the way to it from the root."""

    part: Node
    way: Way

    @property
    def above(self) -> Node | None:
        """What the part stands in."""
        return self.way[-1][0] if self.way else None

    def edit(self, new: Node, question: str = "", kind: str = "", what: str = "") -> Edit:
        """The expression with something new in place of the part."""
        return Edit(rebuilt(self.way, new), question or is_it(new, self.part), kind, what)

    def missing(self, new: Node, factor: str, kind: str = "", what: str = "") -> Edit:
        """The expression with a factor at the part."""
        at = f" at {self.part:factor}" if self.way else ""
        return self.edit(new, f"Is {factor} missing{at}?", kind, what)


def with_item(held: tuple[Any, ...], n: int, *new: Any) -> tuple[Any, ...]:
    """The tuple with other items, or none, in place of one."""
    return (*held[:n], *new, *held[n + 1 :])


class Edits:
    """The changes of one right side. left: the other side; known: the names of the text."""

    def __init__(self, left: Node, right: Node, known: Names) -> None:
        self.left, self.right, self.known = left, right, known
        own = f"d{left.bottom.name}" if isinstance(left, Partial) else left.name if isinstance(left, Ref) else ""
        used = sorted(known.arrays(), key=lambda name: name not in known.used)
        self.arrays = [name for name in used if name != own]  # what is looked for is no part of it
        self.letters = sorted(letters_of(left) | letters_of(right))
        self.free = sorted(left.free)
        trees = [left, right, *(each.tree for each in known.defined.values())]
        functions = {part.function for tree in trees for part in tree.all if isinstance(part, Call)}
        self.normal = ("Φ", "φ") if functions & {"Φ", "φ", "gelu", "erf"} else ()  # SciPy takes time to load
        self.whole = Spot(right, [])
        spots = itertools.starmap(Spot, everywhere(right))
        self.spots = [spot for spot in spots if not any(isinstance(node, Partial) for node, _, _ in spot.way)]

        held = [part for tree in trees for part in tree.all if isinstance(part, Ref | Entry)]
        self.shifts = any(computed(index) for part in held for index in part.indices)
        self.lengths: dict[str, set[str]] = {}
        for part in [*right.all, *left.all]:
            if isinstance(part, Ref):
                for index, size in zip(part.indices, known.axes(part.name), strict=False):
                    self.lengths.setdefault(index, set()).add(size)

    def _fits(self, indices: tuple[str, ...], axes: tuple[str, ...]) -> bool:
        """Whether each index runs, somewhere in the line, as far as the axis at which it would stand."""
        return all(size in self.lengths.get(i, {size}) for i, size in zip(indices, axes, strict=False))

    def signs(self) -> Iterator[Edit]:
        """One sign turned."""
        for spot in self.spots:
            if isinstance(part := spot.part, Terms):
                for n, (sign, term) in enumerate(zip(part.signs, part.terms, strict=True)):
                    other = "+" if sign == "-" else "-"
                    told = f"Is the sign before {term:term} {other}, not {sign}?"
                    yield spot.edit(replace(part, signs=with_item(part.signs, n, other)), told, "sign", str(term))
        yield Edit(Terms(("-",), (self.right,)), "Is the sign of the whole right side -, not +?", "minus")
        if isinstance(self.right, Terms) and self.right.signs == ("-",):
            yield Edit(self.right.terms[0], "Is the sign of the whole right side +, not -?", "minus")

    def indices(self) -> Iterator[Edit]:
        """One index in place of another."""
        for spot in self.spots:
            part, new = spot.part, list[Node]()
            if isinstance(part, Ref | Entry):
                new += [self._with(part, x) for x in self._shifted(part.indices)]
                axes = self.known.axes(part.name) if isinstance(part, Ref) else ()
                new += [replace(part, indices=x) for x in self._other(part.indices) if self._fits(x, axes)]
            elif isinstance(part, Delta):
                pairs = [*self._other((part.left, part.right)), *itertools.combinations(self.letters, 2)]
                new += [Delta(*x) for x in pairs if x[0] != x[1]]
            elif isinstance(part, Partial) and isinstance(part.top, Ref):
                above = len(part.top.indices)
                for both in self._other((*part.top.indices, *part.bottom.indices)):
                    top, bottom = replace(part.top, indices=both[:above]), replace(part.bottom, indices=both[above:])
                    new.append(Partial(top, bottom))
            yield from map(spot.edit, new)
        for one, other in itertools.combinations(self.letters, 2):
            swapped = renamed(renamed(renamed(self.right, one, "\u03df"), other, one), "\u03df", other)
            if swapped != self.right:
                yield Edit(swapped, f"Are {one} and {other} exchanged?")

    def _with(self, part: Ref | Entry, indices: tuple[str, ...]) -> Node:
        if isinstance(part, Ref) and computed(indices[0]) and self.known.own_rank(f"{part.name}_0") is not None:
            return replace(part, indices=indices, before=f"{part.name}_0")
        return replace(part, indices=indices)

    def _shifted(self, indices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """x_{i-1} for x_{i+1}; and x_{i+1} for x_i, where a line or a definition has such indices."""
        for n, index in enumerate(indices):
            if not index.isdigit() and (computed(index) or self.shifts):
                for other in [*others(index), *(sorted(letters(index)) if computed(index) else [])]:
                    yield with_item(indices, n, other)
        if sum(map(computed, indices)) > 1:  # both shifts of x_{i-u+1,j-v+1}
            yield from zip(*(others(x) if computed(x) else itertools.repeat(x) for x in indices), strict=False)

    def _other(self, indices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for n, index in enumerate(indices):
            yield from (with_item(indices, n, letter) for letter in self.letters if letter != index)
        if len(indices) == 2:
            yield from (each for each in itertools.permutations(self.letters, 2) if each != indices)
        for a, b in itertools.combinations(range(len(indices)), 2):
            if indices[a] != indices[b]:
                yield with_item(with_item(indices, a, indices[b]), b, indices[a])

    def sums(self) -> Iterator[Edit]:
        """A sum more, or one less."""
        extra = sorted(self.right.free - set(self.free))
        for bound in [*([index] for index in extra), *([extra] if len(extra) > 1 else [])]:
            new: Node = Over("sum", tuple(bound), self.right)
            yield Edit(new, f"Is the sum over {' and '.join(bound)} missing?")
        for spot in self.spots:
            if isinstance(spot.part, Ref) and len(spot.part.indices) == 1 and isinstance(spot.above, Product):
                index = next(letter for letter in "lkmnpqrst" if letter not in self.letters)
                yield spot.edit(Over("sum", (index,), replace(spot.part, indices=(index,))))
        calls = [each for each in self.right.all if isinstance(each, Call) and each.axis]
        for axis in dict.fromkeys(call.axis for call in calls):  # all of them, as in two means of one line
            turned_: Node = self.right
            for call in [each for each in calls if each.axis == axis]:
                turned_ = put_in(turned_, call, replace(call, axis="0" if axis in ("1", "-1") else "1"))
            yield Edit(turned_, f"Is it the other axis, not axis={axis}?")
        if not self.letters:
            for name in ("rowsum", "colsum", "sum"):
                yield Edit(Call(name, (self.right,)), f"Is the sum missing: {name} of the whole?")
        for spot in self.spots:
            part = spot.part
            if isinstance(part, Product):
                for n in range(1, len(part.factors)):
                    tail = Product(part.marks[n:], part.factors[n:]) if part.marks[n:] else part.factors[n]
                    for index in sorted(tail.free & set(extra)):
                        new = Product(part.marks[:n], (*part.factors[:n], Over("sum", (index,), tail)))
                        yield spot.edit(new, f"Is the sum over {index} missing, before {tail}?")
            if isinstance(part, Terms | Product):
                for field, place, below in part.children:
                    for index in sorted(below.free):
                        if index in extra or isinstance(part, Terms):
                            new = part.with_child(field, place, Over("sum", (index,), below))
                            told = f"Is the sum over {index} missing, before {below:factor}?"
                            yield spot.edit(new, told)
            if isinstance(part, Over):
                yield from self._other_sums(spot, part)

    def _other_sums(self, spot: Spot, part: Over) -> Iterator[Edit]:
        bound = part.indices[0]
        for index in self.letters:
            if index != bound and len(part.indices) == 1:
                told = f"Does the sum run over {index}, not over {bound}?"
                yield spot.edit(replace(part, indices=(index,)), told)
        for n, index in enumerate(part.indices if len(part.indices) > 1 else ()):
            new = replace(part, indices=with_item(part.indices, n))
            yield spot.edit(new, f"Does the sum run without {index}?")
        if part.function == "sum":
            for body in [part.body, *(renamed(part.body, bound, letter) for letter in self.free)]:
                yield spot.edit(body, f"Is it {body} alone, without the sum over {bound}?")
            if part.conditions:
                yield spot.edit(replace(part, conditions=()), f"Does the sum run over every {bound}?")

    def transposes(self) -> Iterator[Edit]:
        """One factor transposed, or not."""
        for spot in self.spots:
            part, above = spot
            if isinstance(part, Ref):
                axes = (self.known.rank(part.name) or 0) - len(part.indices)
                if axes == 2 or (axes == 1 and not part.indices):  # A, and the A_h of a head
                    if isinstance(spot.above, Transposed):
                        yield Spot(spot.above, above[:-1]).edit(part, "", "transpose")
                    else:
                        yield spot.edit(Transposed(part), "", "transpose")
        for spot in self.spots:
            if isinstance(part := spot.part, Product) and not part.free:
                for n, (mark, a, b) in enumerate(zip(part.marks, part.factors, part.factors[1:], strict=False)):
                    if mark != "" or self._is_number(a) or self._is_number(b):
                        continue
                    for p, q in ((a, b), (b, a)):
                        for x, y in itertools.product((p, turned(p)), (q, turned(q))):
                            if (x, y) != (a, b):
                                new = replace(part, factors=(*part.factors[:n], x, y, *part.factors[n + 2 :]))
                                told = is_it(Product(("",), (x, y)), Product(("",), (a, b)))
                                yield spot.edit(new, told, "transpose")
        for name in sorted(self.right.names):
            if self.known.rank(name) == 2:
                yield Edit(put_in(self.right, Ref(name), Transposed(Ref(name))), f"Is each {name} transposed?")
        if not self.free:
            yield Edit(Transposed(self.right), "Is the whole right side transposed?")

    def _is_number(self, node: Node) -> bool:
        return isinstance(node, Number) or all(self.known.rank(name) == 0 for name in node.names)

    def fewer(self) -> Iterator[Edit]:
        """A factor or a term that is too much."""
        for spot in self.spots:
            part = spot.part
            if isinstance(part, Product):
                for n, factor in enumerate(part.factors):
                    if n == 0 and part.marks[0] == "/":
                        new: Node = replace(part, factors=with_item(part.factors, 0, Number("1")))
                    else:
                        new = Product(with_item(part.marks, max(n - 1, 0)), with_item(part.factors, n))
                        new = new.factors[0] if len(new.factors) == 1 else new
                    below = n > 0 and part.marks[n - 1] == "/"
                    yield spot.edit(new, f"Is it without {'/' if below else 'the factor'} {factor:factor}?")
            if isinstance(part, Terms) and len(part.terms) > 1:
                for n, term in enumerate(part.terms):
                    fewer = Terms(with_item(part.signs, n), with_item(part.terms, n))
                    new = fewer.terms[0] if fewer.signs == ("+",) else fewer
                    yield spot.edit(new, f"Is it without the term {part.signs[n]} {term:term}?")
            if isinstance(part, Power | Entry):
                yield spot.edit(part.base)

    def places(self) -> Iterator[Spot]:
        """Where a factor may be missing: at the whole, at terms, at bodies of sums and arguments of functions."""
        yield self.whole
        yield from (spot for spot in self.spots if isinstance(spot.above, Terms | Over | Call))

    def _numbers(self) -> list[Number | Ref]:
        own = [name for name, each in self.known.defined.items() if each.rank == 0]
        return [Number("2"), *(Ref(name) for name in (*self.known.numbers, *self.known.sizes, *own))]

    def scalars(self) -> Iterator[Edit]:
        """A factor of the text more, or one less."""
        factors: list[Node] = []
        for number in self._numbers():
            root = isinstance(number, Number) or number.name in self.known.sizes
            factors += [number, Call("sqrt", (number,))] if root else [number]
        for spot, factor in itertools.product(self.places(), factors):
            one_over = "1/" + str(factor)
            yield spot.missing(Product(("/",), (spot.part, factor)), f"the factor {one_over}", "factor", one_over)
            yield spot.missing(times(factor, spot.part), f"the factor {factor}", "factor", str(factor))

    def marks(self) -> Iterator[Edit]:
        """Another mark between two factors: a division, a product of entries, or a matrix product."""
        for spot in self.spots:
            if isinstance(part := spot.part, Product):
                for (n, mark), other in itertools.product(enumerate(part.marks), ("/", "*", "")):
                    if other != mark and not (mark == "" and other == "*" and part.free):
                        yield spot.edit(replace(part, marks=with_item(part.marks, n, other)))

    def numbers(self) -> Iterator[Edit]:
        """Another number, or a power."""
        for spot in self.spots:
            part = spot.part
            if isinstance(part, Number):
                where = f" in {spot.above}" if spot.above else ""
                for digits in ("1", "2", "3", "4", "0"):
                    if digits != part.digits:
                        yield spot.edit(Number(digits), f"Is it {digits}, not {part.digits}{where}?")
            inside = isinstance(part, Ref | Call) or (isinstance(part, Terms) and spot.way)
            if inside and not isinstance(spot.above, Power):
                yield from (spot.edit(Power(part, Number(digits))) for digits in ("2", "3"))

    def functions(self) -> Iterator[Edit]:
        """One function in place of another."""
        for spot in self.spots:
            part = spot.part
            if isinstance(part, Call) and len(part.arguments) == 1:
                yield spot.edit(part.arguments[0])
                for name in ("exp", "log", "sqrt", "tanh", "sigmoid", *self.normal, "rowsum", "colsum"):
                    if name != part.function:
                        yield spot.edit(replace(part, function=name))
                yield spot.edit(replace(part, primes=1 - part.primes) if part.primes < 2 else part)
            if isinstance(part, Ref) and not isinstance(spot.above, Call | Partial):
                yield from (spot.edit(Call(name, (part,))) for name in ("sqrt", "log", "exp"))

    def refs(self, letters: list[str], only: str = "") -> list[Ref]:
        """Every array of the text with indices out of these letters whose lengths fit."""
        found: list[Ref] = []
        for name in self.arrays:
            axes = self.known.axes(name)
            choices = [[i for i in letters if size in self.lengths.get(i, ())] for size in axes]
            for indices in itertools.islice(itertools.product(*choices), 6):
                if axes and len(set(indices)) == len(indices) and (not only or only in indices):
                    found.append(Ref(name, indices))
        return found

    def factors(self) -> Iterator[Edit]:
        """An array of the text, or a δ, that is missing as a factor."""
        for spot in self.places():
            inside = sorted(spot.part.free | set(self.free))
            for ref in self.refs(inside):
                yield spot.missing(times(ref, spot.part), f"the factor {ref}", "factor", ref.name)
                below = Product(("/",), (spot.part, ref))
                yield spot.missing(below, f"the factor 1/{ref}", "factor", ref.name)
            for i, j in itertools.combinations(inside, 2):
                yield spot.missing(times(Delta(i, j), spot.part), f"δ_{i}{j}")

    def terms(self) -> Iterator[Edit]:
        """A whole gradient or product that comes by another path, or a small term."""
        for new in self._paths():
            if new != self.left:
                kind = "path" if str(new)[0] == "d" else ""
                told = f"Is the term + {new} missing: a gradient that comes by another path?"
                yield Edit(Terms(("+", "+"), (self.right, new)), told, kind, str(new))
                yield Edit(Terms(("+", "-"), (self.right, new)), f"Is the term - {new} missing?")
        for spot in self.spots:
            part = spot.part
            if isinstance(part, Number | Terms | Delta | Ref | Call) and not isinstance(spot.above, Power):
                old = part if isinstance(part, Terms) else Terms(("+",), (part,))
                for new, sign in itertools.product(self._small(part), "-+"):
                    told = f"Is the term {sign} {new:term} missing after {part}?"
                    yield spot.edit(Terms((*old.signs, sign), (*old.terms, new)), told)
        for spot in self.spots:
            if isinstance(spot.part, Ref | Product | Call | Power):
                yield from (spot.edit(Terms(("+", sign), (Number("1"), spot.part))) for sign in "-+")

    def _paths(self) -> Iterator[Node]:
        """Arrays of the shape of the left side, and products of two that have it."""
        left = self.left.bottom if isinstance(self.left, Partial) else self.left
        if not isinstance(left, Ref) or self.free:
            yield from self.refs(self.free) if self.free else ()
            return
        rank, axes = self.known.rank(left.name), self.known.axes(left.name)
        yield from self._of_rank(rank)
        yield from (times(Ref(n), array) for n in self.known.numbers for array in self._of_rank(rank))
        if rank == 2:
            both = [(array, self.known.axes(array.name)) for array in self._of_rank(2)]
            turned_too: list[tuple[Node, tuple[str, ...]]] = [*both, *((Transposed(a), axes[::-1]) for a, axes in both)]
            for (a, above), (b, below) in itertools.product(turned_too, repeat=2):
                if above[1] == below[0] and (above[0], below[1]) == axes:
                    yield Product(("",), (a, b))

    def _of_rank(self, rank: int | None) -> list[Ref]:
        return [Ref(name) for name in self.arrays if self.known.rank(name) == rank]

    def _small(self, part: Node) -> list[Node]:
        """Terms that may be missing beside a part: arrays with indices, numbers, vectors."""
        letters = sorted(part.free | set(self.free))
        found: list[Node] = [*self.refs(letters), *self._numbers()]
        if not letters:
            vectors = self._of_rank(1)
            found += [*self._of_rank(2), *vectors, *(Product(("",), (v, Transposed(v))) for v in vectors)]
        return found + [times(Ref(n), ref) for n in self.known.numbers for ref in self.refs(self.free)]

    def other_names(self) -> Iterator[Edit]:
        """One name in place of another."""
        for spot in self.spots:
            if isinstance(part := spot.part, Ref):
                rank = self.known.rank(part.name)
                for name in (*self.arrays, *self.known.sizes, *self.known.numbers):
                    if name != part.name and self.known.rank(name) == rank:
                        yield spot.edit(replace(part, name=name))
