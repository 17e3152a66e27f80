"""Which parts the families of published models put into the boxes of figure 1 of Vaswani et al. 2017.

Nothing here is a list kept by hand: the small model of each family is built, and its tree of modules tells which parts
it has. The order in a layer comes from a call of the layer itself, with names in the place of numbers.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...core import ops
from ...core.layers import Embedding, Linear, Module
from ...core.layers.blocks import Decoder, Encoder
from ...core.layers.feed_forward import ACTIVATIONS
from ...ideas.after.norm_without_bias.layer import NoNorm
from ...ideas.published.families import EVERY

# The boxes, from the input to the output: what a part does there.
BOXES = (
    ("embeds", "Embeds the input"),
    ("positions", "Adds positions"),
    ("order", "Works in this order"),
    ("normalises", "Normalises"),
    ("turns", "Turns queries and keys"),
    ("mixes", "Mixes the positions"),
    ("reads", "Reads the encoder"),
    ("feeds", "Feeds forward"),
    ("ends", "After the last layer"),
    ("predicts", "Predicts"),
)
_EVERYWHERE = (Linear, Embedding)  # every box has them


@dataclass(frozen=True)
class Part:
    """A class or a function. module: within the package, such as "core.ops.activations"; there it is called `at`."""

    name: str
    module: str
    at: str


@dataclass(frozen=True)
class Entry:
    """What a box holds in some layers: the parts, or a formula in words. layers: which, "" where all have the same."""

    parts: tuple[Part, ...] = ()
    formula: str = ""
    layers: str = ""


@dataclass(frozen=True)
class Side:
    """One stack of layers, with what is before and after it. boxes: what each of BOXES holds; empty ones are absent."""

    name: str
    boxes: dict[str, tuple[Entry, ...]] = field(default_factory=dict)


@functools.cache
def families() -> dict[str, list[Side]]:
    """The sides of the small model of every family, by its model_type. Change nothing in them: they are kept."""
    found = {}
    for name, family in EVERY.items():
        config, head = family.example()
        found[name] = sides(family.build(config, head, np.random.default_rng(0)))
    return found


def alike(found: dict[str, list[Side]]) -> Iterator[tuple[list[str], list[Side]]]:
    """(names, sides) of the families; those whose boxes hold the same come together."""
    names: dict[str, list[str]] = {}
    for name, of_it in found.items():
        names.setdefault(repr(of_it), []).append(name)
    yield from ((each, found[each[0]]) for each in names.values())


def home(family: str) -> str:
    """The module that has the recipe of a family."""
    return EVERY[family].ours.__module__.removeprefix("minitransformer.")


def sides(model: Module) -> list[Side]:
    """Each stack of layers of a model. The last one makes what the model predicts."""
    stacks = [(path, stack) for path, stack in model.modules() if isinstance(stack, Encoder | Decoder)]
    owners = dict(model.modules())
    found = []
    for path, stack in stacks:
        before, _, name = path.rpartition(".")
        owner = owners[before]
        of_two = "embed_target" if isinstance(stack, Decoder) else "embed_source"
        embed = getattr(owner, "embed", None) or getattr(owner, of_two)
        after = list(_after(owner, stack)) if stack is stacks[-1][1] or before else []
        side = before or {"stack": "decoder"}.get(name, name)
        found.append(Side(side, {box: held for box, held in _boxes(embed, stack, after) if held}))
    return found


def _after(owner: Any, stack: Module) -> Iterator[Module]:
    """What stands beside a stack and works after it: in the tree, whatever neither embeds nor is a stack."""
    for name, part in owner.children():
        is_before = "embed" in name or name.endswith("tokens") or isinstance(part, Encoder | Decoder)
        is_unused = name == "pool" and hasattr(owner, "dense")  # a body's, which a masked model does not ask
        if not (is_before or is_unused) and part is not stack:
            yield part


def _boxes(embed: Any, stack: Any, after: list[Module]) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    layers = stack.plain_layers
    positions = getattr(embed, "positions", None)
    yield "embeds", _entry(parts(embed, leave_out=(positions,)))
    yield "positions", _entry([] if positions is None else parts(positions))
    repeated = f"; one layer, {len(layers)} times" if len(layers) > len(set(map(id, layers))) == 1 else ""
    yield "order", _by_layer(layers, lambda layer: Entry((_part(type(layer)),), order(layer) + repeated))
    yield "normalises", _by_layer(layers, lambda layer: Entry(_norms(layer)))
    yield "turns", _by_layer(layers, lambda layer: Entry(_turns(layer.self_attention)))
    yield "mixes", _by_layer(layers, lambda layer: Entry(_mixes(layer.self_attention)))
    readers = [layer for layer in layers if layer.reads_memory]
    yield "reads", _by_layer(readers, lambda layer: Entry(_mixes(layer.cross_attention)))
    feeders = [layer for layer in layers if hasattr(layer, "feed_forward")]
    yield "feeds", _by_layer(feeders, lambda layer: Entry(_mixes(layer.feed_forward)))
    yield "ends", _entry([] if stack.final_norm is None else parts(stack.final_norm))
    yield "predicts", _entry([part for each in after for part in _whole(each)])


def _entry(found: list[Part]) -> tuple[Entry, ...]:
    return (Entry(tuple(dict.fromkeys(found))),) if found else ()


def _by_layer(layers: list[Any], what: Callable[[Any], Entry]) -> tuple[Entry, ...]:
    """What each layer holds; layers that hold the same are named together."""
    where: dict[Entry, list[int]] = {}
    for number, layer in enumerate(layers, start=1):
        where.setdefault(what(layer), []).append(number)
    if len(where) == 1:
        return tuple(entry for entry in where if entry.parts or entry.formula)
    named = ((entry, f"layer{'s' * (len(n) > 1)} {', '.join(map(str, n))}") for entry, n in where.items())
    return tuple(Entry(entry.parts, entry.formula, layers) for entry, layers in named)


# ---- Parts of a tree. ----


def parts(module: Any, leave_out: tuple[Any, ...] = ()) -> list[Part]:
    """The class of a module, the functions that it calls by a socket, and those of the modules inside; each once."""
    if module in leave_out or type(module) in _EVERYWHERE:
        return []
    found = [_part(type(module)), *_functions(module)]
    for _, child in module.children():
        found += parts(child, leave_out)
    return list(dict.fromkeys(found))


def _whole(module: Module) -> list[Part]:
    """As parts, with the class of the module itself even if it is one that is everywhere."""
    return [_part(type(module)), *parts(module)]


def _part(kind: Any, name: str = "") -> Part:
    return Part(name or kind.__name__, kind.__module__.removeprefix("minitransformer."), kind.__name__)


def _functions(module: Any) -> Iterator[Part]:
    """What a module holds as a function, such as its activation."""
    for name, value in vars(module).items():
        if name == "activation" and isinstance(value, str):
            yield _part(getattr(ops, ACTIVATIONS.get(value, (value,))[0]), value)
            continue
        value = getattr(value, "func", value)  # of a partial
        if callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
            yield _part(value)


def _inside(residual: Any) -> tuple[Any, list[Module]]:
    """The sub-layer of a residual connection, without norms around it; and these norms, from outside in."""
    norms = []
    while hasattr(residual, "sublayer") and hasattr(residual, "norm"):
        norms.append(residual.norm)
        residual = residual.sublayer
    return residual, norms


def _norms(layer: Any) -> tuple[Part, ...]:
    found = [part for _, residual in layer.children() for norm in _inside(residual)[1] for part in parts(norm)]
    return tuple(dict.fromkeys(found))


def _turning(sublayer: Any) -> tuple[Module, ...]:
    named = [child for _, module in sublayer.modules() for child in module.children()]
    return tuple(child for name, child in named if name.startswith("turn"))


def _turns(residual: Any) -> tuple[Part, ...]:
    turning = _turning(_inside(residual)[0])
    return tuple(dict.fromkeys(part for turn in turning for part in parts(turn)))


def _mixes(residual: Any) -> tuple[Part, ...]:
    sublayer, _ = _inside(residual)
    return tuple(parts(sublayer, leave_out=_turning(sublayer)))


# ---- The order of a layer, from a call of it. ----


class Name:
    """What a layer computes, in words. A layer that is called with one adds and normalises names."""

    shape = ()

    def __init__(
        self, text: str = "", terms: tuple[Name, ...] = (), inside: Name | None = None, more: str = ""
    ) -> None:
        self.text, self.terms, self.inside, self.more = text, terms, inside, more

    def __add__(self, other: Name) -> Name:
        return Name(terms=(self, other))

    def __sub__(self, other: Name) -> Name:
        terms = [term for each in self.terms for term in (each.terms or (each,))]
        last = max(i for i, term in enumerate(terms) if term is other)
        return Name(terms=tuple(terms[:last] + terms[last + 1 :]))

    def __rmul__(self, factor: float) -> Name:
        return Name(f"factor · {self.text}", inside=self.inside, more=self.more)

    def within(self) -> tuple[Name, ...]:
        """The names that this one is made of."""
        return self.terms or (() if self.inside is None else (self.inside,))


class _Called(Module):
    """A part that only says that it was called."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, x: Any, *others: Any, **how: Any) -> tuple[Name, None]:
        return Name(self.text, inside=x, more=", memory" * len(others)), None


def order(layer: Any) -> str:
    """What a layer computes from x, as in "a = x + attention(norm(x)); y = a + feed_forward(norm(a))"."""
    told = copy.copy(layer)
    for name, residual in layer.children():
        setattr(told, name, _named(residual, name.removeprefix("self_")))
    memory = [np.zeros((1, 1))] if layer.reads_memory else []
    return _as_text(told(Name("x"), *memory)[0])


def _named(part: Any, name: str) -> Any:
    if not (hasattr(part, "sublayer") and hasattr(part, "norm")):
        return _Called(name)
    told = copy.copy(part)
    told.sublayer = _named(part.sublayer, name)
    told.norm = part.norm if isinstance(part.norm, NoNorm) else _Called("norm")
    told.ops = SimpleNamespace(dropout=lambda x, rate, rng: (x, None))
    return told


def _as_text(y: Name) -> str:
    """The formula of y. What is used twice gets a letter, and a formula of its own before it."""
    uses: Counter[int] = Counter()
    seen: set[int] = set()

    def count(name: Name) -> None:
        uses[id(name)] += 1
        if id(name) not in seen:
            seen.add(id(name))
            for each in name.within():
                count(each)

    count(y)
    letters: dict[int, str] = {}
    lines: list[str] = []

    def written(name: Name) -> str:
        if id(name) in letters:
            return letters[id(name)]
        within = [written(each) for each in name.within()]
        text = " + ".join(within) if name.terms else f"{name.text}({within[0]}{name.more})" if within else name.text
        if within and uses[id(name)] > 1:
            letters[id(name)] = "abcd"[len(letters)]
            lines.append(f"{letters[id(name)]} = {text}")
            return letters[id(name)]
        return text

    lines.append(f"y = {written(y)}")
    return "; ".join(lines)
