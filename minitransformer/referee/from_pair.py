"""A pair of forward and backward as a function of our form."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.backend import Array
from ..trace.values import is_float_array
from ..verify import arguments as given
from .other_forms import Foreign, add_to, checked_output, marked, of_our_form, ran

_VALUES = ("value", "data", "weight", "val", "w")  # where an object that holds one parameter has its numbers


def from_pair(forward: Any, backward: Callable[..., Any] | None = None, dtype: str = "float64") -> Callable[..., Any]:
    """A function of our form, (*arrays, **options) -> (output, backward), from a forward and a backward in NumPy.

    from_pair(forward, backward): `out, cache = forward(x, ...)` and `backward(dout, cache)`, which returns a gradient
    for each floating-point array of forward, in order, or a dict of them under the names `x`, `dx` or `grad_x`. If the
    first parameter of backward is called cache, the call is `backward(cache, dout)`.

    from_pair(layer): an object with the methods `forward(x, ...)`, which returns the output, and `backward(dout)`,
    which returns the gradients of the arrays and stores those of its parameters in attributes. The gradient of `W` is
    in `dW`, `grad_W` or `W_grad`, in `grads["W"]` next to `params["W"]`, or in `W.grad`. Each call runs on a copy of
    the object.

    dtype: "float32" or "float16" for code that computes only in that. Raises TypeError if they are not such functions,
    and ValueError for bfloat16, which NumPy does not have.
    """
    if dtype == "bfloat16":
        raise ValueError("from_pair: NumPy has no bfloat16; float32, float16 or float64 it has")
    if backward is None:
        methods = [getattr(forward, name, None) for name in ("forward", "backward")]
        if isinstance(forward, type) or not all(map(callable, methods)):
            raise TypeError(
                "from_pair: expected two functions, forward and backward, or one object that has them as methods, got "
                + (
                    f"the class {forward.__name__}; make an object first"
                    if isinstance(forward, type)
                    else repr(forward)
                )
            )
        return _Object(forward, dtype)
    if not callable(forward) or not callable(backward):
        raise TypeError(f"from_pair: expected two functions, forward and backward, got {forward!r} and {backward!r}")
    cache_first = next(iter(_parameters(backward)), "").endswith("cache")
    name = given.name_of(forward)
    cast = _cast(dtype)

    def call(*given_inputs: Any, **options: Any) -> Any:
        inputs = tuple(given.with_leaves(x, cast) for x in given_inputs)
        returned = ran(name, "forward", lambda: forward(*inputs, **options))
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise TypeError(f"{name} must return (output, cache), got {given.describe(returned)}")
        y, cache = returned
        checked_output(name, y, inputs, dtype != "float64", "from_pair")

        def pullback(dy: Array) -> Any:
            arguments = (cache, cast(dy)) if cache_first else (cast(dy), cache)
            found = ran(given.name_of(backward), "backward", lambda: backward(*arguments))
            found = _in_order(found, given.input_names(forward, inputs), inputs) if isinstance(found, dict) else found
            return _wide(tuple(found) if isinstance(found, list) else found, dtype)

        return _wide(y, dtype), pullback

    return of_our_form(forward, call, dtype)


def _parameters(f: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return []


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda x: x.astype(dtype) if dtype != "float64" and is_float_array(x) else x


def _wide(x: Any, dtype: str) -> Any:
    """Convert results to float64."""
    if dtype == "float64":
        return x
    if isinstance(x, tuple):
        return tuple(_wide(part, dtype) for part in x)
    return x.astype(np.float64) if is_float_array(x) else x


def _in_order(found: dict[Any, Any], names: list[str], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the floating-point inputs, from a dict of them."""
    wanted = [name for name, x in zip(names, inputs, strict=True) if is_float_array(x)]
    return tuple(
        next((found[key] for key in [*_names_of_gradient(name), name] if key in found), None) for name in wanted
    )


def _names_of_gradient(name: str) -> list[str]:
    return [f"d{name}", f"grad_{name}", f"{name}_grad", f"d_{name}", f"grad{name}", f"g_{name}"]


Steps = tuple[
    tuple[str, Any], ...
]  # how to get from an object to something in it: ("attribute", "W"), ("item", 0), ...


@dataclass(frozen=True)
class _Slot:
    """A parameter of an object: the steps to its array, and to the places where its gradient may be after backward."""

    array: Steps
    gradients: tuple[Steps, ...]

    @property
    def path(self) -> str:
        """The steps as code: layers[0].W."""
        parts = [f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in self.array]
        return "".join(parts).removeprefix(".")

    def value(self, layer: Any) -> Any:
        """The array in this object."""
        return _reached(layer, self.array)

    def gradient(self, layer: Any) -> Any:
        """The gradient in this object; None if there is none."""
        found = (_reached(layer, steps) for steps in self.gradients)
        return next((x for x in found if x is not None), None)


def _reached(x: Any, steps: Steps) -> Any:
    """The value at the end of the steps; None if there is none."""
    for kind, key in steps:
        if kind == "attribute":
            x = getattr(x, key, None)
        else:
            x = x[key] if (key in x if isinstance(x, dict) else isinstance(x, list | tuple) and key < len(x)) else None
        if x is None:
            return None
    return x


class _Object(Foreign):
    """An object with forward and backward as a module of ours."""

    def __init__(self, layer: Any, dtype: str) -> None:
        self._layer, self._slots, self._dtype = layer, _slots(layer), dtype
        super().__init__(type(layer).__name__, {slot.path: slot.value(layer) for slot in self._slots})
        self.unchecked = _others(layer, self._slots)
        self.__signature__ = inspect.signature(layer.forward)
        marked(self, dtype)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """(output, backward) of a copy of the object; backward adds to the gradients of the parameters here."""
        name, cast = self.__name__, _cast(self._dtype)
        memo = {id(slot.value(self._layer)): cast(self.owned[slot.path].value.copy()) for slot in self._slots}
        layer = ran(name, "a copy of it", lambda: copy.deepcopy(self._layer, memo))
        inputs = tuple(given.with_leaves(x, cast) for x in inputs)
        y = ran(name, "forward", lambda: layer.forward(*inputs, **options))
        checked_output(name, y, inputs, self._dtype != "float64", "from_pair")

        def backward(dy: Array) -> Any:
            for slot in self._slots:  # for those that add
                if isinstance(before := slot.gradient(layer), np.ndarray):
                    before[...] = 0.0
            returned = ran(name, "backward", lambda: layer.backward(cast(dy)))
            for slot in self._slots:
                gradient, parameter = slot.gradient(layer), self.owned[slot.path]
                if not is_float_array(gradient) or gradient.shape != parameter.value.shape:
                    what = given.describe(gradient) + (f" of shape {gradient.shape}" if np.shape(gradient) else "")
                    raise ValueError(
                        f"{name}: backward left {what} as the gradient of {slot.path}, "
                        f"which has shape {parameter.value.shape}"
                    )
                add_to(parameter, gradient)
            held = [slot.gradient(layer) for slot in self._slots]  # the next call zeroes these; results must outlive it

            def own(x: Any) -> Any:
                return x.copy() if is_float_array(x) and any(np.may_share_memory(x, held_x) for held_x in held) else x

            return _wide(
                given.with_leaves(tuple(returned) if isinstance(returned, list) else returned, own), self._dtype
            )

        return _wide(y, self._dtype), backward


def _slots(layer: Any) -> list[_Slot]:
    """The parameters of an object and of the objects in it: float arrays with a place for a gradient."""
    found: dict[int, _Slot] = {}
    for holder, steps in _objects(layer, (), set()):
        for slot in _of_object(holder, steps):
            array = slot.value(layer)
            if is_float_array(array):
                found.setdefault(id(array), slot)
    return list(found.values())


def _others(layer: Any, slots: list[_Slot]) -> list[str]:
    """The floating-point arrays of an object that are neither parameters with a gradient nor gradients themselves."""
    known = {slot.array for slot in slots} | {steps for slot in slots for steps in slot.gradients}
    found = []
    for holder, steps in _objects(layer, (), set()):
        for name, value in vars(holder).items():
            parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            whole: list[tuple[Steps, Any]] = [((*steps, ("attribute", name)), value)]
            for where, x in [*whole, *(((*whole[0][0], ("item", key)), part) for key, part in parts)]:
                if is_float_array(x) and where not in known and x.ndim:
                    found.append(_Slot(where, ()).path)
    return found


def _objects(x: Any, steps: Steps, seen: set[int]) -> Iterator[tuple[Any, Steps]]:
    """The object and every object inside it, also in lists and dicts, with the steps to it."""
    if id(x) in seen:
        return
    seen.add(id(x))
    kinds = (type, types.ModuleType, types.FunctionType, types.MethodType, np.ndarray, np.generic, np.random.Generator)
    parts: Any = ()
    if isinstance(x, dict | list | tuple):
        parts = [("item", key, part) for key, part in (x.items() if isinstance(x, dict) else enumerate(x))]
    elif hasattr(x, "__dict__") and not isinstance(x, kinds):
        yield x, steps
        parts = [("attribute", name, part) for name, part in vars(x).items()]
    for kind, key, part in parts:
        yield from _objects(part, (*steps, (kind, key)), seen)


def _of_object(holder: Any, steps: Steps) -> Iterator[_Slot]:
    """The slots of the object at the end of the steps."""
    held = vars(holder)
    known = {*held, *_words(type(holder))}

    def at(*names: str, item: Any = None) -> tuple[Steps, ...]:
        last = () if item is None else (("item", item),)
        return tuple((*steps, ("attribute", name), *last) for name in names if name in known)

    def may_hold(key: Any) -> Callable[[str], bool]:
        """Whether an attribute may hold the gradient under this name or number: it does, or backward fills it."""
        return lambda name: not held.get(name) or _reached(held[name], (("item", key),)) is not None

    if "grad" in known and (names := [name for name in _VALUES if is_float_array(held.get(name))]):
        yield _Slot((*steps, ("attribute", names[0])), at("grad"))  # an object that holds one parameter
        return
    for name, value in held.items():
        gradients = at(*_names_of_gradient(name))
        if isinstance(value, np.ndarray) and gradients:
            yield _Slot((*steps, ("attribute", name)), gradients)
        elif isinstance(value, dict | list):
            beside = [
                *_names_of_gradient(name),
                *(["grads", "gradients"] if name.startswith(("param", "weight")) else []),
            ]
            for key in value if isinstance(value, dict) else range(len(value)):
                keys = [key, *(_names_of_gradient(key) if isinstance(key, str) else [])]
                places = tuple(place for one in keys for place in at(*filter(may_hold(one), beside), item=one))
                if places:
                    yield _Slot((*steps, ("attribute", name), ("item", key)), places)


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
