"""From the factors of a line to trees.

What the letters mean depends on the names known so far: is `K (a + b)` a product or a call, is `QK` one name or two, is
`W_Q` a name or an entry?
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from . import tree
from .faults import Fault, Unreadable
from .functions import ALIKE, FUNCTIONS, OVER
from .names import Names
from .parsing import EXAMPLES, LETTER, After, Expression, Factor, Item, Relation, parsed
from .ranges import axis_of, range_of
from .recognising import found, labelled, segments
from .rewriting import put_in, slope, times
from .shifting import computed, indices_of

_LOSSES = ("L", "ℓ", "loss", "Loss", "J", "E", "C")


def _two_powers(name: str) -> str:
    return f"{name}(x)^2 has two readings; write {name}((x)^2), or ({name}(x))^2."


class Reader:
    """Turns what is parsed into the trees of tree.py, given the names known so far."""

    def __init__(self, known: Names) -> None:
        self.known = known
        self.bound: list[str] = []
        self.comparing = 0
        self.used: set[str] = set()  # functions so far
        self.means: dict[str, str] = {}  # what σ and φ are if the text says so
        self.swallowed = False  # whether a sum below a slash has taken in a factor that may not be meant to be there

    def expression(self, typed: Expression) -> tree.Node:
        """A sum of products."""
        signs = tuple(sign or "+" for sign, _ in typed.terms)
        terms = tuple(self._product(items) for _, items in typed.terms)
        return terms[0] if signs == ("+",) else tree.Terms(signs, terms)

    def _product(self, items: Sequence[Item]) -> tree.Node:
        marks: list[str] = []
        factors: list[tree.Node] = []
        n = 0
        while n < len(items):
            mark, sign, factor = items[n]
            node, n = self._unit(items, n)
            if mark == "/" and isinstance(node, tree.Over) and factor.name in ("sum", "prod", "mean") and node.swallows:
                self.swallowed = True
            node = tree.Terms(("-",), (node,)) if sign == "-" else node
            if isinstance(node, tree.Product) and mark == "" and set(node.marks) == {""}:
                marks += ["", *node.marks] if factors else node.marks  # names written without a space: QK
                factors += node.factors
                continue
            alone = factor.number and not mark and not (items[n:] and items[n].mark == "/")
            if alone and factors and node == tree.Number("1"):
                node = tree.Ref("ones")  # A 1: the vector of ones
            if factors:
                marks.append(mark)
            factors.append(node)
        return factors[0] if len(factors) == 1 else tree.Product(tuple(marks), tuple(factors))

    def _unit(self, items: Sequence[Item], n: int) -> tuple[tree.Node, int]:
        """The factor that begins at n, and where the next begins."""
        if partial := self._partial(items, n):
            return partial
        factor = items[n].factor
        name, after = factor.name, factor.after
        name = "sum" if name == "Σ" and items[n + 1 :] and self.known.rank("Σ") is None else name
        if not name:
            return self._after(self._atom(factor), after), n + 1
        if name in self.means and items[n + 1 :] and items[n + 1].factor.inside:
            return self._call(name, after, items, n + 1)
        other_e = self.known.rank("e") is not None and not self.known.only_size("e")
        if name == "e" and not other_e and after and after[0].exponent:
            return self._after(tree.Call("exp", (self.expression(after[0].exponent),)), after[1:]), n + 1
        inside = items[n + 1].factor.inside if items[n + 1 :] and not items[n + 1].mark else ()
        known = self.found(name, after)
        alone = "^" not in {part.kind for part in after} and (not inside or items[n].mark == "/")
        if known is None and alone and name not in self.used and self.known.rank(f"{name}^2") is not None:
            index = [part for part in after if part.kind == "_"]  # σ_i, where σ^2 is known
            root = tree.Call("sqrt", (self._name(name, [After("^", "2"), *index]),))
            return self._after(root, after[len(index) :]), n + 1
        if inside and known and known[0] in self.known.functions:
            return self._of_argument(known[0], known[1], inside, items[n + 1].factor.after), n + 2
        called = (inside and not after) or (name in OVER and after and after[0].kind == "_")
        whole = known is None or (known[0] == name and len(name) > 1 and (inside or not self.known.rank(name)))
        if known and not (whole and called and name in FUNCTIONS):  # var(x) is the variance, also if var is a name
            return self._name(name, after), n + 1
        if name in ("δ", "delta", "I") and after and after[0].kind == "_":
            text, labels = labelled(self.known, after[0].text.replace("=", ","), self.bound)
            letters = indices_of(text)
            if len(letters) == 2 and labels:
                one, other = (labels.get(letter, tree.Place(letter)) for letter in letters)
                return self._after(tree.Compare("=", one, other), after[1:]), n + 1
            if len(letters) == 2:
                return self._after(tree.Delta(*letters), after[1:]), n + 1
        if name in ("δ", "delta") and items[n + 1 :] and not after:
            raise Unreadable("δ needs two indices: δ_ij.")
        if name in OVER and after and after[0].kind == "_":
            return self._over(name, after, items, n + 1)
        if name in FUNCTIONS:
            return self._call(name, after, items, n + 1)
        return self._name(name, after), n + 1

    def _of_argument(self, name: str, primes: Sequence[After], inside: Any, after: Sequence[After]) -> tree.Node:
        """f(x), f'(x) and f(z), where the text defines f(x)."""
        own = self.known.functions[name]
        variables = [self._array(each.left.single) for each in own]
        made: tree.Node = tree.Ref(name)
        if inside != own:
            if len(inside) != len(own):
                raise Unreadable(f"{name} was defined with {len(own)} arguments.")
            made = self.known.defined[name].tree
            for variable, new in zip(variables, inside, strict=True):
                made = put_in(made, variable, self._relation(new))
        if primes and primes[0].kind == "'":
            if inside != own or any(map(self.known.rank, {name}.union(*(x.names for x in variables)))):
                raise Unreadable(f"{name}' can be read of a number alone, as {name}'(x).")
            made, primes = slope(made, variables[0]), primes[1:]
        return self._after(made, [*primes, *after])

    # derivatives

    def _below(self, items: Sequence[Item], n: int) -> tuple[tree.Node, int] | None:
        """/ ∂X, / (∂X) or / dX: the array below, and where the next factor begins."""
        if n >= len(items) or items[n].mark != "/":
            return None
        factor = items[n].factor
        if factor.mark == "∂" and items[n + 1 :]:
            return self._array(items[n + 1].factor), n + 2
        inside = factor.product()
        if len(inside) == 2 and inside[0].factor.mark == "∂":
            return self._array(inside[1].factor), n + 1
        if base := self._base(inside[0].factor if len(inside) == 1 else factor):
            return self._array(base), n + 1
        return None

    def _base(self, factor: Factor, loss: bool = False) -> Factor | None:
        """The X of dX; None if there is no such name, or no loss."""
        base = factor._replace(name=factor.name[1:])
        if not base.name or factor.name[0] != "d":
            return None
        return base if self.found(base.name, base.after) or (loss and base.name in _LOSSES) else None

    def _partial(self, items: Sequence[Item], n: int) -> tuple[tree.Node, int] | None:
        """∂A_il/∂S_ij, also as a fraction, dA/dS, ∇_W L, or ∂/∂x_j (...); None if no such begins at n."""
        factor = items[n].factor
        if factor.mark == "∇":
            return self._nabla(items, n)
        inside = factor.product()
        top: tree.Node | None = None
        m = n + 1
        marked = factor.mark == "∂"
        in_brackets = bool(inside) and inside[0].factor.mark == "∂" and all(item.mark != "/" for item in inside)
        if marked:
            if m < len(items) and items[m].mark != "/":
                top, m = self._top([Item("", "", items[m].factor), *items[m + 1 :]], m)
        elif in_brackets and len(inside) > 1:
            top = self._top(inside[1:], 0)[0] if len(inside) == 2 else self._product(inside[1:])
        elif not in_brackets:
            base = self._base(inside[0].factor if len(inside) == 1 else factor, loss=True)
            below = self._below(items, m) if base else None
            return (slope(self._array(base, True), below[0]), below[1]) if base and below else None
        below = self._below(items, m)
        if below is None:
            raise Unreadable("∂ stands in fractions alone: ∂A_il/∂S_ij.")
        bottom, m = below
        if top is None:
            if m >= len(items):
                raise Unreadable("∂/∂x_j needs an expression behind it: ∂/∂x_j (x_i^2).")
            if items[m].factor.inside:
                top, m = self._unit(items, m)
            else:
                top, m = self._product(items[m:]), len(items)
        return slope(top, bottom), m

    def _top(self, items: Sequence[Item], start: int) -> tuple[tree.Node, int]:
        """What ∂ stands before, and where the next factor begins, if this one is the one at start."""
        factor = items[0].factor
        if factor.name in _LOSSES and self.found(factor.name, factor.after) is None:
            return tree.Ref("L"), start + 1
        top, m = self._unit(items, 0)
        return top, start + m

    def _nabla(self, items: Sequence[Item], n: int) -> tuple[tree.Node, int]:
        after = items[n].factor.after
        named = items[n + 1].factor.name if items[n + 1 :] else ""
        loss = named if named and self.known.rank(named) == 0 else self.known.loss()
        if loss is None and named in _LOSSES and self.known.rank(named) is None:
            loss = "L"  # the one whose gradient by an output is given
        if after and after[0].kind == "^":
            raise Unreadable("Second derivatives cannot be read; define the first as a name.")
        if named == loss and not (after and after[0].kind == "_") and (by := self.known.argument_of(str(loss))):
            after = (After("_", by), *after)
        if loss is None and after and after[0].kind == "_" and items[n + 1 :]:  # ∇_w ‖X w - y‖²
            top, following = self._unit(items, n + 1)
            return slope(top, self._array(parsed(after[0].text)[0].single or Factor(name=after[0].text))), following
        if not after or after[0].kind != "_" or loss is None:
            raise Unreadable("∇ needs a loss L that the text defines and an array: ∇_W L.")
        following = n + 1
        if items[n + 1 :] and named in (loss, named if loss == "L" else loss):
            following += 1
            called = items[following].factor if items[following:] else Factor()
            following += bool(called.inside) and called.inside == self.known.functions.get(named)
        bottom = self._array(parsed(after[0].text)[0].single or Factor(name=after[0].text))
        return self._after(slope(tree.Ref(loss), bottom), after[1:]), following

    def _array(self, factor: Factor, loss: bool = False) -> tree.Node:
        if loss and factor.name in _LOSSES and self.known.rank(factor.name) is None:
            return tree.Ref("L")
        node = self._name(factor.name, factor.after) if factor.name else None
        if not isinstance(node, tree.Ref | tree.Over):  # an Over is an entry at a label, p_y
            raise Unreadable("∂ stands before names with indices: ∂A_il/∂S_ij.")
        return node

    # sums and functions

    def _over(self, name: str, after: Sequence[After], items: Sequence[Item], n: int) -> tuple[tree.Node, int]:
        subscript, *rest = after
        upper = ""
        if rest and rest[0].kind in ("^", "ᵀ") and name in ("sum", "prod"):
            upper, rest = rest[0].text or "T", rest[1:]
        letters, conditions, upper = range_of(subscript.text, upper, self.known)
        if rest:
            raise Unreadable(f"After {name} and its index an expression must follow.")
        if n >= len(items):
            raise Unreadable(f"{name}_{''.join(letters)} needs something to run over: sum_j A_ij V_jc.")
        self.bound += letters
        first = items[n].factor
        outside: Sequence[After] = ()
        if name in ("sum", "prod", "mean") and not (name == "mean" and first.inside):
            body, n = self._product([items[n]._replace(mark=""), *items[n + 1 :]]), len(items)
        elif first.inside:
            body, outside, n = self._atom(first), first.after, n + 1
            if outside and outside[0].kind == "^" and name != "softmax":
                if name != "mean":
                    raise Unreadable(_two_powers(name))
                body, outside = self._after(body, outside[:1]), outside[1:]  # mean_c (x_ic - μ_i)^2, like a sum
        else:
            body, n = self._unit(items, n)
        del self.bound[-len(letters) :]
        return self._after(tree.Over(ALIKE.get(name, name), letters, body, conditions, upper), outside), n

    def _call(self, name: str, after: Sequence[After], items: Sequence[Item], n: int) -> tuple[tree.Node, int]:
        self.used.add(name)
        name = self.means.get(name, name)
        if not all(part.kind in "'^" for part in after):
            raise Unreadable(f"{name} takes no index; write the index on what it gives: {name}(S)_ij.")
        if n >= len(items) or items[n].mark:
            raise Unreadable(f"{name} needs an argument: {name}(x).")
        argument = items[n].factor
        outside: Sequence[After] = ()
        axis = ""
        if argument.inside:
            inside, axis = axis_of(argument.inside, name)
            arguments = tuple(map(self._relation, inside))
            outside, n = argument.after, n + 1
            powered = outside and outside[0].kind == "^" and not isinstance(arguments[0], tree.Ref)
            if powered and name in OVER and name != "softmax":
                raise Unreadable(_two_powers(name))
        else:
            node, n = self._unit(items, n)
            arguments = (node,)
            goes_on = items[n:] and items[n].mark in ("", "/") and items[n].factor.name not in FUNCTIONS | {""}
            if name != "sqrt" and goes_on:
                raise Unreadable(f"{name} a b has two readings; write {name}(a) b, or {name}(a b).")
        if name in ("clip", "clamp"):
            if len(arguments) != 3:
                raise Unreadable(f"{name} takes a number and two bounds: {name}(r, 1 - ε, 1 + ε).")
            name, arguments = "min", (tree.Call("max", arguments[:2]), arguments[2])
        powers = [part for part in after if part.kind == "^"]
        called = tree.Call(ALIKE.get(name, name), arguments, len(after) - len(powers), axis)
        return self._after(called, [*powers, *outside]), n

    # atoms

    def _atom(self, factor: Factor) -> tree.Node:
        if factor.number:
            if len(factor.number) > 20 or re.search(r"[eE][+-]?\d{4,}", factor.number):
                raise Unreadable(f"The number {factor.number[:12]}… is too large.")
            return tree.Number(factor.number)
        if factor.inside:
            if len(factor.inside) != 1:
                raise Unreadable("A comma stands between the arguments of a function alone: max(a, b).")
            return self._relation(factor.inside[0])
        raise Unreadable(f"{factor.mark} cannot stand here. Write it like {EXAMPLES}.")

    def _relation(self, relation: Relation) -> tree.Node:
        if relation.right is None:
            return self.expression(relation.left)
        self.comparing += 1
        node = tree.Compare(relation.sign, self.expression(relation.left), self.expression(relation.right))
        self.comparing -= 1
        return node

    def _after(self, node: tree.Node, after: Sequence[After]) -> tree.Node:
        for part in after:
            if part.kind == "_":
                if part.text != "2" or not isinstance(node, tree.Call) or node.function != "norm":
                    node = tree.Entry(node, indices_of(part.text))
            elif part.kind == "ᵀ":
                if isinstance(node, tree.Ref) and node.indices and len(node.indices) == self.known.rank(node.name):
                    raise Unreadable("An entry has no transpose: write A_ji, or (Aᵀ)_ij.")
                node = self._transposed(node)
            elif part.kind == ".":
                if part.text not in FUNCTIONS:
                    raise Unreadable(f".{part.text}(...) is no function of the notation.")
                inside, axis = axis_of(part.inside)
                name = ALIKE.get(part.text, part.text)
                node = tree.Call(name, (node, *map(self._relation, inside)), axis=axis)
            elif part.kind == "'" and not self.known.primed and any(self.known.rank(each) for each in node.names):
                node = self._transposed(node)  # A'
            elif part.exponent is None:
                raise Unreadable("A prime stands at functions, as in tanh'(x), and at indices, as in x_i'.")
            else:
                node = tree.Power(node, self.expression(part.exponent))
        return node

    def _transposed(self, node: tree.Node) -> tree.Node:
        """^T: the transpose; of a number the power T, if T is one as well."""
        if node == tree.Number("1"):
            return tree.Transposed(tree.Ref("ones"))
        numeric = all(self.known.rank(name) == 0 for name in node.names) and not node.free
        if not numeric:
            return tree.Transposed(node)
        if self.known.rank("T") == 0:
            return tree.Power(node, tree.Ref("T"))
        raise Unreadable(f"{node} is a number, so it has no transpose.")

    # names

    def found(self, name: str, after: Sequence[After]) -> tuple[str, Sequence[After]] | None:
        """The longest known name that begins here, and what follows it."""
        return found(self.known, name, after)

    def _name(self, name: str, after: Sequence[After]) -> tree.Node:
        found = self.found(name, after)
        if found is None:
            return self._unknown(name, after)
        full, rest = found
        rank = self.known.rank(full) or 0
        if not after and self.comparing and name in self.bound:
            return tree.Place(name)
        indices: list[str] = []
        chosen: dict[str, tree.Ref] = {}
        while rest and rest[0].kind == "_" and len(indices) < rank:
            text, labels = labelled(self.known, rest[0].text, self.bound)
            chosen |= labels
            letters = indices_of(text, rank)
            digits = len(letters) == 1 < rank == len(letters[0]) and letters[0].isdigit()
            indices += letters[0] if digits else letters  # W_12 is W_{1,2}
            rest = rest[1:]
        if len(indices) > rank:
            axes = "axis" if rank == 1 else "axes"
            raise Fault(f"{full} has {rank} {axes}, but {len(indices)} indices stand at {full}_{''.join(indices)}.")
        if rank == 0 and rest and rest[0].kind == "_":
            raise Fault(f"{full} is a number, so it has no index.")
        first = full + "_0"
        shifted = bool(indices) and computed(indices[0]) and self.known.rank(first) == rank - 1
        full = self.known.by_letters.get((full, *indices), full)
        node: tree.Node = tree.Ref(full, tuple(indices), first if shifted else "")
        for letter, label in chosen.items():  # p_y of a label y: sum_a p_a 1[a = y]
            node = tree.Over("sum", (letter,), times(node, tree.Compare("=", tree.Place(letter), label)))
        return self._after(node, rest)

    def _unknown(self, name: str, after: Sequence[After]) -> tree.Node:
        if after and after[0].kind == "_" and name in ("I", "ones"):
            label = after[0].text
            if self.known.rank(label) == 0 or label.isdigit():
                return self._after(tree.Ref(name + "_" + label), after[1:])
        if name in ("I", "ones", "pi", "π"):
            return self._after(tree.Ref(name), after)
        letters = re.findall(LETTER, name)
        split = segments(self.known, name, after)
        if split:
            nodes = [self._name(part, ()) for part in split[:-1]] + [self._name(split[-1], after)]
            return tree.Product(("",) * (len(nodes) - 1), tuple(nodes))
        if len(letters) == 1 and not after and (name in self.bound or self.comparing or letters[0] in "ijklmnpqrst"):
            return tree.Place(name)
        told = name + "".join(part.label or "" for part in after[:1])
        decomposed = unicodedata.normalize("NFD", name)
        if decomposed[1:] == "\u0304" and self.known.rank(f"d{decomposed[0]}") is not None:
            raise Unreadable(f"{told} is not defined. Is it d{decomposed[0]}? The gradients of this text have a d.")
        for n in range(1, len(letters)):
            array, indices = "".join(letters[:-n]), "".join(letters[-n:])
            if self.known.rank(array) == n:
                raise Unreadable(f"{told} is not defined. Is it {array}_{indices}? An index follows an underscore.")
        more = f"Give its shape above, as in `given {name}: (n, d)`, or write what it is: `{told} = ...`."
        raise Unreadable(f"{told} is not defined. {more}")
