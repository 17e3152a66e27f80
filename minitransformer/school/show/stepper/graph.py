"""The graph of one box of the map: its places, and what flows from one to another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["input", "box", "sum", "product"]
Place: TypeAlias = tuple[Kind, int]  # for a box, the number is the index of its call
Flow: TypeAlias = "frozenset[Place] | tuple[Flow, ...]"  # a tuple: of each part of a value that has several

NOTHING: Flow = frozenset()


@dataclass
class Graph:
    """The places in one box, in an order in which each comes after all that it reads."""

    places: dict[Place, None] = field(default_factory=dict)
    edges: dict[tuple[Place, Place], str] = field(default_factory=dict)  # from, to: what the code calls the value
    inputs: dict[Place, str] = field(default_factory=dict)  # the name in the box
    steps: dict[Place, int] = field(default_factory=dict)  # of a sum or product, the index of the step that computes it
    beside: dict[Place, list[Place]] = field(default_factory=dict)  # by reader: inputs that it alone reads

    def read(self, flow: Flow, reader: Place, name: str) -> None:
        """Note that the reader takes in the flow."""
        for place in sorted(whole(flow)):  # else the page would differ from one process to the next
            if place != reader:
                self.edges.setdefault((place, reader), name)

    def readers(self, name: str) -> list[str]:
        """The places that read a value, as the page writes them; only the sum, where a residual connection ends."""
        found = [
            after
            for (before, after), text in self.edges.items()
            if name in (self.inputs.get(before), *re.findall(r"\w+", text))
        ]
        found += [place for place, inputs in self.beside.items() if name in [self.inputs[other] for other in inputs]]
        found = [place for place in found if place[0] == "sum"] or found
        return [f"{place[0]} {self.steps.get(place, place[1])}" for place in found]

    def meet(self, place: Place, step: int, sides: list[tuple[Flow, str]]) -> Flow:
        """Note that flows meet in a sum or product, and return the flow of its result."""
        self.places[place] = None
        self.steps[place] = step
        for flow, name in sides:
            self.read(flow, place, name)
        return frozenset([place])


def whole(flow: Flow) -> frozenset[Place]:
    """All places of a flow, whatever part they belong to."""
    return union(flow) if isinstance(flow, tuple) else flow


def union(flows: Iterable[Flow]) -> frozenset[Place]:
    """All places of several flows."""
    return frozenset().union(*map(whole, flows))
