"""Tables of names: where each of our parameters lies in a published file.

Each line is `theirs  mark  ours`. Either side names a module or one tensor, and * is a number, as of a layer:

    =     stored unchanged
    T     a Linear's weight, stored as (out, in), or a convolution's: all axes in reverse order
    T8    the same of several side by side, head by head: of each of 8 heads its query, its key and its value; in a
          family's table T:n_heads, as the config says how many
    taps  a short convolution's (K, D), stored as (D, 1, K)
    row   stored with an axis of length 1 in front, such as a vector as a matrix of one row
    1x1   stored with two such axes
    ~     a second copy of the tensor; if the file has it, it must be equal
    -     not used here: a buffer that can be computed, or a head that is not read
    +     not used in their model either, which has it nevertheless: written as a copy of ours, and not read
    |= |T another spelling: read where the file has it, in place of the lines above for the same tensors

Lists in parentheses make one line of several: `attn.(q,k)_proj T (query,key)` is `attn.q_proj T query` and `attn.k_proj
T key`. Of a name with two lists, the last runs first; a side without a list is the same in all of the lines.

A name with / before it lies outside the body: in a model with a head, the prefix of the body does not precede it.
query|key|value on our side means that one of their tensors holds the three side by side. Where our name has one * more
than theirs, their tensor, a bare one, holds all of ours along a new first axis, as in `experts.*`. A line is skipped if
the model does not have the name on our side, so one table serves models with and without biases, gates or a pooler. A
later line replaces an earlier one for the same parameter, so a family's table can be another's with a few more lines.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.arrays.backend import to_numpy
from ...core.layers import Parameter

_IN_FRONT = {"row": 1, "1x1": 2}  # axes of length 1
_LEAVES = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "table": "weight"}


@dataclass(frozen=True)
class Place:
    """One of their tensors, and our parameters that it holds side by side along the last axis."""

    theirs: str
    mark: str
    ours: tuple[tuple[str, Parameter], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that their tensor must have."""
        shapes = [parameter.value.shape for _, parameter in self.ours]
        whole = shapes[0] if len(shapes) == 1 else (*shapes[0][:-1], sum(shape[-1] for shape in shapes))
        if self.mark == "taps":
            return (whole[1], 1, whole[0])
        return self._ones + (whole[::-1] if self._is_transposed else whole)

    @property
    def _ones(self) -> tuple[int, ...]:
        return (1,) * _IN_FRONT.get(self.mark, 0)

    @property
    def _is_transposed(self) -> bool:
        return self.mark[0] == "T" and self.ours[0][1].value.ndim > 1

    @property
    def _heads(self) -> int:
        """In how many groups our parameters alternate: 1 where each lies in one piece."""
        return int(self.mark[1:] or 1) if self.mark[0] == "T" else 1

    def split(self, stored: np.ndarray) -> list[np.ndarray]:
        """The values of our parameters, each in a separate array."""
        if self.mark == "taps":
            whole = stored[:, 0].T
        else:
            whole = stored.reshape(stored.shape[len(self._ones) :])
            whole = whole.T if self._is_transposed else whole
        if len(self.ours) == 1:
            return [np.asarray(whole, order="C")]
        by_heads = whole.reshape(*whole.shape[:-1], self._heads, -1)
        ends = np.cumsum([parameter.value.shape[-1] // self._heads for _, parameter in self.ours])[:-1]
        parts = np.split(by_heads, ends, axis=-1)
        return [np.array(part.reshape(*whole.shape[:-1], -1), order="C") for part in parts]

    def read(self) -> np.ndarray:
        """Their tensor, made from our values."""
        values = [to_numpy(parameter.value) for _, parameter in self.ours]
        whole = values[0]
        if len(values) > 1:
            by_heads = [value.reshape(*value.shape[:-1], self._heads, -1) for value in values]
            whole = np.concatenate(by_heads, axis=-1).reshape(*whole.shape[:-1], -1)
        if self.mark == "taps":
            return np.ascontiguousarray(whole.T[:, None])
        whole = whole.T if self._is_transposed else whole
        return np.asarray(whole.reshape(self._ones + whole.shape), order="C")


@dataclass(frozen=True)
class Stack:
    """One of their tensors that holds what several places hold, along a new first axis."""

    theirs: str
    places: tuple[Place, ...]

    @property
    def ours(self) -> tuple[tuple[str, Parameter], ...]:
        """Our parameters that it holds, place after place."""
        return tuple(each for place in self.places for each in place.ours)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that their tensor must have."""
        return (len(self.places), *self.places[0].shape)

    def split(self, stored: np.ndarray) -> list[np.ndarray]:
        """The values of our parameters, each in a separate array."""
        return [value for place, part in zip(self.places, stored, strict=True) for value in place.split(part)]

    def read(self) -> np.ndarray:
        """Their tensor, made from our values."""
        return np.stack([place.read() for place in self.places])


@dataclass(frozen=True)
class Layout:
    """How a model lies in a file. again: {the name of a copy: the place it copies}; unread: patterns of names.

    unused: copies that are written, and not read. others: places of another spelling, which is read and not written.
    """

    places: list[Place | Stack]
    again: dict[str, Place]
    unread: list[str]
    unused: list[Place]
    others: list[Place | Stack]

    def as_in(self, names: Container[str]) -> Layout:
        """The layout in the spelling of a file that has tensors of these names."""
        there = [place for place in self.others if place.theirs in names]
        moved = {name for place in there for name, _ in place.ours}
        stay = [place for place in self.places if not moved.issuperset(name for name, _ in place.ours)]
        return replace(self, places=[*stay, *there])

    def ignores(self, name: str) -> bool:
        """Whether a tensor of this name is one that our model does not use."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.unread)


def lines(table: str, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The lines of a table: theirs, mark, ours. prefix: of the body."""
    for line in filter(str.strip, table.splitlines()):
        theirs, mark, *ours = line.split()
        both = _spelled_out(theirs), _spelled_out(ours[0] if ours else "")
        n = max(map(len, both))
        for name, our_name in zip(*(names if len(names) == n else names * n for names in both), strict=False):
            yield name[1:] if name[0] == "/" else prefix + name, mark, our_name


# llama.cpp, gguf-py/gguf/constants.py: what each tensor of a .gguf file is in our models. Left out are the stack in
# front, and what a sub-layer or a map stands inside of.
_IN_GGUF = """
token_embd                      =  (tokens,embed.tokens)
token_embd_norm                 =  embed.norm
position_embd                   =  embed.positions
token_types                     =  embed.types
output_norm                     =  final_norm
output                          =  (output,output.tokens)
blk.*.(attn,ffn)_norm           =  layers.*.(self_attention,feed_forward).norm
blk.*.attn_(q,k,v,output)       =  layers.*.self_attention.sublayer.(query,key,value,output)
blk.*.attn_qkv                  =  layers.*.self_attention.sublayer.query|key|value
blk.*.attn_(q,k)_norm           =  layers.*.self_attention.sublayer.turn_(query,key).norm
blk.*.attn_(q,k)_norm           =  layers.*.self_attention.sublayer.(query,key).norm
blk.*.ffn_(gate,up,down)        =  layers.*.feed_forward.sublayer.(gate,inner,output)
blk.*.ffn_up                    =  layers.*.feed_forward.sublayer.gate|inner
blk.*.ffn_gate_inp              =  layers.*.feed_forward.sublayer.router
blk.*.ffn_(gate,up,down)_exps   =  layers.*.feed_forward.sublayer.experts.*.(gate,inner,output)
blk.*.ffn_(gate,up,down)_shexp  =  layers.*.feed_forward.sublayer.shared.(gate,inner,output)
"""


def in_gguf(names: str, own: str = "") -> str:
    """The table of names in a .gguf file, see gguf_models.py. names: those of a folder.

    own: lines of the family's own. What has a name there does not have the general one.
    """
    of_folder = {}
    for theirs, mark, ours in lines(names, "body "):
        plain = re.sub(r"^(stack|encoder)\.|\.sublayer(?=\.sublayer|$)|\.routed", "", ours)
        if mark[0] not in "|~-+":
            of_folder[plain] = theirs.removeprefix("body ") if theirs.startswith("body ") else f"/{theirs}"
    taken = {ours for _, _, ours in lines(own)}
    general = [(theirs, of_folder[ours]) for theirs, _, ours in lines(_IN_GGUF) if ours in of_folder]
    return "".join(f"{theirs} = {name}\n" for theirs, name in general if name not in taken) + own


def _spelled_out(name: str) -> list[str]:
    """The names that a name with lists in it stands for."""
    return ["".join(parts) for parts in itertools.product(*(part.split(",") for part in re.split(r"[()]", name)))]


def layout(parameters: Mapping[str, Parameter], rows: Iterable[tuple[str, str, str]]) -> Layout:
    """Find the place of every parameter. Raises ValueError for a parameter without a line in the tables."""
    again: dict[str, Place] = {}
    unread: list[str] = []
    unused: list[Place] = []
    others: list[Place | Stack] = []
    of_parameter: dict[str, Any] = {}
    for theirs, mark, ours in rows:
        if mark in "-+":
            unread += [theirs, f"{theirs}.weight", f"{theirs}.bias"]
        for place in _places(parameters, theirs, mark.removeprefix("|"), ours):
            first = place.ours[0][0]
            if mark[0] == "|":
                others.append(place)
            elif isinstance(place, Place) and mark == "+":
                unused.append(place)
            elif mark != "~":
                of_parameter |= {name: place for name, _ in place.ours}
            elif first in of_parameter:
                again[place.theirs] = of_parameter[first]
    if missing := [name for name in parameters if name not in of_parameter]:
        raise ValueError(f"this family has no place for {', '.join(missing[:3])}")
    places: dict[str, Place | Stack] = {place.theirs: place for place in of_parameter.values()}
    again = {name: place for name, place in again.items() if name not in places}
    return Layout(list(places.values()), again, unread, unused, others)


def _places(parameters: Mapping[str, Parameter], theirs: str, mark: str, ours: str) -> Iterator[Place | Stack]:
    """Their tensors of a line, each with the parameters that it holds."""
    stacks: dict[str, list[Place]] = {}
    for numbers, leaf, found in _matches(parameters, ours):
        stacked = len(numbers) > theirs.count("*")
        place = Place(_their_name(theirs, numbers, "" if stacked else leaf), mark, tuple(found))
        if stacked:
            stacks.setdefault(place.theirs, []).append(place)
        else:
            yield place
    yield from (Stack(name, tuple(each)) for name, each in stacks.items())


def _matches(
    parameters: Mapping[str, Parameter], ours: str
) -> Iterator[tuple[list[str], str, list[tuple[str, Parameter]]]]:
    """(numbers, leaf, parameters) for each match of a line. The leaf of a bare tensor is ""."""
    *start, last = ours.split(".")
    parts = [".".join([*start, part]) for part in last.split("|")]
    pattern = re.compile(re.escape(parts[0]).replace(r"\*", r"(\d+)") + r"(?:\.(\w+))?")
    for name in parameters:
        if (match := pattern.fullmatch(name)) is None:
            continue
        *numbers, leaf = match.groups()
        if leaf is not None and leaf not in _LEAVES:
            continue
        found = [_numbered(part, numbers) for part in parts]
        full = [f"{part}.{leaf}" if leaf else part for part in found]
        yield numbers, leaf or "", [(each, parameters[each]) for each in full]


def _their_name(theirs: str, numbers: list[str], leaf: str) -> str:
    name = _numbered(theirs, numbers)
    return f"{name}.{_LEAVES[leaf]}" if leaf else name


def _numbered(pattern: str, numbers: list[str]) -> str:
    """The name with one number after the other for each *."""
    for number in numbers:
        pattern = pattern.replace("*", number, 1)
    return pattern
