"""Columns and rows: in a text in matrices each vector is one or the other, and a line may not take it for the other.

`y = W z` says that z and y are columns, so dz is one as well: `dz = dy W` and `dz = dyᵀ W` are wrong, `dz = Wᵀ dy` is
right. Nothing is said of vectors that carry indices, that stand only entry by entry, or that are sums of a matrix's
rows or columns. The derivative of a number by a vector, ∂L/∂z, may be a row: books write it either way.
"""

from .computing import Computer
from .faults import Fault, Unreadable
from .functions import ENTRYWISE
from .names import Names
from .tree import Call, Node, Number, Over, Partial, Power, Product, Ref, Terms, Transposed
from .values import Value

Turn = tuple[str, bool]  # like this name; or, if True, the other way round
COLUMN: Turn = ("", False)


def _other(turn: Turn | None) -> Turn | None:
    return turn and (turn[0], not turn[1])


class Turns:
    """What a text has said so far about its vectors."""

    def __init__(self, known: Names) -> None:
        self.known = known
        self.like: dict[str, Turn] = {}  # a name, and the one that decides for it
        self.none = False  # whether vectors have no direction in this text

    def read(self, left: Node, right: Node, computer: Computer) -> str:
        """Take in a right line; or the sentence that says where it contradicts the lines before."""
        if self.none:
            return ""
        before = self.like
        problem, found = "", []
        for turned in (False, True) if any(side.by_vector for side in (left, right)) else (False,):
            self.like = dict(before)
            try:
                Line(self, computer, turned).equal(left, right)
            except Fault as fault:
                problem = problem or str(fault)
            else:
                found.append(self.like)
        self.like = found[0] if len(found) == 1 or (found and found[0] == found[1]) else before
        return "" if found else problem

    def of(self, turn: Turn) -> Turn:
        """The name that decides, and whether it is the other way round there."""
        name, turned = turn
        while name in self.like:
            name, other = self.like[name]
            turned = turned != other
        return name, turned

    def same(self, one: Turn, other: Turn) -> bool:
        """Take in that two vectors have one direction; False if they cannot."""
        (a, a_turned), (b, b_turned) = self.of(one), self.of(other)
        if a == b:
            return a_turned == b_turned
        if a == COLUMN[0]:
            a, b = b, a
        self.like[a] = (b, a_turned != b_turned)
        return True

    def told(self, node: Node, turn: Turn) -> str:
        """Whether a vector is a column or a row, in words."""
        name, turned = self.of(turn)
        is_ = f"{node} is " + ("a row" if turned else "a column")
        return is_ if name == COLUMN[0] else f"{is_} if {name} is a column"


class Line:
    """The directions of the vectors in one line."""

    def __init__(self, turns: Turns, computer: Computer, turned: bool) -> None:
        self.turns, self.computer, self.turned = turns, computer, turned

    def equal(self, left: Node, right: Node) -> None:
        """Both sides of an equation. Raises Fault if they cannot be equal."""
        self._same((left, self.of(left)), (right, self.of(right)))

    def _same(self, *vectors: tuple[Node, Turn | None]) -> Turn | None:
        first: tuple[Node, Turn] | None = None
        for node, turn in vectors:
            if turn is None:
                continue
            if first and not self.turns.same(first[1], turn):
                raise Fault(f"{self.turns.told(*first)}, but {self.turns.told(node, turn)}.")
            first = first or (node, turn)
        return first and first[1]

    def _must(self, node: Node, turn: Turn | None, row: bool) -> None:
        if turn is not None and not self.turns.same(turn, ("", row)):
            needed = "a row" if row else "a column"
            raise Fault(f"{self.turns.told(node, turn)}, but must be {needed} where it stands here.")

    def _value(self, node: Node) -> Value | None:
        try:
            return self.computer.of(node)
        except (Fault, Unreadable):
            return None

    def of(self, node: Node) -> Turn | None:
        """The direction of an expression; None if it is no vector, or may have either."""
        value = self._value(node)
        if value is None or value.labels:
            return None
        turn = self._inside(node, value.rank)
        return turn if value.rank == 1 else None

    def _inside(self, node: Node, rank: int) -> Turn | None:
        if isinstance(node, Ref):
            if node.name.startswith("ones"):
                return COLUMN
            return None if node.indices else (self.turns.known.base_of(node.name) or node.name, False)
        if isinstance(node, Partial):
            plain = not node.bottom.indices and node.by_vector
            return (node.bottom.name, self.turned) if plain else None
        if isinstance(node, Transposed):
            return _other(self.of(node.base))
        if isinstance(node, Product):
            return self._product(node, rank)
        parts = [(part, self.of(part)) for part in node.parts]
        if isinstance(node, Power):
            return parts[0][1]
        function = node.function if isinstance(node, Call) else ""
        entrywise = isinstance(node, Terms | Over) or function in {*ENTRYWISE, "softmax", "max", "min"}
        return self._same(*parts) if entrywise and rank == 1 else None

    def _product(self, node: Product, rank: int) -> Turn | None:
        before: Node = node.factors[0]
        turn = self.of(before)
        for n, (mark, factor) in enumerate(zip(node.marks, node.factors[1:], strict=True), 1):
            other = self.of(factor)
            if mark == "" or mark == "·":
                turn = self._multiplied(before, turn, factor, other, mark)
            else:
                turn = self._entrywise(turn, other) if rank == 1 else None
            before = Product(node.marks[:n], node.factors[: n + 1])
        return turn

    def _entrywise(self, one: Turn | None, other: Turn | None) -> Turn | None:
        """Of x ⊙ y; a row beside a column, as in δᵀ W ⊙ σ'(z), may be either: books write it so."""
        return (one if self.turns.same(one, other) else None) if one and other else one or other

    def _multiplied(self, a: Node, one: Turn | None, b: Node, other: Turn | None, mark: str) -> Turn | None:
        left, right = self._value(a), self._value(b)
        if left is None or right is None:
            return None
        if not left.rank or not right.rank:
            return one or other
        rows = self.computer.reading.rows
        if mark == "" or left.rank != right.rank:
            if left.rank == 1:
                self._must(a, one, left.row != rows)
            if right.rank == 1:
                self._must(b, other, right.row != rows)
        if left.rank == 1 < right.rank and left.row != rows:
            return _other(COLUMN)
        return COLUMN if right.rank == 1 < left.rank and right.row == rows else None


def straight(node: Node, known: Names) -> Node:
    """The product turned, with no vector in it turned: Wᵀ dy for dy W and for dyᵀ W."""
    if isinstance(node, Product) and set(node.marks) == {""}:
        n = 1 if isinstance(node.factors[0], Number) else 0  # 2 eᵀ X is 2 (eᵀ X)
        return Product(node.marks, (*node.factors[:n], *(_turned(x, known) for x in reversed(node.factors[n:]))))
    return node


def _turned(node: Node, known: Names) -> Node:
    base = node.base if isinstance(node, Transposed) else node
    whole = isinstance(base, Number) or (isinstance(base, Ref) and known.rank(base.name) in (0, 1))
    return base if whole or isinstance(node, Transposed) else Transposed(node)
