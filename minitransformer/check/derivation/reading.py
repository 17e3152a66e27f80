"""From a line of text to trees.

lark parses it by `grammar.lark`. What the letters mean depends on the names known so far, so a second step, `Reader`,
decides: is `K (a + b)` a product or a call, is `QK` one name or two, is `W_Q` a name or an entry?
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from .faults import Fault, Unreadable
from .functions import ALIKE, FUNCTIONS, OVER
from .parsing import EXAMPLES, LETTER, Factor, exponent_text, head, inner, is_mark, items_of, kind, label_of
from .ranges import range_of
from .recognising import Known, found, segments
from .shifting import computed, indices_of
from .tree import (
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

_LOSSES = ("L", "ℓ", "loss", "Loss", "J", "E", "C")


def _two_powers(name: str) -> str:
    return f"{name}(x)^2 has two readings; write {name}((x)^2), or ({name}(x))^2."


class Reader:
    """Turns lark's trees into those of tree.py, given the names known so far."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.bound: list[str] = []
        self.comparing = 0
        self.swallowed = False  # whether a sum below a slash has taken in a factor that may not be meant to be there

    def expression(self, tree: Any) -> Node:
        signs, terms, sign = [], [], "+"
        for part in tree.children:
            if getattr(part, "type", "") == "SIGN":
                sign = str(part)
            else:
                signs.append(sign)
                terms.append(self.product(part))
                sign = "+"
        if len(terms) == 1 and signs[0] == "+":
            return terms[0]
        return Terms(tuple(signs), tuple(terms))

    def product(self, tree: Any) -> Node:
        return self._join(items_of(tree))

    def _join(self, items: list[tuple[str, str, Any]]) -> Node:
        marks: list[str] = []
        factors: list[Node] = []
        n = 0
        while n < len(items):
            mark, sign, factor = items[n]
            node, n = self._unit(items, n)
            if node is None:
                continue
            if mark == "/" and isinstance(node, Over) and head(factor) in ("sum", "prod", "mean") and node.swallows:
                self.swallowed = True
            node = Terms(("-",), (node,)) if sign == "-" else node
            if isinstance(node, Product) and mark != "/" and all(m == "" for m in node.marks) and mark == "":
                marks += ["", *node.marks] if factors else node.marks  # names written without a space: QK
                factors += node.factors
                continue
            bare = getattr(factor.children[0].children[0], "type", "") == "NUMBER"
            if bare and node == Number("1") and factors and mark == "" and (n == len(items) or items[n][0] != "/"):
                node = Ref("ones")  # A 1: the vector of ones
            if factors:
                marks.append(mark)
            factors.append(node)
        return factors[0] if len(factors) == 1 else Product(tuple(marks), tuple(factors))

    def _unit(self, items: list[tuple[str, str, Any]], n: int) -> tuple[Node | None, int]:
        """The factor that begins at n, and where the next begins."""
        factor = items[n][2]
        partial = self._partial(items, n)
        if partial:
            return partial
        atom, *after = factor.children
        name = str(atom.children[0]) if getattr(atom.children[0], "type", "") == "NAME" else ""
        other_e = self.known.rank("e") is not None and not self.known.only_size("e")
        power_of_e = name == "e" and not other_e and after and kind(after[0]) == "^"
        if name and not power_of_e and self.found(name, after) is not None:
            return self._name(name, after), n + 1
        if name in ("δ", "delta", "I") and after and kind(after[0]) == "SUBSCRIPT":
            letters = indices_of(inner(str(after[0].children[0])).replace("=", ","))
            if len(letters) == 2:
                return self._after(Delta(*letters), after[1:]), n + 1
        if name in ("δ", "delta") and n + 1 < len(items) and not after:
            letters = indices_of(
                "".join(str(t) for t in items[n + 1][2].scan_values(lambda t: True))[1:-1].replace("=", ",")
            )
            if len(letters) != 2:
                raise Unreadable("δ needs two indices: δ_ij.")
            return Delta(*letters), n + 2
        if name in FUNCTIONS:
            if name in OVER and after and kind(after[0]) == "SUBSCRIPT":
                return self._over(name, after, items, n + 1)
            return self._call(name, after, items, n + 1)
        if power_of_e:
            return self._after(Call("exp", (self._exponent(after[0]),)), after[1:]), n + 1
        if name:
            return self._name(name, after), n + 1
        return self._after(self._atom(atom), after), n + 1

    # derivatives

    def _inside(self, factor: Any) -> list[tuple[str, str, Any]]:
        """The factors in a bracket that holds one product."""
        first = factor.children[0].children[0]
        if getattr(first, "data", "") != "inside" or len(factor.children) > 1 or len(first.children) != 1:
            return []
        relation = first.children[0]
        if len(relation.children) != 1 or len(relation.children[0].children) != 1:
            return []
        return items_of(relation.children[0].children[0])

    def _below(self, items: list[tuple[str, str, Any]], n: int) -> tuple[Ref, int] | None:
        """/ ∂X, / (∂X) or / dX: the array below, and where the next factor begins."""
        if n >= len(items) or items[n][0] != "/":
            return None
        if is_mark(items[n][2]) and n + 1 < len(items):
            return self._array(items[n + 1][2]), n + 2
        inside = self._inside(items[n][2])
        if len(inside) == 2 and is_mark(inside[0][2]):
            return self._array(inside[1][2]), n + 1
        factor = inside[0][2] if len(inside) == 1 else items[n][2]
        name = head(factor)
        if name[:1] == "d" and len(name) > 1 and self.found(name[1:], factor.children[1:]) is not None:
            return self._array(Factor(name[1:], factor.children[1:])), n + 1
        return None

    def _partial(self, items: list[tuple[str, str, Any]], n: int) -> tuple[Node, int] | None:
        """∂A_il/∂S_ij, also as a fraction, dA/dS, ∇_W L, or ∂/∂x_j (...); None if no such begins at n."""
        factor = items[n][2]
        if is_mark(factor, "∇"):
            return self._nabla(items, n)
        inside = self._inside(factor)
        top: Node | None = None
        marked = is_mark(factor)
        if marked:
            m = n + 1
            if m < len(items) and items[m][0] != "/":
                top, m = self._top([("", "", items[m][2]), *items[m + 1 :]], 0, m)
        elif inside and is_mark(inside[0][2]):
            m = n + 1
            if len(inside) > 1:
                top, _ = self._top(inside, 1, 0) if len(inside) == 2 else (self._join(inside[1:]), 0)
        else:
            plain_factor = inside[0][2] if len(inside) == 1 else factor
            name = head(plain_factor)
            if name[:1] != "d" or len(name) < 2:
                return None
            after = plain_factor.children[1:]
            if self.found(name[1:], after) is None and name[1:] not in _LOSSES:
                return None
            below = self._below(items, n + 1)
            return None if below is None else (Partial(self._array(Factor(name[1:], after), True), below[0]), below[1])
        below = self._below(items, m)
        if below is None:
            if marked or inside:
                raise Unreadable("∂ stands in fractions alone: ∂A_il/∂S_ij.")
            return None
        bottom, m = below
        if top is None:
            if m >= len(items):
                raise Unreadable("∂/∂x_j needs an expression behind it: ∂/∂x_j (x_i^2).")
            top, m = self._unit(items, m)
            assert top is not None
        return Partial(top, bottom), m

    def _top(self, items: list[tuple[str, str, Any]], n: int, start: int) -> tuple[Node, int]:
        name = head(items[n][2])
        if name in _LOSSES and self.found(name, items[n][2].children[1:]) is None:
            return Ref("L"), start + 1
        top, m = self._unit(items, n)
        assert top is not None
        return top, start + m - n

    def _nabla(self, items: list[tuple[str, str, Any]], n: int) -> tuple[Node, int]:
        after = items[n][2].children[1:]
        named = head(items[n + 1][2]) if n + 1 < len(items) else ""
        loss = named if named and self.known.rank(named) == 0 else self.known.loss()
        if loss is None and named in _LOSSES and self.known.rank(named) is None:
            loss = "L"  # the one whose gradient by an output is given
        if not after or kind(after[0]) != "SUBSCRIPT" or loss is None:
            raise Unreadable("∇ needs a loss L that the text defines and an array: ∇_W L.")
        following = n + 1
        if following < len(items) and head(items[following][2]) in (loss, named if loss == "L" else loss):
            following += 1
        return self._after(Partial(Ref(loss), Ref(inner(str(after[0].children[0])))), after[1:]), following

    def _array(self, factor: Any, loss: bool = False) -> Ref:
        _, *after = factor.children
        name = head(factor)
        if loss and name in _LOSSES and self.known.rank(name) is None:
            return Ref("L")
        node = self._name(name, after) if name else None
        if not isinstance(node, Ref):
            raise Unreadable("∂ stands before names with indices: ∂A_il/∂S_ij.")
        return node

    # sums and functions

    def _over(self, name: str, after: list[Any], items: list[tuple[str, str, Any]], n: int) -> tuple[Node, int]:
        rest = after[1:]
        upper = ""
        if rest and kind(rest[0]) in ("^", "TRANSPOSED") and name in ("sum", "prod"):
            upper, rest = exponent_text(rest[0]) or "T", rest[1:]
        letters, conditions, upper = range_of(inner(str(after[0].children[0])), upper, self.known)
        if rest:
            raise Unreadable(f"After {name} and its index an expression must follow.")
        if n >= len(items):
            raise Unreadable(f"{name}_{''.join(letters)} needs something to run over: sum_j A_ij V_jc.")
        self.bound += letters
        bracket = getattr(items[n][2].children[0].children[0], "data", "") == "inside"
        if name in ("sum", "prod", "mean") and not (name == "mean" and bracket):
            body, n = self._join([("", items[n][1], items[n][2]), *items[n + 1 :]]), len(items)
            outside: list[Any] = []
        elif bracket:
            body, outside, n = self._atom(items[n][2].children[0]), items[n][2].children[1:], n + 1
            if outside and kind(outside[0]) == "^" and name != "softmax":
                if name != "mean":
                    raise Unreadable(_two_powers(name))
                body, outside = self._after(body, outside[:1]), outside[1:]  # mean_c (x_ic - μ_i)^2, like a sum
        else:
            found, n = self._unit(items, n)
            assert found is not None
            body, outside = found, []
        del self.bound[-len(letters) :]
        return self._after(Over(ALIKE.get(name, name), letters, body, conditions, upper), outside), n

    def _call(self, name: str, after: list[Any], items: list[tuple[str, str, Any]], n: int) -> tuple[Node, int]:
        primes = sum(kind(part) == "PRIME" for part in after)
        later = [part for part in after if kind(part) == "^"]
        if len(later) + primes != len(after):
            raise Unreadable(f"{name} takes no index; write the index on what it gives: {name}(S)_ij.")
        if n >= len(items) or items[n][0] not in ("",):
            raise Unreadable(f"{name} needs an argument: {name}(x).")
        argument = items[n][2].children[0].children[0]
        if getattr(argument, "data", "") == "inside":
            arguments = tuple(self._relation(part) for part in argument.children)
            outside, n = items[n][2].children[1:], n + 1
            powered = outside and kind(outside[0]) == "^" and not isinstance(arguments[0], Ref)
            if powered and name in OVER and name != "softmax":
                raise Unreadable(_two_powers(name))
        else:
            found, n = self._unit(items, n)
            assert found is not None
            arguments, outside = (found,), []
            goes_on = n < len(items) and items[n][0] in ("", "/") and head(items[n][2]) not in FUNCTIONS | {""}
            if name != "sqrt" and goes_on:
                raise Unreadable(f"{name} a b has two readings; write {name}(a) b, or {name}(a b).")
        if name in ("clip", "clamp"):
            if len(arguments) != 3:
                raise Unreadable(f"{name} takes a number and two bounds: {name}(r, 1 - ε, 1 + ε).")
            name, arguments = "min", (Call("max", arguments[:2]), arguments[2])
        return self._after(Call(ALIKE.get(name, name), arguments, primes), [*later, *outside]), n

    # atoms

    def _atom(self, atom: Any) -> Node:
        first = atom.children[0]
        if getattr(first, "type", "") == "NUMBER":
            if len(first) > 20 or re.search(r"[eE][+-]?\d{4,}", str(first)):
                raise Unreadable(f"The number {str(first)[:12]}… is too large.")
            return Number(str(first))
        if getattr(first, "data", "") == "inside":
            if len(first.children) != 1:
                raise Unreadable("A comma stands between the arguments of a function alone: max(a, b).")
            return self._relation(first.children[0])
        raise Unreadable(f"{first!s} cannot stand here. Write it like {EXAMPLES}.")

    def _relation(self, tree: Any) -> Node:
        if len(tree.children) == 1:
            return self.expression(tree.children[0])
        left, sign, right = tree.children
        self.comparing += 1
        node = Compare(str(sign.children[0]), self.expression(left), self.expression(right))
        self.comparing -= 1
        return node

    def _exponent(self, after: Any) -> Node:
        exponent = after.children[0]
        sign, last = "+", exponent.children[-1]
        if getattr(exponent.children[0], "type", "") == "SIGN":
            sign = str(exponent.children[0])
        if getattr(last, "type", "") == "NUMBER":
            node: Node = Number(str(last))
        elif getattr(last, "type", "") == "NAME":
            node = self._name(str(last), [])
        else:
            node = self.expression(last)
        return Terms(("-",), (node,)) if sign == "-" else node

    def _after(self, node: Node, after: list[Any]) -> Node:
        for part in after:
            if kind(part) == "SUBSCRIPT":
                content = inner(str(part.children[0]))
                if content == "2" and isinstance(node, Call) and node.function == "norm":
                    continue
                node = Entry(node, indices_of(content))
            elif kind(part) == "TRANSPOSED":
                if isinstance(node, Ref) and node.indices and len(node.indices) == self.known.rank(node.name):
                    raise Unreadable("An entry has no transpose: write A_ji, or (Aᵀ)_ij.")
                node = self._transposed(node)
            elif kind(part) == "PRIME":
                raise Unreadable("A prime stands at functions, as in tanh'(x), and at indices, as in x_i'.")
            else:
                node = Power(node, self._exponent(part))
        return node

    def _transposed(self, node: Node) -> Node:
        """^T: the transpose; of a number the power T, if T is one as well."""
        if node == Number("1"):
            return Transposed(Ref("ones"))
        numeric = all(self.known.rank(name) == 0 for name in node.names) and not node.free
        if not numeric:
            return Transposed(node)
        if self.known.rank("T") == 0:
            return Power(node, Ref("T"))
        raise Unreadable(f"{node} is a number, so it has no transpose.")

    # names

    def found(self, name: str, after: list[Any]) -> tuple[str, list[Any]] | None:
        """The longest known name that begins here, and what follows it."""
        return found(self.known, name, after)

    def _name(self, name: str, after: list[Any]) -> Node:
        found = self.found(name, after)
        if found is None:
            return self._unknown(name, after)
        full, rest = found
        rank = self.known.rank(full)
        if not after and self.comparing and name in self.bound:
            return Place(name)
        indices: list[str] = []
        while rest and kind(rest[0]) == "SUBSCRIPT" and len(indices) < (rank or 0):
            letters = indices_of(inner(str(rest[0].children[0])), rank or 0)
            digits = len(letters) == 1 < (rank or 0) == len(letters[0]) and letters[0].isdigit()
            indices += letters[0] if digits else letters  # W_12 is W_{1,2}
            rest = rest[1:]
        if rank is not None and len(indices) > rank:
            axes = "axis" if rank == 1 else "axes"
            raise Fault(f"{full} has {rank} {axes}, but {len(indices)} indices stand at {full}_{''.join(indices)}.")
        if rank == 0 and rest and kind(rest[0]) == "SUBSCRIPT":
            raise Fault(f"{full} is a number, so it has no index.")
        first = full + "_0"
        shifted = bool(indices) and computed(indices[0]) and self.known.rank(first) == (rank or 0) - 1
        return self._after(Ref(full, tuple(indices), first if shifted else ""), rest)

    def _unknown(self, name: str, after: list[Any]) -> Node:
        if after and kind(after[0]) == "SUBSCRIPT" and name in ("I", "ones"):
            label = inner(str(after[0].children[0]))
            if self.known.rank(label) == 0 or label.isdigit():
                return self._after(Ref(name + "_" + label), after[1:])
        if name in ("I", "ones", "pi", "π"):
            return self._after(Ref(name), after)
        letters = re.findall(LETTER, name)
        split = segments(self.known, name, after)
        if split:
            nodes = [self._name(part, []) for part in split[:-1]] + [self._name(split[-1], after)]
            return Product(("",) * (len(nodes) - 1), tuple(nodes))
        if len(letters) == 1 and not after and (name in self.bound or self.comparing or letters[0] in "ijklmnpqrst"):
            return Place(name)
        told = name + "".join(label_of(part) or "" for part in after[:1])
        decomposed = unicodedata.normalize("NFD", name)
        if decomposed[1:] == "\u0304" and self.known.rank(f"d{decomposed[0]}") is not None:
            raise Unreadable(f"{told} is not defined. Is it d{decomposed[0]}? The gradients of this text have a d.")
        for n in range(1, len(letters)):
            array, indices = "".join(letters[:-n]), "".join(letters[-n:])
            if self.known.rank(array) == n:
                raise Unreadable(f"{told} is not defined. Is it {array}_{indices}? An index follows an underscore.")
        more = f"Give its shape above, as in `given {name}: (n, d)`, or write what it is: `{told} = ...`."
        raise Unreadable(f"{told} is not defined. {more}")
