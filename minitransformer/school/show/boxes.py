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
from ...ideas.published.families import EVERY, HOMES

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
    return HOMES[family].removeprefix("minitransformer.")


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
    repeated = f"; one layer, {len(layers)} times" if len(layers) > len(set(map(id, layers))) == 1 else ""
    readers = [layer for layer in layers if layer.reads_memory]
    feeders = [layer for layer in layers if hasattr(layer, "feed_forward")]
    yield "embeds", _entry(parts(embed, leave_out=(positions,)))
    yield "positions", _entry(parts(positions))
    yield "order", _by_layer(layers, lambda layer: (_part(type(layer)),), lambda layer: order(layer) + repeated)
    yield "normalises", _by_layer(layers, lambda layer: parts(*(n for _, x in layer.children() for n in _norms(x))))
    yield "turns", _by_layer(layers, lambda layer: parts(*_turning(layer.self_attention)))
    yield "mixes", _by_layer(layers, lambda layer: _mixes(layer.self_attention))
    yield "reads", _by_layer(readers, lambda layer: _mixes(layer.cross_attention))
    yield "feeds", _by_layer(feeders, lambda layer: _mixes(layer.feed_forward))
    yield "ends", _entry(parts(stack.final_norm))
    yield "predicts", _entry(tuple(dict.fromkeys(p for each in after for p in (_part(type(each)), *parts(each)))))


def _entry(found: tuple[Part, ...]) -> tuple[Entry, ...]:
    return (Entry(found),) if found else ()


def _by_layer(
    layers: list[Any], what: Callable[[Any], tuple[Part, ...]], formula: Callable[[Any], str] = lambda _: ""
) -> tuple[Entry, ...]:
    """What each layer holds; layers that hold the same are named together."""
    where: dict[tuple[tuple[Part, ...], str], list[int]] = {}
    for number, layer in enumerate(layers, start=1):
        where.setdefault((what(layer), formula(layer)), []).append(number)
    if len(where) == 1:
        return tuple(Entry(*held) for held in where if any(held))
    return tuple(Entry(*held, f"layer{'s' * (len(n) > 1)} {', '.join(map(str, n))}") for held, n in where.items())


# ---- Parts of a tree. ----


def parts(*modules: Any, leave_out: tuple[Any, ...] = ()) -> tuple[Part, ...]:
    """The class of each module, the functions that it calls by a socket, and those of the modules inside; each once."""
    found: dict[Part, None] = {}
    for module in modules:
        if module is not None and module not in leave_out and type(module) not in _EVERYWHERE:
            inside = parts(*(child for _, child in module.children()), leave_out=leave_out)
            found |= dict.fromkeys([_part(type(module)), *_functions(module), *inside])
    return tuple(found)


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


def _inside(residual: Any) -> Any:
    """The sub-layer of a residual connection, without norms around it."""
    return _inside(residual.sublayer) if _has_norm(residual) else residual


def _norms(residual: Any) -> list[Module]:
    """The norms around a sub-layer, from outside in."""
    return [residual.norm, *_norms(residual.sublayer)] if _has_norm(residual) else []


def _has_norm(part: Any) -> bool:
    return hasattr(part, "sublayer") and hasattr(part, "norm")


def _turning(residual: Any) -> tuple[Module, ...]:
    named = [child for _, module in _inside(residual).modules() for child in module.children()]
    return tuple(child for name, child in named if name.startswith("turn"))


def _mixes(residual: Any) -> tuple[Part, ...]:
    return parts(_inside(residual), leave_out=_turning(residual))


# ---- The order of a layer, from a call of it. ----


@dataclass(eq=False)
class Name:
    """What a layer computes, in words. A layer that is called with one adds and normalises names."""

    text: str = ""
    terms: tuple[Name, ...] = ()
    inside: Name | None = None
    more: str = ""
    shape = ()

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
    if not _has_norm(part):
        return _Called(name)
    told = copy.copy(part)
    told.sublayer = _named(part.sublayer, name)
    told.norm = part.norm if isinstance(part.norm, NoNorm) else _Called("norm")
    told.ops = SimpleNamespace(dropout=lambda x, rate, rng: (x, None))
    return told


def _as_text(y: Name) -> str:
    """The formula of y. What is used twice gets a letter, and a formula of its own before it."""
    uses: Counter[int] = Counter()

    def count(name: Name) -> None:
        for each in name.within():
            uses[id(each)] += 1
            if uses[id(each)] == 1:
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
