"""The lines of a derivation as mathematics: MathML from the trees in which they are read. It needs no other library."""

import html

from ....check.derivation import tree

_SUMS = {"sum": "∑", "prod": "∏"}
_FUNCTIONS = {"sigmoid": "σ"}
_MARKS = {"*": "⊙", "⊙": "⊙", "·": "·"}
_MINUS = {"-": "−"}


def equation(left: tree.Node | None, rights: list[tree.Node]) -> str:
    """A line as a <math> element; left: None if the line goes on with the one above."""
    parts = [of(left)] if left is not None else []
    for right in rights:
        parts += [_sign("="), of(right)]
    return f'<math display="inline">{_row(*parts)}</math>'


def of(node: tree.Node, inside: str = "") -> str:
    """An expression. inside: "product", "factor" or "power" if it stands within one, for its brackets."""
    match node:
        case tree.Number(digits):
            return f"<mn>{html.escape(digits)}</mn>"
        case tree.Ref(name, indices):
            return _named(name, indices)
        case tree.Place(index):
            return _name(index)
        case tree.Delta(left, right):
            return _below(_name("δ"), (left, right))
        case tree.Terms(signs, terms):
            return _terms(signs, terms, inside)
        case tree.Product():
            made = _product(node)
            return _brackets(made) if inside in ("power", "factor") and "/" not in node.marks[-1:] else made
        case tree.Power(base, exponent):
            return f"<msup>{_row(of(base, 'power'))}{_row(of(exponent))}</msup>"
        case tree.Transposed(base):
            return f"<msup>{_row(of(base, 'power'))}{_sign('⊤')}</msup>"
        case tree.Entry(base, indices):
            return _below(_row(of(base, "power")), indices)
        case tree.Call("sqrt", (argument,), 0):
            return f"<msqrt>{of(argument)}</msqrt>"
        case tree.Call("abs", (argument,), 0):
            return _row(_sign("|"), of(argument), _sign("|"))
        case tree.Call("exp", (argument,), 0):
            return f"<msup>{_name('e')}{_row(of(argument))}</msup>"
        case tree.Call(function, arguments, primes):
            shown = _name(_FUNCTIONS.get(function, function) + "′" * primes)
            return _row(shown, _brackets(_sign(",").join(map(of, arguments))))
        case tree.Over(function, indices, body):
            return _over(node, function, indices, body, inside)
        case tree.Compare(sign, left, right):
            return _row("<mn>1</mn>", _brackets(_row(of(left), _sign(sign), of(right)), "[]"))
        case tree.Partial(top, bottom):
            above, below = _row(_sign("∂"), of(top, "factor")), _row(_sign("∂"), of(bottom))
            return f"<mfrac>{above}{below}</mfrac>"
    raise TypeError(f"no form for {type(node).__name__}")


def _terms(signs: tuple[str, ...], terms: tuple[tree.Node, ...], inside: str) -> str:
    parts = []
    for n, (sign, term) in enumerate(zip(signs, terms, strict=True)):
        parts += [] if n == 0 and sign == "+" else [_sign(_MINUS.get(sign, sign))]
        parts.append(of(term, "product" if n == 0 and sign == "+" else "term"))
    return _brackets(_row(*parts)) if inside else _row(*parts)


def _product(node: tree.Product) -> str:
    """Factors from left to right; what stands before a / is above the line of the fraction."""
    made = [of(node.factors[0], "product" if len(node.factors) == 1 or node.marks[0] == "/" else "factor")]
    for n, (mark, factor) in enumerate(zip(node.marks, node.factors[1:], strict=True)):
        if mark == "/":
            made = [f"<mfrac>{_row(*made)}{_row(of(factor))}</mfrac>"]
            continue
        last = n == len(node.marks) - 1
        made.append(_sign(_MARKS[mark]) if mark in _MARKS else '<mspace width="0.17em"/>')
        made.append(of(factor, "product" if isinstance(factor, tree.Over) and last else "factor"))
    return _row(*made)


def _over(node: tree.Over, function: str, indices: tuple[str, ...], body: tree.Node, inside: str) -> str:
    conditions = [of(each).removeprefix("<mrow><mn>1</mn>").removesuffix("</mrow>") for each in node.conditions]
    below = _row(*map(_name, indices)) if not conditions else _row(*map(_name, indices), _sign(":"), *conditions)
    shown = _sign(_SUMS[function]) if function in _SUMS else _name(function)
    upper = f"<munderover>{shown}{below}{_name(node.upper)}</munderover>" if node.upper else ""
    made = _row(upper or f"<munder>{shown}{below}</munder>", of(body, "product"))
    return _brackets(made) if inside in ("power", "factor") else made


def _named(name: str, indices: tuple[str, ...]) -> str:
    """A name: what follows an underscore stands below it."""
    head, _, label = name.partition("_")
    return _below(_name(head), (*([label] if label else []), *indices))


def _below(base: str, indices: tuple[str, ...]) -> str:
    return f"<msub>{base}{_row(*map(_name, indices))}</msub>" if indices else base


def _name(text: str) -> str:
    upright = ' mathvariant="normal"' if len(text) == 1 and not text.isalpha() else ""
    if len(text) == 2 and text[0] == "d":  # a gradient is one name
        return _row(_name("d"), _name(text[1:]))
    return f"<mi{upright}>{html.escape(text)}</mi>"


def _sign(text: str) -> str:
    return f"<mo>{html.escape(text)}</mo>"


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _brackets(made: str, pair: str = "()") -> str:
    return _row(_sign(pair[0]), made, _sign(pair[1]))
