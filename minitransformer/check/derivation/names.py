"""What a text has named so far: sizes, given arrays and numbers, definitions; and which name is a gradient."""

import itertools
import re
import unicodedata
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .faults import Unreadable
from .indexing import PLAIN, Reading
from .notation import outside, plain
from .tree import Node, Partial, Ref

_NAME = r"[^\W\d_][\u0300-\u036f\w']*(?:\^\{?[(\[]?\w+(?:[+-]\w+)?[)\]]?\}?)?(?:_\{[\w+-]+\}|_\w+)?"
_SHAPE = r"(?:(?:R|ℝ)\s*\^\s*)?(?:\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|\w+(?:\s*(?:·|\bx\b)\s*\w+)*)"
_OF_SHAPE = r"(?:=|(?:of|with|has)\s+(?:the\s+)?(?:shape|size))?"  # x[n], X (n, d), X of shape (n, d)
KINDS = {kind: kind for kind in ("one-hot", "probabilities", "positive", "symmetric", "mask")}
KINDS |= {"onehot": "one-hot", "distribution": "probabilities", "probability": "probabilities", "boolean": "mask"}
KINDS |= {"nonnegative": "positive"}
_NUMBER = re.compile(
    r"(?:(?:(?:[a-z-]{2,}|a)\s+)*(?:an?|the|positive|numbers?|scalars?|constants?|probability|rate|temperature|parameter|"
    rf"strength|target|margin|scale)\s+)?({_NAME})\s*"
    r"(?:>\s*0|:?\s*(?:(?:be|is|as|are)\s+)?(?:an?\s+)?(?:positive\s+|real\s+)?(?:number|scalar|real|constant)s?"
    r"|(?:be|is)\s+(?:the|an?)\s+[a-z -]+)?"
)
_RESERVED = r"(?!(?:of|in|be|is|has|have|with|shape|size)\b)"
_DECLARES = r"(?:∈|:|>|(?:of|with|has)\s+(?:the\s+)?(?:shape|size)\b)"
_BEGINS = re.compile(rf"\s(?={_RESERVED}{_NAME}\s*{_DECLARES})")  # a declaration behind words
_ARRAY = re.compile(rf"({_NAME})\s*(?::|∈|\bin\b)\s*((?:an?\s+|[a-z-]+\s+)*?)({_SHAPE})\s*((?:[a-z-]+\s*)*)")
_LABEL = re.compile(
    rf"(?:[a-z-]{{2,}}\s+)*?({_NAME})\s*(?::|∈|\b(?:be\s+)?in\b)\s*(\([^()]*\))?\s*(?:an?\s+)?(?:labels?|ids?|index|indices|class(?:es)?|tokens?)?\s*"
    r"(?:\bin\b|∈|\bof\b|\bfrom\b)?\s*[({\[]?\s*[01]\s*(?:,\s*[12]\s*)?,?\s*(?:…|\.\.+|\bto\b)\s*,?\s*(\w+)\s*(?:-\s*1)?[)}\]]?"
)
_CLEAR, _END, _CLOSE = r"(?<![A-Za-z])", r"(?![A-Za-z])", r"(?=[a-z](?![A-Za-z]))"  # s, and the s of st+j
_DOT = r"(?:·|\*|⋅|\\cdot|\\,)"
_ALONE = {"eps", "ε", "τ", "η", "T", "λ"}  # in `eps, x: (n)` these are numbers
MOST = 200  # names
TOTAL = "\u200b"  # L = sum_i L_i: the number L has this behind its name, which one does not see
SIZE = "\u200c"  # and a name that is read as a size, although an array has the same letter, has this
LOSSES = ("L", "ℓ", "loss", "Loss", "J", "E", "C")


@dataclass(frozen=True)
class Given:
    """An array of the text: its axes (sizes, or "4 d") and what its entries are."""

    axes: tuple[tuple[int | Fraction, str], ...]  # (times, letter); letter "" for a number
    kind: str = ""


@dataclass(frozen=True)
class Definition:
    """A name, its indices, and what it is."""

    name: str
    indices: tuple[str, ...]
    tree: Node
    rank: int
    reading: Reading = PLAIN
    axes: tuple[str, ...] = ()
    parts: tuple[tuple[str, Node], ...] = ()  # y_{2i} = ... and y_{2i+1} = ...: the index, and what stands there

    @property
    def recurrent(self) -> bool:
        """Whether it is defined by its own entries before or behind, as h_t by h_{t-1}."""
        return self.name in self.tree.names


@dataclass
class Names:
    """All names so far."""

    sizes: list[str] = field(default_factory=list)
    given: dict[str, Given] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)
    defined: dict[str, Definition] = field(default_factory=dict)
    multiples: dict[str, int] = field(default_factory=dict)  # 2 for the d of (d/2)
    strides: dict[str, int] = field(default_factory=dict)  # s in x_{s·t+j}: the number as which it is tried
    origin: int = 1  # the number of the first entry of an array
    rows: bool | None = None  # whether vectors are rows unless transposed, as in x W; None so far
    bars: bool = False  # whether |x| of a vector is its length
    einstein: bool = False  # whether an index that stands twice in a product is summed
    primed: bool = False  # whether a prime makes a new name, as in c'; else A' is the transpose
    functions: dict[str, Any] = field(default_factory=dict)  # f(x) = ... has made f: its (x), as it was parsed
    by_entries_of_x: bool | None = None  # whether ∂y/∂x has a row for each entry of x, not of y; None so far
    used: set[str] = field(default_factory=set)  # in claims so far
    by_letters: dict[tuple[str, ...], str] = field(default_factory=dict)  # δ_j of a layer and δ_k of another
    alone: bool = False  # whether such a b is one
    told: list[str] = field(default_factory=list)  # b in `x: (n), b, y: (m)`: it may be a number

    def own_rank(self, name: str) -> int | None:
        """How many axes a name has that was given or defined."""
        if name in self.given:
            return len(self.given[name].axes)
        if name in self.defined:
            return self.defined[name].rank
        return 0 if name in self.numbers or name.removesuffix(SIZE) in self.sizes else None

    def rank(self, name: str) -> int | None:
        """How many axes a name has, gradients included; None if it is unknown."""
        own = self.own_rank(name)
        base = None if own is not None else self.base_of(name)
        return own if base is None else self.own_rank(base)

    @property
    def labels(self) -> list[str]:
        """Given names that count entries, as in p_y."""
        return [name for name, each in self.given.items() if each.kind.startswith("..")]

    def only_size(self, name: str) -> bool:
        """Whether the name is that of a size and of nothing else; an array may have the same letter."""
        return name in self.sizes and name not in self.given and name not in self.defined

    def base_of(self, name: str) -> str | None:
        """The S of dS, if that is the gradient of a name of the text."""
        if self._is_array(name) or name in self.sizes:
            return None
        if name[0] == "d" and self._is_array(name[1:]):
            return name[1:]
        base = _without_bar(name) if any(map(_without_bar, (*self.given, *self.numbers))) else ""
        return base if self._is_array(base) else None

    def _is_array(self, name: str) -> bool:
        return name in self.given or name in self.defined or name in self.numbers

    def with_strides(self, text: str) -> tuple[str, list[str]]:
        """The line with 3t for the s·t in x_{s·t+j}, if s is a number; and the names like s that are new in this."""
        new = []
        for array, inside in re.findall(r"([^\W\d_]\w*?)_\{([^{}]*)\}", text):
            for name in self._whole(inside):
                if name not in self.strides:
                    self.strides[name] = 2 if self.strides else 3
                    new.append(name)
                    if array in self.given:  # long enough for several steps
                        self.multiples |= {letter: 3 for _, letter in self.given[array].axes}

        def tried(match: re.Match[str]) -> str:
            inside = match[0]
            for name in self._whole(inside):
                inside = re.sub(rf"{_CLEAR}{name}(?:{_END}|{_CLOSE})", f"{self.strides[name]}", inside)
            return re.sub(rf"([a-z])\s*{_DOT}\s*(\d+)", r"\2\1", inside)

        return re.sub(r"_\{[^{}]*\}", tried, text), new

    def _whole(self, inside: str) -> list[str]:
        """The numbers in an index: if one multiplies a letter, all that stand there; else those that are words."""
        if not re.search("[+-]", inside):
            return [n for n in self.numbers if re.search(rf"{_CLEAR}{n}\s*{_DOT}|{_DOT}\s*{n}{_END}", inside)]
        there = [n for n in self.numbers if re.search(rf"{_CLEAR}{n}(?:{_END}|{_CLOSE})", inside)]
        times = rf"(?:\s*{_DOT}|\s+)\s*[a-z]|{_CLOSE}"
        multiplies = any(re.search(rf"{_CLEAR}{n}(?:{times})|{_DOT}\s*{n}{_END}", inside) for n in there)
        return [name for name in there if multiplies or len(name) > 2]

    def axes(self, name: str) -> tuple[str, ...]:
        """The sizes along the axes of an array, as letters; of a gradient those of its array."""
        base = self.base_of(name) or name
        if base in self.given:
            return tuple(letter if times == 1 else f"{times} {letter}" for times, letter in self.given[base].axes)
        return self.defined[base].axes if base in self.defined else ()

    def arrays(self) -> list[str]:
        """All names of arrays, and of the gradients of those."""
        own = [*self.given, *self.defined]
        return own + [f"d{name}" for name in own if self.base_of(f"d{name}") is not None]

    def upstream(self) -> dict[str, str]:
        """Given gradients, and the array of each: {"dO": "O"}."""
        own = (*self.given, *self.numbers)
        bases = {name: _without_bar(name) or (name[1:] if name[0] == "d" else "") for name in own}
        return {name: base for name, base in bases.items() if base in self.defined}

    def differentials(self) -> dict[str, str]:
        """Given differentials, and the given array of each, {"dX": "X"}: if there are any, every dY is one."""
        own = {**self.given, **dict.fromkeys(self.numbers)}
        return {name: name[1:] for name in own if name[0] == "d" and name[1:] in own}

    def to_be_found(self) -> list[str]:
        """Gradients that are given beside the one of an output, so that only their shape can be meant."""
        own = {*self.given, *self.numbers}
        output = any(re.match(r"d[^\W\d_](?![^\W\d_])", name) and name[1:] not in own for name in own)
        return list(self.differentials()) if output else []

    def loss(self) -> str | None:
        """The scalar that the text defines as its loss."""
        names_ = [name + total for name in LOSSES for total in (TOTAL, "")]
        return next((name for name in names_ if name in self.defined and self.defined[name].rank == 0), None)

    def argument_of(self, loss: str) -> str:
        """The w of ∇L: that of L(w), or the one given array from which L is computed; "" if there are several."""
        if len(own := self.functions.get(loss, ())) == 1:
            return str(own[0].left.single.name)
        given = [name for name, each in self.given.items() if each.axes and not each.kind]
        used = [name for name in given if name in self.ancestors({loss})]
        return used[0] if len(used) == 1 else ""

    def ancestors(self, targets: set[str]) -> set[str]:
        """All names that these are computed from, and themselves."""
        found: set[str] = set()
        todo = list(targets)
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                if name in self.defined:
                    todo += self.defined[name].tree.names
        return found

    def by_vector(self, *sides: Node) -> frozenset[str]:
        """The names in an equation that are defined as a derivative ∂L/∂x by a vector, and ∂ if one stands there."""
        used = {name for side in sides for name in side.names}
        found = {name for name in used if name in self.defined and self.defined[name].tree.by_vector}
        return frozenset(found | ({"∂"} if any(side.by_vector for side in sides) else set()))

    def jacobians(self, *sides: Node, rank: int = 1) -> list[Partial]:
        """All ∂y/∂x of a vector by a vector, without indices; rank 2: of a matrix by a matrix."""

        def is_one(node: Node) -> bool:
            return isinstance(node, Ref) and not node.indices and self.rank(node.name) == rank

        partials = [part for side in sides for part in side.all if isinstance(part, Partial)]
        return [each for each in partials if is_one(each.top) and is_one(each.bottom)]

    def give(self, text: str) -> None:
        """Read `Q: (T, d), eps`. Raises Unreadable."""
        text = plain(text.replace("$", " ").rstrip(" .;:"))
        text = re.sub(r"[{(]0\s*,\s*1[)}]\s*(\^\s*(?:\{[^{}]*\}|\w+))", r"R\1 mask", text)
        text = re.sub(r"\(*∂\s*\w+\s*\)?\s*/\s*\(?\s*∂\s*", "d", re.sub(r"\b(?:and|let|where|define)\b|;", ",", text))
        text = re.sub(r"\s+(?=[_^])", "", text)  # δ ^{(l)}
        text = re.sub(rf"\b[a-z]{{3,}}:\s+(?={_NAME}\s*(?:∈|:))", "", text)
        text = re.sub(rf"(?:^|,)\s*{_NAME}\s+(?:be|is|are)\s+[a-z-]+\s*(?=,|$)", "", text)
        text = re.sub(rf"(d{_NAME})\s*\)+(?=\s*(?:∈|:))", r"\1", text)
        cuts = [-1, *outside(text, ","), len(text)]
        pieces = [text[start + 1 : end].strip() for start, end in itertools.pairwise(cuts)]
        if len(pieces) + len(self.given) + len(self.numbers) > MOST:
            raise Unreadable(f"More than {MOST} names are given; that is too many to try.")
        waiting: list[str] = []
        shaped = False
        for before, piece in itertools.chain.from_iterable(map(_declarations, filter(None, pieces))):
            if label := _LABEL.fullmatch(piece):
                axes = tuple(map(self._axis, _axes(label[2]))) if label[2] else ()
                self._check_new(_tidy(label[1]))
                self.given[_tidy(label[1])] = Given(axes, f"..{self._axis(label[3])[1]}")
                continue
            piece = re.sub(rf"^({_NAME})\s*{_OF_SHAPE}\s*(?=[(\[])", r"\1: ", piece)
            if alone := _NUMBER.fullmatch(piece):
                if ">" in piece or ":" in piece:
                    self._add_number(_tidy(alone[1]))
                else:
                    waiting.append(_tidy(alone[1]))
            elif match := _ARRAY.fullmatch(piece):
                axes = () if match[3] in ("R", "ℝ") else tuple(map(self._axis, _axes(match[3])))
                kinds = [KINDS[word] for word in f"{before} {match[2]} {match[4]}".split() if word in KINDS]
                group = [name for name in waiting if name not in _ALONE] + [_tidy(match[1])]
                if shaped and len(group) > 1 and axes:
                    few, also = ", ".join(group[:-1]), f"a number stands at the end, or as {group[0]}: number."
                    also = f"{few} and {group[-1]} have one shape here; {also}"
                    self.told.append(f"{few} is a number here." if self.alone else also)
                    group = group[-1:] if self.alone else group
                for name in [name for name in waiting if name not in group]:
                    self._add_number(name)
                waiting, shaped = [], True
                for name in group:
                    self._check_new(name)
                    if axes:
                        self.given[name] = Given(axes, kinds[0] if kinds else "")
                    else:
                        self._add_number(name)
            else:
                told = "Give shapes like `given Q: (T, d), eps`, or `x: (n) one-hot`."
                raise Unreadable(f"{piece[:40]!r} cannot be read here. {told}")
        for name in waiting:
            self._add_number(name)

    def _check_new(self, name: str) -> None:
        if name in self.given or name in self.defined:
            raise Unreadable(f"{name} has been given or defined before; one name stands for one array.")

    def _add_number(self, name: str) -> None:
        self._check_new(name)
        if name not in self.numbers and name not in self.sizes:
            self.numbers.append(name)

    def _axis(self, text: str) -> tuple[int | Fraction, str]:
        match = re.fullmatch(r"\s*(\d*)\s*\*?\s*([^\W\d][\w^{}']*)?\s*(/\s*2)?\s*", text)
        if not match or not (match[1] or match[2]):
            raise Unreadable(f"The size {text.strip()!r} cannot be read; write a letter, a number, or both: n, 3, 4d.")
        if not match[2]:
            if not 1 <= int(match[1][:6]) <= 64 or len(match[1]) > 2:
                raise Unreadable(f"The size {match[1][:12]} is too large to try, or zero: a letter, or at most 64.")
            return int(match[1]), ""
        letter = _tidy(match[2])
        if letter in self.numbers:
            self.numbers.remove(letter)
        if letter not in self.sizes:
            self.sizes.append(letter)
        if len(self.sizes) > 12:
            raise Unreadable("There are more than 12 sizes; that is too many to try them all different.")
        times = int(match[1][:3] or 1)
        if times > 8:
            raise Unreadable(f"The size {text.strip()} is too large to try.")
        if match[3]:
            self.multiples[letter] = 2
            return Fraction(times, 2), letter
        return times, letter


def _declarations(piece: str) -> list[tuple[str, str]]:
    """The declarations in what stands between two commas, each with the words before, such as "one-hot targets"."""
    first, *more = _BEGINS.split(piece)
    words = more and re.search("[a-z]{2}", first) and not re.search(_DECLARES, first)
    return [(first, each.strip()) for each in more] if words else [("", each.strip()) for each in (first, *more)]


def as_sizes(node: Node, known: Names) -> Node:
    """The expression in which a letter that is a size and an array means the size; the same one if there is none."""
    if isinstance(node, Ref):
        array = node.name in known.given or node.name in known.defined
        return Ref(node.name + SIZE) if array and node.name in known.sizes and not node.indices else node
    return node.mapped(lambda part: as_sizes(part, known))


def _without_bar(name: str) -> str:
    """The x of x̄; "" for a name without a bar on its first letter."""
    letter, *bar = list(unicodedata.normalize("NFD", name))
    return unicodedata.normalize("NFC", letter + "".join(bar[1:])) if bar[:1] == ["\u0304"] else ""


def _tidy(name: str) -> str:
    """W_{Q} and W_Q are one name, and so are W^{(1)} and W^(1)."""
    return re.sub(r"[][{}()]", "", name)


def _axes(shape: str) -> list[str]:
    shape = re.sub(r"^\s*(R|ℝ)\s*\^\s*", "", shape).strip()
    if shape[:1] in "([{":
        shape = shape[1:-1]
    return [part for part in re.split(r"[,×·]|\bx\b|\*", shape) if part.strip()]
