"""A pair of forward and backward as a function of our form."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ...core.layers import Parameter
from ..trace.values import is_float_array
from ..verify import arguments as given
from .other_forms import Foreign, as_parameter, flat, of_our_form, ran
from .places import Slot, Steps, arrays_in, matched, named_slots, names_of_gradient, path_of, reached, traces
from .upstream import Upstream, cast_to, parameters_in


def from_pair(forward: Any, backward: Callable[..., Any] | None = None, dtype: str = "float64") -> Callable[..., Any]:
    """A function of our form, (*arrays, **options) -> (output, backward), from a forward and a backward in NumPy.

    from_pair(forward, backward): `out, cache = forward(x, ...)` and `backward(dout, cache)`, which returns a gradient
    for each floating-point array of forward, in order, or a dict of them under the names `x`, `dx` or `grad_x`; None
    may stand for the other inputs. If the first parameter of backward is called cache, the call is
    `backward(cache, dout)`; if forward returns a number, it may be `backward(cache)`. Several outputs, `y, h, cache`,
    are checked whole, as one long array; backward is then given a gradient for each, or all in a tuple.

    from_pair(layer): an object with the methods `forward(x, ...)`, which returns the output, and `backward(dout)`,
    which returns the gradients of the arrays and stores those of its parameters in attributes. The gradient of `W` is
    in `dW`, `grad_W` or `W_grad`, in `grads["W"]` next to `params["W"]`, or in `W.grad`; elsewhere the checker finds it
    by what backward leaves (places.py). If the methods return nothing, the output is in `output` and the gradient of
    `x` in `dx`. Each call runs on a copy of the object.

    dtype: "float32" or "float16" for code that computes only in that. Raises TypeError if they are not such functions,
    and ValueError for bfloat16, which NumPy does not have.
    """
    if dtype == "bfloat16":
        raise ValueError("from_pair: NumPy has no bfloat16; float32, float16 or float64 it has")
    if backward is None:
        methods = [getattr(forward, name, None) for name in ("forward", "backward")]
        if isinstance(forward, type) or not all(map(callable, methods)):
            expected = "two functions, forward and backward, or one object that has them as methods"
            is_class = isinstance(forward, type)
            got = f"the class {forward.__name__}; make an object first" if is_class else repr(forward)
            raise TypeError(f"from_pair: expected {expected}, got {got}")
        return _Object(forward, dtype)
    if not callable(forward) or not callable(backward):
        raise TypeError(f"from_pair: expected two functions, forward and backward, got {forward!r} and {backward!r}")
    cache_first = any(parameter.name.endswith("cache") for parameter in parameters_in(backward)[:1])
    name = given.name_of(forward)
    cast = cast_to(dtype)
    upstream = Upstream(name, backward, dtype, besides=1)

    def call(given_inputs: tuple[Any, ...], _: dict[str, Array], options: dict[str, Any]) -> Any:
        inputs = tuple(given.with_leaves(x, cast) for x in given_inputs)
        returned = ran(name, "forward", lambda: forward(*inputs, **options))
        if not (isinstance(returned, tuple) and len(returned) > 1):
            raise TypeError(f"{name} must return (output, cache), got {given.describe(returned)}")
        *several, cache = returned
        y, gradients_for = upstream.of(several[0] if len(several) == 1 else tuple(several), inputs)
        made.left_out, made.shapes = upstream.left_out, upstream.shapes

        def pullback(dy: Array) -> Any:
            arguments = [cache, *gradients_for(dy)] if cache_first else [*gradients_for(dy), cache]
            found = ran(given.name_of(backward), "backward", lambda: backward(*arguments))
            found = _in_order(found, given.input_names(forward, inputs), inputs) if isinstance(found, dict) else found
            return upstream.times(dy, _arrays(found)), {}

        return y, pullback

    made: Any = of_our_form(forward, call, dtype)
    made.at_work = functools.partial(upstream.settle, made)
    return made


def _arrays(returned: Any) -> Any:
    """The gradients that backward returned, several in a tuple; that of a number may be a number."""
    several = tuple(returned) if isinstance(returned, list | tuple) else (returned,)
    found = tuple(np.float64(x) if isinstance(x, float) else x for x in several)
    return found if isinstance(returned, list | tuple) else found[0]


def _in_order(found: dict[Any, Any], names: list[str], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the floating-point inputs, from a dict of them."""
    wanted = [name for name, x in zip(names, inputs, strict=True) if is_float_array(x)]
    return tuple(
        next((found[key] for key in [*names_of_gradient(name), name] if key in found), None) for name in wanted
    )


class _Left:
    """Where a backward that returns nothing leaves the gradients of the inputs: seen at its first call alone.

    Later calls leave the same numbers, so that nothing changes.
    """

    def __init__(self, find: Callable[[dict[Steps, np.ndarray]], list[Steps | None]]) -> None:
        self._find = find
        self._places: list[Steps | None] = []
        self._left: Callable[[], dict[Steps, np.ndarray]] | None = None

    def watch(self, layer: Any) -> None:
        """Look at the object before backward runs."""
        self._left = None if self._places else traces(layer)

    def places(self) -> list[Steps | None]:
        """The places, after backward; [] if it left nothing."""
        if self._left is not None:
            self._places = self._find(self._left())
        return self._places


class _Object(Foreign):
    """An object with forward and backward as a module of ours."""

    def __init__(self, layer: Any, dtype: str) -> None:
        super().__init__(layer, layer.forward, self._called, dtype, {})
        self._layer = self._unused = layer
        self._dtype = dtype
        self._upstream = Upstream(type(layer).__name__, layer.backward, dtype)
        self._not_found: dict[str, str] = {}
        self._all: dict[str, Parameter] = {}
        self.found = ""
        self._keeps_output = False  # whether it lies in the object
        self._learn(named_slots(layer))

    def _learn(self, slots: list[Slot]) -> None:
        """Own the parameters in these slots; those that were owned before stay the same objects."""
        self._slots = slots
        for slot in slots:
            if slot.path not in self._all:
                self._all[slot.path] = as_parameter(slot.value(self._layer))
        self.owned = {slot.path: self._all[slot.path] for slot in slots}

    def at_work(self, inputs: list[Any], options: dict[str, Any]) -> None:
        """Run with these inputs, to find the gradients that have no usual name, and the parameters that come late.

        An object that makes parameters when it first runs is from then on as that left it.
        """
        early = {*arrays_in(self._unused)}
        self._find(self._unused, early, inputs, options)
        with contextlib.suppress(Exception), np.errstate(all="ignore"):  # it may run only once
            self._layer, *_ = self._run(inputs, options)
            late = [x for steps, x in arrays_in(self._layer).items() if steps not in early]
            self._run(inputs, options)
            if any(self._moves_output(x, inputs, options) for x in late):
                self._find(self._layer, early, inputs, options)
                if any(slot.array not in early for slot in self._slots):
                    self._unused = self._layer
        if self._layer is not self._unused:
            self._find(self._unused, early, inputs, options)
        self._use(inputs, options)

    def _find(self, layer: Any, early: set[Steps], inputs: list[Any], options: dict[str, Any]) -> None:
        """Learn the parameters of the object, and where their gradients are. What comes late may be a cache."""
        self._layer = layer
        self._learn([slot for slot in named_slots(layer) if slot.array in early])
        self._upstream.settle(self, inputs, options)
        self._not_found, self.found = {}, ""
        with contextlib.suppress(ValueError, TypeError):  # if it does not run, the check says why
            late = [slot for slot in named_slots(layer) if slot.array not in early]
            named = [*self._slots, *(x for x in late if self._moves_output(x.value(layer), inputs, options))]
            self._learn(named)
            known = {id(x) for slot in named for x in (slot.value(layer), slot.gradient(layer))}
            found = {id(x): (steps, x) for steps, x in reversed(arrays_in(layer).items()) if id(x) not in known}
            others = dict(reversed(found.values()))
            used = {steps: x for steps, x in others.items() if self._moves_output(x, inputs, options)}
            places, why = matched(used, *self._left_by_backward(inputs, options)) if used else ({}, {})
            self._learn([*named, *(Slot(array, (place,)) for array, place in places.items())])
            told = [f"that of {path_of(array)} in {path_of(place)}" for array, place in places.items()]
            self.found = f"Gradients found by what backward left: {', '.join(told)}." if told else ""
            self._not_found = {path_of(steps): reason for steps, reason in why.items()}

    def _use(self, inputs: list[Any], options: dict[str, Any]) -> None:
        """Run once with other numbers, and from then on copies of what that left: it may keep what it computes first.

        Not if it makes its parameters when it first runs, or runs only once.
        """
        near = functools.partial(given.nearby, rng=np.random.default_rng(0))
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            with given.parameters_as(near, *self.owned.values()):
                used, *_ = self._run([given.with_leaves(x, near) for x in inputs], options)
            if len(named_slots(used)) == len(named_slots(self._unused)):
                self._layer = used
                self._run(inputs, options)
                return
        self._layer = self._unused

    def _moves_output(self, x: np.ndarray, inputs: list[Any], options: dict[str, Any]) -> bool:
        """Whether the output is another one if an array of the object is."""
        _, y, _ = self._run(inputs, options)
        other = x + np.random.default_rng(0).normal(size=x.shape).astype(x.dtype)
        with np.errstate(all="ignore"):
            try:
                _, moved, _ = self._run(inputs, options, {id(x): other})
            except (ValueError, TypeError):
                return True
        return not np.array_equal(y, moved, equal_nan=True)

    def _left_by_backward(self, inputs: list[Any], options: dict[str, Any]) -> tuple[dict[Steps, np.ndarray], set[str]]:
        """(the arrays that backward leaves in the object, the names of all others and of the inputs).

        Those under usual names, and what backward is given and returns, are left out.
        """
        layer, y, gradients_for = self._run(inputs, options)
        left_since = traces(layer)
        upstream = gradients_for(np.random.default_rng(1).normal(size=y.shape))
        returned = ran(self.__name__, "backward", lambda: layer.backward(*upstream))
        taken = {steps for slot in self._slots for steps in slot.gradients}
        known = [x for _, x in flat("", [*upstream, returned], is_float_array)]

        def is_new(x: np.ndarray) -> bool:
            return not any(np.may_share_memory(x, other) or np.array_equal(x, other) for other in known)

        left = {steps: x for steps, x in left_since().items() if steps not in taken and is_new(x)}
        names = {str(steps[-1][1]) for steps in arrays_in(layer)} | {each.name for each in parameters_in(layer.forward)}
        return left, names

    def _run(self, inputs: list[Any], options: dict[str, Any], others: dict[int, np.ndarray] | None = None) -> Any:
        """`_forward` with copies of the arguments, which code of others may change."""
        return self._forward(tuple(map(given.own, inputs)), {key: given.own(x) for key, x in options.items()}, others)

    def _forward(
        self, inputs: tuple[Any, ...], options: dict[str, Any], others: dict[int, np.ndarray] | None = None
    ) -> tuple[Any, Array, Callable[[Array], list[Any]]]:
        """(a copy of the object after forward, its outputs as one array, a function to the arguments of backward).

        others: arrays in place of those with these ids.
        """
        name, cast = self.__name__, cast_to(self._dtype)
        memo = {id(slot.value(self._layer)): cast(self.owned[slot.path].value.copy()) for slot in self._slots}
        layer = ran(name, "a copy of it", lambda: copy.deepcopy(self._layer, memo | (others or {})))
        inputs = tuple(given.with_leaves(x, cast) for x in inputs)
        left = traces(layer) if self._keeps_output else None
        returned = ran(name, "forward", lambda: layer.forward(*inputs, **options))
        if returned is None and left is None:
            self._keeps_output = True
            return self._forward(inputs, options, others)
        if returned is None and left is not None:
            returned = _kept_output(left(), inputs)
        return layer, *self._upstream.of(returned, inputs)

    def _called(self, inputs: tuple[Any, ...], _: dict[str, Array], options: dict[str, Any]) -> Any:
        """A call of a copy of the object, as an adapter makes one."""
        name = self.__name__
        layer, y, gradients_for = self._forward(inputs, options)
        self.left_out, self.shapes = self._not_found | self._upstream.left_out, self._upstream.shapes
        left = _Left(lambda found: self._places_of_inputs(found, inputs))
        ours: set[str] = set()  # the parameters whose gradient is the very array that backward was given

        def backward(dy: Array) -> Any:
            for slot in self._slots:  # for those that add
                if isinstance(before := slot.gradient(layer), np.ndarray) and slot.path not in ours:
                    before[...] = 0.0
            left.watch(layer)
            upstream = gradients_for(dy)
            returned = ran(name, "backward", lambda: layer.backward(*upstream))
            for slot in self._slots:
                after = slot.gradient(layer)
                if is_float_array(after) and any(np.may_share_memory(after, x) for x in given.float_leaves(upstream)):
                    ours.add(slot.path)
            own = {slot.path: self._gradient_in(slot, layer) for slot in self._slots}
            own = self._upstream.times(dy, own)
            held: list[Any] = [*own.values()]  # the next call zeroes these; results must outlive it
            if returned is None:
                kept = [None if steps is None else reached(layer, steps) for steps in left.places()]
                held, returned = held + kept, tuple(kept) or None
            returned = self._upstream.times(dy, _arrays(returned))

            def outliving(x: Any) -> Any:
                return x.copy() if is_float_array(x) and any(np.may_share_memory(x, other) for other in held) else x

            return given.with_leaves(returned, outliving), own

        return y, backward

    def _gradient_in(self, slot: Slot, layer: Any) -> np.ndarray:
        """The gradient of a parameter that backward left in this copy of the object."""
        gradient, shape = slot.gradient(layer), self.owned[slot.path].value.shape
        if not is_float_array(gradient) or gradient.shape != shape:
            what = given.describe(gradient) + (f" of shape {gradient.shape}" if np.shape(gradient) else "")
            raise ValueError(
                f"{self.__name__}: backward left {what} as the gradient of {slot.path}, which has shape {shape}"
            )
        return gradient

    def _places_of_inputs(self, left: dict[Steps, np.ndarray], inputs: tuple[Any, ...]) -> list[Steps | None]:
        """Where a backward that returns nothing left the gradient of each floating-point input; [] if nowhere."""
        taken = {steps for slot in self._slots for steps in slot.gradients}
        names = given.input_names(self._layer.forward, inputs)
        places: list[Steps | None] = []
        for name, x in zip(names, inputs, strict=True):
            if is_float_array(x):
                fit = [steps for steps, dx in left.items() if dx.shape == x.shape and steps not in taken]
                named = [steps for steps in fit if steps[-1][1] in names_of_gradient(name)]
                places.append(next(iter(named or fit), None) if named or len(fit) == 1 else None)
        return places if any(places) else []


def _kept_output(left: dict[Steps, np.ndarray], inputs: tuple[Any, ...]) -> Any:
    """The output of a forward that returns nothing: the array `output` that it left, or the only one; else None."""
    new = {steps: x for steps, x in left.items() if not any(x is given_one for given_one in inputs)}
    named = [x for steps, x in new.items() if steps in [(("attribute", name),) for name in ("output", "out", "y")]]
    found = named or [*new.values()]
    return found[0] if len(found) == 1 else None
