"""Parameters, and the modules that own them."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .. import ops
from ..arrays.backend import Array, Rng, array_module, device_of, to_device, to_numpy
from ..arrays.boundary import (
    check_floats,
    check_generator,
    check_gradient,
    check_last,
    check_same_device,
    check_sequences,
)
from .part_cost import Cost

M = TypeVar("M", bound="Module")


class Parameter:
    """A learned array, `.value`, and the gradient of the loss with respect to it, `.grad`, with the same shape.

    Backward passes add to `.grad` and never overwrite it: a parameter that is used twice collects both gradients.
    """

    def __init__(self, value: np.ndarray) -> None:
        self.value: Array = to_device(value)

    @property
    def device(self) -> str:
        """The name of the device that it is on."""
        return device_of(self.value).name

    @functools.cached_property
    def grad(self) -> Array:
        """Zeros, until a backward pass adds to them. They are made when first asked for: who only reads needs none."""
        return array_module(self.value).zeros(self.value.shape, dtype=self.value.dtype)

    def part(self, at: Any) -> Parameter:
        """A copy of the part value[at], with a gradient of zero."""
        part = copy.copy(self)
        part.value = self.value[at].copy()
        vars(part).pop("grad", None)  # that of the whole
        return part

    def __repr__(self) -> str:
        return f"Parameter(shape={self.value.shape}, dtype={self.value.dtype}, device={self.device})"


class Module:
    """Something with parameters. A call returns `(output, backward)`; nothing of a call is stored on the module.

    The module finds the parameters and modules among its attributes, also those in lists, tuples and dicts and in
    lists of these: first `named_by`, then the others in the order they were set. So a parameter that several parts
    share has the name that it has in `named_by`. It computes with `self.ops`: the textbook ops, whose checks are left
    to `takes`, unless `fast.accelerate` made the module or `to` made it float16.
    """

    ops: Any = ops.trusting
    named_by: str = ""  # the attribute that names what others share with it

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return `(output, backward)`; every module defines its own."""
        raise TypeError(f"{type(self).__name__} does not define __call__")

    def children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) for each direct submodule; those in a list are called "name.0", "name.1", ..."""
        yield from ((name, item) for name, item in self._attributes() if isinstance(item, Module))

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        for name, attribute in sorted(vars(self).items(), key=lambda item: item[0] != self.named_by):
            yield from _items(name, attribute)

    def modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (dotted name, module) for this module, whose name is path, and for all inside it."""
        yield path, self
        for name, child in self.children():
            yield from child.modules(f"{path}.{name}" if path else name)

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (dotted name, Parameter). A parameter shared by two modules occurs once, under its first name."""
        seen: set[int] = set()
        own = ((name, item) for name, item in self._attributes() if isinstance(item, Parameter))
        inner = ((f"{name}.{rest}", p) for name, child in self.children() for rest, p in child.parameters())
        for name, parameter in itertools.chain(own, inner):  # who asks for the first alone need not wait for all
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def takes(self, x: Array, like: Array, width: int, meaning: str) -> None:
        """Require an input (..., width) with the dtype and on the device of `like`, a parameter."""
        by_hand = like.dtype == np.float16 and self.ops is ops.trusting  # these sum in float16, which stops growing
        if type(x) is type(like) and x.dtype == like.dtype and x.shape[-1:] == (width,) and x.size and not by_hand:
            return  # nearly every call; the rest finds out what is wrong
        where = type(self).__name__
        if by_hand:
            raise TypeError(
                f"{where}: its parameters became float16 one by one; convert the module: .to(dtype='float16')"
            )
        check_floats(where, x=x)
        check_same_device(where, "its parameter", like, "x", x)
        if x.dtype != like.dtype:
            raise TypeError(
                f"{where}: x is {x.dtype} but its parameters are {like.dtype}; nothing is promoted silently, so "
                f"convert one of them: x.astype('{like.dtype}'), or a module: .to(dtype='{x.dtype}')"
            )
        check_last(where, "x", x, width, meaning)

    def takes_sequences(self, width: int, meaning: str = "d_model", **sequences: Any) -> None:
        """Require floating-point sequences of vectors, each (..., T, width), all with the same leading axes."""
        first = next(iter(sequences.values()))
        for x in sequences.values():
            known = type(x) is np.ndarray and x.ndim > 1 and x.size and x.shape[-1] == width and x.dtype.kind == "f"
            if not known or x.dtype != first.dtype or x.shape[:-2] != first.shape[:-2]:
                check_sequences(type(self).__name__, width, meaning, **sequences)  # finds out what is wrong

    def returns(self, dy: Array, shape: tuple[int, ...], like: Array) -> None:
        """Require a gradient of an output of this shape, with the dtype and on the device of `like`, a parameter.

        One of another shape could broadcast unnoticed, and one of another dtype would promote what it meets.
        """
        if type(dy) is not type(like) or dy.shape != shape or dy.dtype != like.dtype:
            check_gradient(type(self).__name__, dy, shape, like.dtype, array_module(like))

    @property
    def device(self) -> str:
        """The name of the device that the parameters are on."""
        return next(self.parameters())[1].device

    def cost(self, batch: int, length: int) -> Cost:
        """What a call with batch sequences of length tokens costs; here, what the parts inside cost together."""
        return sum((child.cost(batch, length) for _, child in self.children()), Cost())

    def zero_grad(self) -> None:
        """Set every gradient to zero, in place."""
        for _, parameter in self.parameters():
            parameter.grad.fill(0.0)

    def to(self: M, device: str | None = None, dtype: str | None = None) -> M:
        """Move every parameter to a device and/or convert it to a dtype, in place. The gradients become zero."""
        try:
            fits = dtype is None or np.dtype(dtype).kind == "f"
        except TypeError:  # NumPy has none of this name
            fits = False
        if not fits:
            raise TypeError(f"{type(self).__name__}: parameters must have a floating-point dtype, got {dtype!r}")
        for module in (module for _, module in self.modules() if dtype is not None):
            vars(module).pop("ops", None)
            if np.dtype(dtype) == np.float16 and module.ops is ops.trusting:
                module.ops = ops.checking  # which also compute in float32 where they must
        for _, parameter in self.parameters():
            name = device_of(parameter.value).name if device is None else device
            value = to_device(parameter.value, name)
            parameter.value = value if dtype is None else value.astype(dtype)
            vars(parameter).pop("grad", None)  # made again, like the new value, when asked for
        return self

    def state(self) -> dict[str, np.ndarray]:
        """A copy of every parameter's value, on the host, by its dotted name."""
        return {name: np.array(to_numpy(parameter.value)) for name, parameter in self.parameters()}

    def load_state(self, mapping: Mapping[str, np.ndarray]) -> None:
        """Set every parameter from `mapping`; its dtype and device stay.

        Raises ValueError, and changes nothing, if a name is missing or unknown, or if its array does not fit.
        """
        load_arrays(type(self).__name__, {name: p.value for name, p in self.parameters()}, mapping)


def _items(name: str, attribute: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(attribute, list | tuple | dict):
        parts = attribute.items() if isinstance(attribute, dict) else enumerate(attribute)
        for key, part in parts:
            yield from _items(f"{name}.{key}", part)
    else:
        yield name, attribute


def load_arrays(owner: str, targets: Mapping[str, Array], mapping: Mapping[str, np.ndarray]) -> None:
    """Fill every target, in place, with the array of its name in `mapping`. On ValueError, none has changed."""
    if not isinstance(mapping, Mapping):
        raise TypeError(
            f"{owner}: a state must map names to arrays, like the result of state(), got {type(mapping).__name__}"
        )
    found = {name: np.asarray(value) for name, value in mapping.items()}
    problems = [f"{name} is missing" for name in targets if name not in found]
    problems += [f"{name} is unknown" for name in found if name not in targets]
    for name in [name for name in targets if name in found]:
        if found[name].shape != targets[name].shape:
            problems.append(f"{name} must have shape {targets[name].shape}, got {found[name].shape}")
        elif found[name].dtype.kind not in "fiu":
            problems.append(f"{name} must hold real numbers, got {found[name].dtype}")
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ValueError(f"this state does not fit {owner}: " + "; ".join(problems[:5]) + more)
    for name, target in targets.items():
        target[...] = to_device(found[name].astype(target.dtype), device_of(target).name)


def generator(rng: Rng | None) -> np.random.Generator:
    """The generator for initial values: the one given, or a new one with a random seed."""
    check_generator("initial values", rng)
    return np.random.default_rng() if rng is None else rng
