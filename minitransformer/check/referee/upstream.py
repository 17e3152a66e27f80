"""How a backward apart from its forward takes the gradients of the outputs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays.backend import Array
from ..trace.values import is_float_array
from ..verify import arguments as given
from .other_forms import Outputs, flat, nothing_returned


class Upstream:
    """How a backward takes the gradients of the outputs of its forward.

    It takes one for each output, or all in one value of the form that forward returned, or those of the first outputs;
    then `left_out` names the other outputs. It may take none if forward returns a number, as a loss does: then it is
    given 1. besides: how many other arguments it takes, such as the cache.
    """

    def __init__(self, name: str, backward: Callable[..., Any], dtype: str, besides: int = 0) -> None:
        self._name, self._dtype, self._room = name, dtype, _room(backward, besides)
        self._is_one = hasattr(backward, "__code__") and len(parameters_in(backward)) == besides
        self._way: tuple[bool, int] | None = None
        self._outputs = 1
        self.left_out: dict[str, str] = {}
        self.shapes: list[tuple[int, ...]] = []

    def of(self, returned: Any, inputs: tuple[Any, ...]) -> tuple[Array, Callable[[Array], list[Any]]]:
        """(the outputs as one array, a function from its gradient to the first arguments of backward)."""
        returned = np.float64(returned) if isinstance(returned, float) else returned  # a loss, as others return it
        found = list(flat("output", returned, is_float_array))
        if not found:
            raise nothing_returned(self._name, returned)
        self._outputs = len(found)
        whole, count = self._way or self._ways()[0]
        self.left_out = dict.fromkeys([title for title, _ in found[count:]], "backward takes no gradient of it")
        single = self._dtype != "float64"
        outputs = Outputs(self._name, [x for _, x in found[:count]], inputs, single, "from_pair")
        self.shapes = outputs.shapes
        if self._is_one and outputs.joined.size != 1:
            raise TypeError(f"{self._name}: backward takes no gradient of the output, so that must be a single number")

        def gradients(dy: Array) -> list[Any]:
            if self._is_one:
                return []
            parts = outputs.gradients(cast_to(self._dtype)(dy))
            rest = iter(parts)
            return [given.with_leaves(returned, lambda x: next(rest) if is_float_array(x) else x)] if whole else parts

        return outputs.joined, gradients

    def times(self, dy: Array, found: Any) -> Any:
        """The gradients that backward has found, times that of the output if it was not given it."""
        if not self._is_one:
            return found
        return given.with_leaves(found, lambda x: x * float(dy.sum()) if is_float_array(x) else x)

    def _ways(self) -> list[tuple[bool, int]]:
        """(whether all come in one value, of how many outputs), the likelier first."""
        if self._outputs == 1 or self._room > 1:
            return [(False, min(self._outputs, max(self._room, 1)))]
        return [(True, self._outputs), (False, 1)]

    def settle(self, f: Callable[..., Any], inputs: list[Any], options: dict[str, Any]) -> None:
        """Choose the first way in which backward runs, and returns gradients of the shapes of the inputs."""

        def run() -> Any:
            return f(*map(given.own, inputs), **{key: given.own(x) for key, x in options.items()})

        self._way = runs = None
        near = functools.partial(given.nearby, rng=np.random.default_rng(0))
        with contextlib.suppress(Exception), np.errstate(all="ignore"):  # f may keep what it computes first
            f(*(given.with_leaves(given.own(x), near) for x in inputs), **given.own(options))
        with contextlib.suppress(ValueError, TypeError):  # if f does not run at all, the check says why
            run()
            for way in self._ways() if self._outputs > 1 else ():
                self._way = way
                y, pullback = run()
                with contextlib.suppress(ValueError, TypeError):
                    found = pullback(np.ones_like(y))
                    runs = runs or way
                    if _fit(inputs, found):
                        return
            self._way = runs


def _fit(inputs: list[Any], returned: Any) -> bool:
    """Whether the gradients have the shapes of the inputs."""
    floats = [x for x in inputs if given.float_leaves(x)]
    found = list(returned) if isinstance(returned, tuple) else [] if returned is None else [returned]
    pairs = zip(floats, found, strict=False)
    gradients = [zip(given.float_leaves(x), given.gradients_of(x, dx), strict=True) for x, dx in pairs]
    return len(floats) == len(found) and not any(given.misfit(leaf, dx) for each in gradients for leaf, dx in each)


def _room(backward: Callable[..., Any], besides: int) -> int:
    """How many upstream gradients a function takes; optional ones count if they may be None."""
    parameters = parameters_in(backward)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return sys.maxsize
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [each for each in parameters if each.kind in kinds]
    needed = [each for each in taken if each.default is None or each.default is each.empty]
    return len(needed) - besides if parameters else 1


def parameters_in(f: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function; none if nobody knows them."""
    try:
        return list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return []


def cast_to(dtype: str) -> Callable[[Any], Any]:
    """A function that makes a floating-point array one of this dtype."""
    return lambda x: x.astype(dtype) if dtype != "float64" and is_float_array(x) else x
