"""How a call of others is read as a call of one of our ops: which argument is which, and what is done to it first."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..trace.values import is_array, is_float_array

Op = Callable[..., Any]
Turn = Callable[[Any], tuple[Any, Callable[[Any], Any]]]  # a function of our form, of one array
Call = Mapping[str, Any]  # the arrays of a call, by the op's names for them; "" is what f returned


@dataclass(frozen=True)
class Reading:
    """One way to read a call of f as a call of an op.

    told: the conventions, in words. slots: the op's argument that each of f's arguments is, "" for none. turns: what is
    done to an argument first; output: what is done to the output. wrap: what else is put around the op.
    """

    slots: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    turns: Mapping[str, Turn] = field(default_factory=dict)
    output: Turn = lambda y: (y, lambda dy: dy)
    options: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Op], Op] = lambda op: op

    def around(self, op: Op) -> Op:
        """A function of f's arguments that calls the op."""
        inner, order = self.wrap(op), list(inspect.signature(op).parameters)

        def call(*inputs: Any, **options: Any) -> Any:
            arguments, backs = dict(self.options), {}
            for slot, x in zip(self.slots, inputs, strict=True):
                if slot:
                    arguments[slot], backs[slot] = self.turns[slot](x) if slot in self.turns else (x, same)
            y, backward = inner(**arguments, **options)
            y, output_back = self.output(y)

            def pullback(dy: Any) -> tuple[Any, ...]:
                dx = backward(output_back(dy))
                names = [name for name in order if is_float_array(arguments.get(name))]
                found = dict(zip(names, dx if isinstance(dx, tuple) else (dx,), strict=True))
                return tuple(
                    backs[slot](found[slot]) if slot in found else np.zeros_like(x)
                    for slot, x in zip(self.slots, inputs, strict=True)
                    if is_float_array(x)
                )

            return y, pullback

        return call

    def turned(self, turns: Mapping[str, Turn], output: Turn | None = None) -> Reading:
        """This reading with more turns: of arguments, after those so far, and of the output, before those so far."""
        after = {
            slot: _composed(self.turns[slot], turn) if slot in self.turns else turn for slot, turn in turns.items()
        }
        returned = self.output if output is None else _composed(output, self.output)
        return replace(self, turns={**self.turns, **after}, output=returned)

    def seen(self, call: Call, slot: str) -> Any:
        """What the op gets in this slot."""
        return self.turns[slot](call[slot])[0] if slot in self.turns else call[slot]


def bound(op: Op, names: list[str], values: list[Any], n_inputs: int) -> Iterator[list[Reading]]:
    """Which argument of the op each of f's arguments is: in order, or by its name; else in another order."""
    parameters = inspect.signature(op).parameters
    order = list(parameters)
    of_arrays = [key for key, parameter in parameters.items() if "Array" in str(parameter.annotation)]
    arrays = [i for i, x in enumerate(values) if is_array(x) and np.ndim(x)]
    own = [i for i in arrays if i >= n_inputs]
    plain = {_ALIASES.get(name, name): i for i, name in enumerate(names) if i not in arrays}

    def reading(places: dict[int, str], told: tuple[str, ...] = ()) -> Reading:
        by_name = {i: key for key, i in plain.items() if key in order and key not in of_arrays}
        renamed = [f"its {names[i]} is {places[i]}" for i in own if names[i].rpartition(".")[2] != places[i]]
        slots = tuple((places | by_name).get(i, "") for i in range(len(values)))
        return Reading(slots, (*told, *([", ".join(renamed)] if renamed else [])))

    def crossed(places: dict[int, str]) -> bool:
        """Whether what is called a scale is read as the shift, or the other way round: a mistake, no convention."""
        pairs = ({_MEANING.get(names[i].rpartition(".")[2], ""), place} for i, place in places.items())
        return {"gamma", "beta"} in pairs

    first = [Reading(tuple(order[: len(values)]))] if len(values) <= len(order) and not own else []
    if len(arrays) <= len(of_arrays):
        given_ones = len(arrays) - len(own)
        rest = of_arrays[given_ones:]
        for kept in itertools.permutations(rest, len(own)):
            places = dict(zip(arrays, [*of_arrays[:given_ones], *kept], strict=True))
            if not crossed(places):
                first.append(reading(places))
    yield _unlike(first)
    if 1 < len(arrays) <= len(of_arrays) and len(arrays) <= 3:
        others = [dict(zip(arrays, kept, strict=True)) for kept in itertools.permutations(of_arrays[:3], len(arrays))]
        in_order = [", ".join(places.values()) for places in others]
        yield [
            reading(places, (f"its arrays come in the order {told}",))
            for places, told in zip(others, in_order, strict=True)
            if not crossed(places)
        ]


def _unlike(all_readings: list[Reading]) -> list[Reading]:
    return list({reading.slots: reading for reading in reversed(all_readings)}.values())[::-1]


_ALIASES = {
    "is_causal": "causal",
    "sm_scale": "scale",
    "softmax_scale": "scale",
    "epsilon": "eps",
    "p": "rate",
    "dim": "axis",
}


_MEANING = dict.fromkeys(("gamma", "weight", "scale", "gain"), "gamma") | dict.fromkeys(
    ("beta", "bias", "shift", "offset"), "beta"
)


def same(x: Any) -> Any:
    """x itself."""
    return x


def _composed(one: Turn, other: Turn) -> Turn:
    def both(x: Any) -> Any:
        y, one_back = one(x)
        z, other_back = other(y)
        return z, lambda dz: one_back(other_back(dz))

    return both
