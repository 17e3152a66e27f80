"""What gradients often lack: the weighted sum of softmax, the means of norms; and sums that run the other way."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from .edits import Edit, Edits, Spot, is_it, with_item
from .functions import ENTRYWISE
from .rewriting import everywhere, over, put_in, rebuilt, renamed, times
from .tree import Call, Compare, Node, Number, Over, Product, Ref, Terms, Transposed

_OTHER = {"≤": "≥<", "≥": "≤>", "<": ">≤", ">": "<≥"}


def known_forms(edits: Edits) -> Iterator[Edit]:
    """The weighted sum of softmax's gradient, and a factor that belongs inside the sums."""
    for spot in edits.spots:
        part = spot.part
        if isinstance(part, Product) and len(part.factors) >= 2 and "/" not in part.marks:
            for n, factor in enumerate(part.factors):
                if isinstance(factor, Ref):
                    yield from _weighted(edits, spot, part, n, factor)
                    yield from _moved_in(spot, part, n, factor)
            yield from _upside_down(edits, spot, part)
            yield from _product_rule(spot, part)
            yield from _symmetric(edits, spot, part)
        if isinstance(part, Terms):
            yield from _means(edits, spot, part)
            yield from _under_the_root(spot, part)
        if isinstance(part, Call) and part.function == "sqrt" and isinstance(part.arguments[0], Terms):
            *first, last = part.arguments[0].terms
            inside = replace(part.arguments[0], signs=part.arguments[0].signs[:-1], terms=tuple(first))
            yield spot.edit(Terms(("+", part.arguments[0].signs[-1]), (Call("sqrt", (inside,)), last)))
        if isinstance(part, Compare) and part.sign in _OTHER:
            for sign in _OTHER[part.sign]:
                new = replace(part, sign=sign)
                yield spot.edit(new, is_it(new, part).replace("1[", "").replace("]", ""))


def _symmetric(edits: Edits, spot: Spot, part: Product) -> Iterator[Edit]:
    """A + Aᵀ for 2 A, which are alike for a symmetric A alone."""
    if part.factors[0] == Number("2"):
        for n, factor in enumerate(part.factors):
            if isinstance(factor, Ref) and edits.known.rank(factor.name) == 2 and not factor.indices:
                both = Terms(("+", "+"), (factor, Transposed(factor)))
                new = times(*with_item(part.factors, n, both)[1:])
                told = f"Is it {both:factor}, not 2 {factor}? They are alike only if {factor} is symmetric."
                yield spot.edit(new, told)


def _under_the_root(spot: Spot, part: Terms) -> Iterator[Edit]:
    """√(v + ε) for √v + ε."""
    for n, (sign, root) in enumerate(zip(part.signs, part.terms, strict=True)):
        if isinstance(root, Call) and root.function == "sqrt" and sign == "+":
            inside = Terms(with_item(part.signs, n), with_item(part.terms, n))
            new = Call("sqrt", (Terms(("+", *inside.signs), (root.arguments[0], *inside.terms)),))
            yield spot.edit(new)


def _new_index(edits: Edits) -> str:
    return next(letter for letter in "lkmnpqrst" if letter not in edits.letters)


def _weighted(edits: Edits, spot: Spot, part: Product, n: int, factor: Ref) -> Iterator[Edit]:
    rest = with_item(part.factors, n)
    if factor.indices:
        index, new_index = factor.indices[-1], _new_index(edits)
        total: Node = Over("sum", (new_index,), renamed(times(*part.factors), index, new_index))
        yield spot.edit(times(*rest, Terms(("+", "-"), (factor, total))), "", "weighted sum")
    elif set(part.marks) <= {"*", "⊙"}:
        total = Call("rowsum" if edits.known.rank(factor.name) == 2 else "sum", (part,))
        new = Product(("⊙",) * len(rest), (*rest, Terms(("+", "-"), (factor, total))))
        yield spot.edit(new, "", "weighted sum")


def _upside_down(edits: Edits, spot: Spot, part: Product) -> Iterator[Edit]:
    """a/s, not s a, of a number s."""
    for n, factor in enumerate(part.factors):
        if isinstance(factor, Ref) and not factor.indices and edits.known.rank(factor.name) == 0:
            rest = times(*with_item(part.factors, n))
            new = Product(("", *getattr(rest, "marks", ())), (over(factor), *getattr(rest, "factors", (rest,))))
            yield spot.edit(new, is_it(over(factor), factor))


def _product_rule(spot: Spot, part: Product) -> Iterator[Edit]:
    """x^T A dx beside (dx)^T A x: of the paths of a differential one is missing."""
    inner = [factor.base if isinstance(factor, Transposed) else factor for factor in part.factors]
    for a, b in itertools.permutations(range(len(inner)), 2):
        one, other = inner[a], inner[b]
        if isinstance(one, Ref) and isinstance(other, Ref) and one.name == "d" + other.name:
            factors = with_item(part.factors, a, put_in(part.factors[a], one, other))
            new = replace(part, factors=with_item(factors, b, put_in(part.factors[b], other, one)))
            yield spot.edit(Terms(("+", "+"), (part, new)), f"Is the term + {new} missing?")


def pieces_of_the_text(edits: Edits) -> Iterator[Edit]:
    """What the definitions make one expect as a factor: f' of each f(x), 1[x > 0] of max(0, x), what stands below /."""
    factors: dict[Node, None] = {}
    below: dict[Node, None] = {}
    for tree in [*(made.tree for made in edits.known.defined.values()), edits.left]:
        for part in tree.all:
            if isinstance(part, Call) and part.function == "norm":
                below[part] = None
            if isinstance(part, Call) and part.function in ENTRYWISE and not part.primes:
                factors[replace(part, primes=1)] = None
            if isinstance(part, Call) and part.function in ("max", "relu"):
                inner = [each for each in part.arguments if not isinstance(each, Number)]
                factors |= {Compare(">", each, Number("0")): None for each in inner[:1]}
            if isinstance(part, Product):
                below |= {each: None for mark, each in zip(part.marks, part.factors[1:], strict=True) if mark == "/"}
                factors |= {each: None for each in part.factors if isinstance(each, Call) and each.names <= {"π"}}
    places = [*edits.places(), *(spot for spot in edits.spots if isinstance(spot.part, Ref))]
    for spot, (piece, mark) in itertools.product(places, [*((x, "⊙") for x in factors), *((x, "/") for x in below)]):
        if piece.free <= set(edits.letters):
            told = f"the factor {'1/' if mark == '/' else ''}{piece:factor}"
            yield spot.missing(Product((mark,), (spot.part, piece)), told)


def missing_matrices(edits: Edits) -> Iterator[Edit]:
    """A matrix or a vector that is missing before or behind a product, in a line without indices."""
    arrays = [] if edits.letters else [Ref(name) for name in edits.known.arrays() if edits.known.rank(name) in (1, 2)]
    for spot, array in itertools.product(edits.places(), arrays):
        for new in (array, Transposed(array)):
            told = f"Is the factor {new} missing at {spot.part:factor}?"
            for product in (Product(("⊙",), (new, spot.part)), times(spot.part, new), times(new, spot.part)):
                yield spot.edit(product, told)


def _moved_in(spot: Spot, part: Product, n: int, factor: Ref) -> Iterator[Edit]:
    for m, inside in enumerate(part.factors):
        has_sums = any(isinstance(each, Over) for each in inside.all)
        if factor.indices and isinstance(inside, Terms) and m != n and has_sums:
            terms = tuple(_with_factor(term, factor) for term in inside.terms)
            rest = [f for k, f in enumerate(part.factors) if k not in (n, m)]
            told = f"Does {factor} stand inside the sums, with their index?"
            yield spot.edit(times(*rest, replace(inside, terms=terms)), told, "into sums", factor.name)


def _means(edits: Edits, spot: Spot, part: Terms) -> Iterator[Edit]:
    """A missing term - 1/n sum_k t_k, or - y_i 1/n sum_k t_k y_k, of the gradients of norms and of softmax."""
    for term in part.terms:
        for index in sorted(term.free & set(edits.free)):
            size = _size(edits, term, index)
            if not size:
                continue
            new_index = _new_index(edits)
            body = renamed(term, index, new_index)
            for other, scale in itertools.product([None, *edits.refs(edits.free, only=index)], (True, False)):
                inside = body if other is None else times(body, renamed(other, index, new_index))
                total: Node = Over("sum", (new_index,), inside)
                total = times(over(Ref(size)), total) if scale else total
                total = total if other is None else times(other, total)
                new = Terms((*part.signs, "-"), (*part.terms, total))
                what = "shift" if other is None else "stretch"
                yield spot.edit(new, f"Is the term - {total} missing?", "mean term", what)


def _size(edits: Edits, node: Node, index: str) -> str:
    """How far an index runs, by an array at which it stands."""
    refs = [part for part in node.all if isinstance(part, Ref)]
    axes = [axis for ref in refs for axis in zip(ref.indices, edits.known.axes(ref.name), strict=False)]
    return dict(reversed(axes)).get(index, "")


def _with_factor(node: Node, factor: Ref) -> Node:
    """A term times a factor, which goes into the sum in it, with the sum's index for the last of its own."""
    for part, way in everywhere(node):
        if isinstance(part, Over) and len(part.indices) == 1:
            inside = renamed(factor, factor.indices[-1], part.indices[0])
            return rebuilt(way, replace(part, body=times(inside, part.body)))
    return times(factor, node)
