"""Where an object that somebody else wrote keeps its parameters and, after backward, their gradients.

Usual names say so before anything runs: the gradient of `W` is in `dW`, `grads["W"]` or `W.grad`. For all others one
run tells: a parameter is an array that moves the output, and its gradient is the array of its shape that backward
left.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace.values import is_float_array

_VALUES = ("value", "data", "weight", "val", "w")  # where an object that holds one parameter has its numbers

Steps = tuple[tuple[str, Any], ...]  # from an object to something in it: ("attribute", "W"), ("item", 0), ...


@dataclass(frozen=True)
class Slot:
    """A parameter of an object: the steps to its array, and to the places where its gradient may be after backward."""

    array: Steps
    gradients: tuple[Steps, ...]

    @property
    def path(self) -> str:
        """The steps to the array, as code."""
        return path_of(self.array)

    def value(self, layer: Any) -> Any:
        """The array in this object."""
        return reached(layer, self.array)

    def gradient(self, layer: Any) -> Any:
        """The gradient in this object; None if there is none."""
        found = (reached(layer, steps) for steps in self.gradients)
        return next((x for x in found if x is not None), None)


def path_of(steps: Steps) -> str:
    """The steps as code: layers[0].W."""
    parts = [f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in steps]
    return "".join(parts).removeprefix(".")


def reached(x: Any, steps: Steps) -> Any:
    """The value at the end of the steps; None if there is none."""
    for kind, key in steps:
        if kind == "attribute":
            x = getattr(x, key, None)
        else:
            x = x[key] if (key in x if isinstance(x, dict) else isinstance(x, list | tuple) and key < len(x)) else None
        if x is None:
            return None
    return x


def named_slots(layer: Any) -> list[Slot]:
    """The parameters of an object and of the objects in it that have a place for a gradient under a usual name."""
    found: dict[int, Slot] = {}
    for holder, steps in _walk(layer, (), set()):
        for slot in () if isinstance(holder, np.ndarray) else _of_object(holder, steps):
            array = slot.value(layer)
            if is_float_array(array):
                found.setdefault(id(array), slot)
    return list(found.values())


def arrays_in(layer: Any) -> dict[Steps, np.ndarray]:
    """Every floating-point array in an object, and in the objects, dicts and lists inside it."""
    return {steps: x for x, steps in _walk(layer, (), set()) if is_float_array(x)}


def _walk(x: Any, steps: Steps, seen: set[int]) -> Iterator[tuple[Any, Steps]]:
    """x and every object inside it, also in lists and dicts, and every array at each of its places, with the steps."""
    if isinstance(x, np.ndarray):
        yield x, steps
        return
    if id(x) in seen:
        return
    seen.add(id(x))
    kinds = (type, types.ModuleType, types.FunctionType, types.MethodType, np.generic, np.random.Generator)
    parts: Any = ()
    if isinstance(x, dict | list | tuple):
        parts = [("item", key, part) for key, part in (x.items() if isinstance(x, dict) else enumerate(x))]
    elif (held := _attributes(x)) and not isinstance(x, kinds):
        yield x, steps
        parts = [("attribute", name, part) for name, part in held.items()]
    for kind, key, part in parts:
        yield from _walk(part, (*steps, (kind, key)), seen)


def _attributes(x: Any) -> dict[str, Any]:
    """The attributes of an object, also of one whose class names them in __slots__."""
    slots = [getattr(kind, "__slots__", ()) for kind in type(x).__mro__]
    names = [name for each in slots for name in ((each,) if isinstance(each, str) else each) if hasattr(x, name)]
    return {name: getattr(x, name) for name in names} | getattr(x, "__dict__", {})


def traces(layer: Any) -> Callable[[], dict[Steps, np.ndarray]]:
    """A function that gives what was left in an object since now: the arrays that are new or have other numbers."""
    before = {steps: (x, x.copy()) for steps, x in arrays_in(layer).items()}

    def is_new(steps: Steps, x: np.ndarray) -> bool:
        array, copy = before.get(steps, (None, x))
        return array is not x or not np.array_equal(copy, x, equal_nan=True)

    return lambda: {steps: x for steps, x in arrays_in(layer).items() if is_new(steps, x)}


def matched(
    parameters: dict[Steps, np.ndarray], left: dict[Steps, np.ndarray], names: set[str]
) -> tuple[dict[Steps, Steps], dict[Steps, str]]:
    """(the place of the gradient of each parameter, why there is none), from the arrays that backward left.

    The gradient has the parameter's shape, and its name does not say that it belongs to another of `names`. Of several
    such arrays the one with the nearest place and name is taken, if it is nearest to this parameter alone.
    """
    belongs = {gradient: name for name in names for gradient in names_of_gradient(name)}
    claims: dict[Steps, list[Steps]] = {}
    why: dict[Steps, str] = {}
    for array, value in parameters.items():
        fit = [steps for steps, x in left.items() if x.shape == value.shape]
        fit = [steps for steps in fit if belongs.get(steps[-1][1], array[-1][1]) == array[-1][1]]
        near = {steps: _nearness(array, steps) for steps in fit}
        best = [steps for steps in near if near[steps] == max(near.values())]
        if array in left:
            why[array] = "backward changes it; let backward keep its gradient, and change it elsewhere"
        elif len({id(left[steps]) for steps in best}) == 1:
            claims.setdefault(best[0], []).append(array)
        elif best:
            why[array] = f"its gradient may be {' or '.join(map(path_of, best))}; call it d and its name"
        else:
            why[array] = "backward leaves no gradient of it"
    places: dict[Steps, Steps] = {}
    for steps, arrays in claims.items():
        first, *others = sorted(arrays, key=lambda array: _nearness(array, steps), reverse=True)
        alone = not others or _nearness(first, steps) > _nearness(others[0], steps)
        places |= {first: steps} if alone else {}
        told = f"{path_of(steps)} may be its gradient or that of another; call it d and its name"
        why |= dict.fromkeys(others if alone else arrays, told)
    return places, why


def _nearness(array: Steps, gradient: Steps) -> tuple[int, bool]:
    """How many steps to the two are equal, at the beginning and at the end; whether one name contains the other."""
    equal = [one == other for one, other in zip(array, gradient, strict=False)]
    equal_ends = [one == other for one, other in zip(array[::-1], gradient[::-1], strict=False)]
    first, last = ([*each, False].index(False) for each in (equal, equal_ends))
    name, other = str(array[-1][1]), str(gradient[-1][1])
    return first + last, name in other


def _of_object(holder: Any, steps: Steps) -> Iterator[Slot]:
    """The slots of the object at the end of the steps."""
    held = _attributes(holder)
    known = {*held, *_words(type(holder))}

    def at(*names: str, item: Any = None) -> tuple[Steps, ...]:
        last = () if item is None else (("item", item),)
        return tuple((*steps, ("attribute", name), *last) for name in names if name in known)

    def may_hold(key: Any) -> Callable[[str], bool]:
        """Whether an attribute may hold the gradient under this name or number: it does, or backward fills it."""
        return lambda name: not held.get(name) or reached(held[name], (("item", key),)) is not None

    if "grad" in known and (names := [name for name in _VALUES if is_float_array(held.get(name))]):
        yield Slot((*steps, ("attribute", names[0])), at("grad"))  # an object that holds one parameter
        return
    for name, value in held.items():
        gradients = at(*names_of_gradient(name))
        if isinstance(value, np.ndarray) and gradients:
            yield Slot((*steps, ("attribute", name)), gradients)
        elif isinstance(value, dict | list):
            beside = [
                *names_of_gradient(name),
                *(["grads", "gradients"] if name.startswith(("param", "weight")) else []),
            ]
            for key in value if isinstance(value, dict) else range(len(value)):
                keys = [key, *(names_of_gradient(key) if isinstance(key, str) else [])]
                places = tuple(place for one in keys for place in at(*filter(may_hold(one), beside), item=one))
                if places:
                    yield Slot((*steps, ("attribute", name), ("item", key)), places)


def _words(kind: type) -> set[str]:
    """The names in the methods of a class: `dW` is among them if a method sets self.dW."""
    words: set[str] = set()
    for owner in kind.__mro__[:-1]:
        codes = [getattr(f, "__code__", None) for f in vars(owner).values()]
        while codes:
            code = codes.pop()
            if code is not None:
                words |= {*code.co_names}
                codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return words


def names_of_gradient(name: str) -> list[str]:
    """The usual names of the gradient of `name`."""
    return [f"d{name}", f"grad_{name}", f"{name}_grad", f"d_{name}", f"grad{name}", f"g_{name}"]
