"""What gradients often lack: the weighted sum of softmax, the means of norms; and sums that run the other way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from .edits import Edit, Edits, is_it
from .rewriting import Way, everywhere, over, put_in, rebuilt, renamed, times
from .tree import Call, Compare, Node, Over, Product, Ref, Terms, Transposed, free, written

_OTHER = {"≤": "≥<", "≥": "≤>", "<": ">≤", ">": "<≥"}


def known_forms(edits: Edits) -> Iterator[Edit]:
    """The weighted sum of softmax's gradient, and a factor that belongs inside the sums."""
    for part, way in edits.parts:
        if isinstance(part, Product) and len(part.factors) >= 2 and "/" not in part.marks:
            for n, factor in enumerate(part.factors):
                yield from _weighted(edits, part, way, n, factor)
                yield from _moved_in(part, way, n, factor)
            yield from _upside_down(edits, part, way)
            yield from _product_rule(part, way)
        if isinstance(part, Terms):
            yield from _means(edits, part, way)
        if isinstance(part, Compare) and part.sign in _OTHER:
            for sign in _OTHER[part.sign]:
                new = replace(part, sign=sign)
                yield Edit(rebuilt(way, new), is_it(new, part).replace("1[", "").replace("]", ""), "condition", sign)


def _weighted(edits: Edits, part: Product, way: Way, n: int, factor: Node) -> Iterator[Edit]:
    if not isinstance(factor, Ref):
        return
    rest = tuple(f for m, f in enumerate(part.factors) if m != n)
    if factor.indices:
        index = factor.indices[-1]
        new_index = next(letter for letter in "lkmnpqrst" if letter not in edits.letters)
        total: Node = Over("sum", (new_index,), renamed(times(*part.factors), index, new_index))
        new = times(*rest, Terms(("+", "-"), (factor, total)))
    elif set(part.marks) <= {"*", "⊙"}:
        total = Call("rowsum", (part,)) if edits.known.rank(factor.name) == 2 else Call("sum", (part,))
        new = Product(("⊙",) * len(rest), (*rest, Terms(("+", "-"), (factor, total))))
    else:
        return
    yield Edit(rebuilt(way, new), is_it(new, part), "weighted sum", written(total))


def _upside_down(edits: Edits, part: Product, way: Way) -> Iterator[Edit]:
    """a/s, not s a, of a number s."""
    for n, factor in enumerate(part.factors):
        if isinstance(factor, Ref) and not factor.indices and edits.known.rank(factor.name) == 0:
            rest = times(*(f for m, f in enumerate(part.factors) if m != n))
            new = Product(("", *getattr(rest, "marks", ())), (over(factor), *getattr(rest, "factors", (rest,))))
            yield Edit(rebuilt(way, new), is_it(over(factor), factor), "upside down", factor.name)


def _product_rule(part: Product, way: Way) -> Iterator[Edit]:
    """x^T A dx beside (dx)^T A x: of the paths of a differential one is missing."""
    inner = [factor.base if isinstance(factor, Transposed) else factor for factor in part.factors]
    for a, b in itertools.permutations(range(len(inner)), 2):
        one, other = inner[a], inner[b]
        if isinstance(one, Ref) and isinstance(other, Ref) and one.name == "d" + other.name:
            swapped = {a: put_in(part.factors[a], one, other), b: put_in(part.factors[b], other, one)}
            new = replace(part, factors=tuple(swapped.get(n, factor) for n, factor in enumerate(part.factors)))
            told = f"Is the term + {written(new)} missing?"
            yield Edit(rebuilt(way, Terms(("+", "+"), (part, new))), told, "term", written(new))


def missing_matrices(edits: Edits) -> Iterator[Edit]:
    """A matrix or a vector that is missing before or behind a product, in a line without indices."""
    arrays = [] if edits.letters else [Ref(name) for name in edits.known.arrays() if edits.known.rank(name) in (1, 2)]
    for part, way in edits.places():
        for array in arrays:
            for new in (array, Transposed(array)):
                for product in (Product(("⊙",), (new, part)), times(part, new), times(new, part)):
                    told = f"Is the factor {written(new)} missing at {written(part, 'factor')}?"
                    yield Edit(rebuilt(way, product), told, "matrix", written(new))


def _moved_in(part: Product, way: Way, n: int, factor: Node) -> Iterator[Edit]:
    if not isinstance(factor, Ref) or not factor.indices:
        return
    for m, inside in enumerate(part.factors):
        if isinstance(inside, Terms) and m != n and any(isinstance(p, Over) for p, _ in everywhere(inside)):
            terms = tuple(_with_factor(term, factor) for term in inside.terms)
            rest = [f for k, f in enumerate(part.factors) if k not in (n, m)]
            new = times(*rest, replace(inside, terms=terms))
            told = f"Does {written(factor)} stand inside the sums, with their index?"
            yield Edit(rebuilt(way, new), told, "into sums", factor.name)


def _means(edits: Edits, part: Terms, way: Way) -> Iterator[Edit]:
    """A missing term - 1/n sum_k t_k, or - y_i 1/n sum_k t_k y_k, of the gradients of norms and of softmax."""
    for term in part.terms:
        for index in sorted(free(term) & set(edits.free)):
            size = _size(edits, term, index)
            if not size:
                continue
            new_index = next(letter for letter in "lkmnpqrst" if letter not in edits.letters)
            body = renamed(term, index, new_index)
            others: list[Node | None] = [None, *edits.refs(edits.free, only=index)]
            for other, scale in itertools.product(others, (True, False)):
                inside = body if other is None else times(body, renamed(other, index, new_index))
                total: Node = Over("sum", (new_index,), inside)
                total = times(over(Ref(size)), total) if scale else total
                total = total if other is None else times(other, total)
                new = Terms((*part.signs, "-"), (*part.terms, total))
                yield Edit(
                    rebuilt(way, new),
                    f"Is the term - {written(total)} missing?",
                    "mean term",
                    "shift" if other is None else "stretch",
                )


def _size(edits: Edits, node: Node, index: str) -> str:
    for part, _ in everywhere(node):
        if isinstance(part, Ref) and index in part.indices:
            axes = edits.known.axes(part.name)
            at = part.indices.index(index)
            if axes and at < len(axes):
                return axes[at]
    return ""


def _with_factor(node: Node, factor: Ref) -> Node:
    """A term times a factor, which goes into the sum in it, with the sum's index for the last of its own."""
    for part, way in everywhere(node):
        if isinstance(part, Over) and len(part.indices) == 1:
            inside = renamed(factor, factor.indices[-1], part.indices[0])
            return rebuilt(way, replace(part, body=times(inside, part.body)))
    return times(factor, node)
