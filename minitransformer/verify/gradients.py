"""Hold hand-derived gradients against central differences.

For a scalar L = sum(upstream * f(x)) with a random upstream gradient, the pullback gives dL/dx at once, and a central
difference gives it entry by entry:

    dL/dx_i ≈ sum(upstream * (f(x + h e_i) - f(x - h e_i))) / 2h,        wrong by O(h²) and by O(ε/h) of rounding

With h = 1e-5 in float64 both parts are near 1e-10. A large array is checked along a few random directions u instead,
where <dL/dx, u> must equal the difference along u: a wrong gradient agrees with probability zero. The upstream gradient
is random and not symmetric because ones would hide most mistakes: the outputs of softmax and of LayerNorm have constant
sums, so their true gradient is then zero and a backward that returns zeros would pass.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..backend import Array, device_of, to_device
from ..layers import Module, Parameter
from .report import Entries, Report, Row
from .tracing import Pair, Recording, Replacement, host_copy, is_float_array

Parameters = Module | Iterable[tuple[str, Parameter]]
Probe = Callable[[np.ndarray], np.ndarray]  # a displacement of one array to the output of f


def gradients(
    f: Callable[..., Any],
    *inputs: Any,
    parameters: Parameters | None = None,
    upstream: Array | None = None,
    seed: int = 0,
    atol: float = 1e-6,
    rtol: float = 1e-6,
    step: float = 1e-5,
    entrywise: int = 64,
    directions: int = 3,
    intermediates: bool = True,
    name: str | None = None,
    **options: Any,
) -> Report:
    """Check every gradient of `f(*inputs, **options) -> (output, backward)` in float64; returns a Report.

    Checked are each floating-point input, each parameter (of f itself if it is a module or a module's method, else of
    `parameters`) and each intermediate: every local variable `name` of a running op, layer or model that has a `dname`
    in its pullback. A gradient must have the shape and dtype of its array and satisfy |hand - numerical| <= atol + rtol
    |numerical| everywhere; the absolute part is needed because some true gradients are exactly zero (that of the key
    bias in attention).

    Arrays of up to `entrywise` elements are checked entry by entry, larger ones along `directions` random directions.
    Generators among the arguments start from the same state in each evaluation, so dropout stays frozen. Where f has a
    kink, as ReLU at 0, any slope between those of both sides is accepted and the row counts it. Raises ValueError for
    NaN in an input, a parameter or the output and where f is random by a generator that is no argument, and TypeError
    where it does not return (array, backward).
    """
    rng = np.random.default_rng(seed)
    names = _input_names(f, inputs)
    arguments = [_to_float64(x) if is_float_array(x) else x for x in inputs]
    owned = _parameters_of(f, parameters)
    _refuse_unusable([*zip(names, arguments, strict=True), *((key, p.value) for key, p in owned)], options)
    check = _Check(f, arguments, options, rng, atol, rtol, step, entrywise, directions)
    with _in_float64(owned):
        rows = check.run(names, owned, upstream, intermediates)
    return Report(name or _name_of(f), tuple(rows))


class _Check:
    """One check: the function with its arguments, and the numbers that steer the differences."""

    def __init__(
        self,
        f: Callable[..., Any],
        inputs: list[Any],
        options: dict[str, Any],
        rng: np.random.Generator,
        atol: float,
        rtol: float,
        step: float,
        entrywise: int,
        directions: int,
    ) -> None:
        self.f, self.inputs, self.options, self.rng = f, inputs, options, rng
        self.atol, self.rtol, self.step = atol, rtol, step
        self.entrywise, self.directions = entrywise, directions
        self.upstream = np.zeros(())
        self.output = np.zeros(())

    def call(self, inputs: list[Any] | None = None) -> Any:
        """f on fresh copies of the generators, so that every evaluation draws the same random numbers."""
        frozen = [_fresh(x) for x in (self.inputs if inputs is None else inputs)]
        return self.f(*frozen, **{key: _fresh(value) for key, value in self.options.items()})

    def run(
        self, names: list[str], owned: list[tuple[str, Parameter]], upstream: Array | None, intermediates: bool
    ) -> list[Row]:
        before = [host_copy(x) if is_float_array(x) else None for x in self.inputs]
        first = self.call()  # fills what is computed once and kept (a table of positions); later runs are all alike
        with Recording(self.f) as recording:
            result = self.call()
        if not (isinstance(result, tuple) and len(result) == 2 and is_float_array(result[0]) and callable(result[1])):
            raise TypeError(f"{_name_of(self.f)} must return (floating-point array, backward), got {_describe(result)}")
        y, backward = result
        self.output = host_copy(y)
        self._require_finite(recording)
        changed = self._changed_in_place(zip(names, before, self.inputs, strict=True))
        if not changed and not np.array_equal(host_copy(first[0]), self.output):
            raise ValueError(
                f"{_name_of(self.f)} gives another output each time it runs, so there are no differences to take; "
                "pass its random generator as an argument, then every run starts from the same state"
            )
        if upstream is None:
            self.upstream = self.rng.normal(size=self.output.shape)
        elif not is_float_array(upstream) or upstream.shape != y.shape:
            raise ValueError(f"upstream must be a floating-point array of the output's shape {y.shape}")
        else:
            self.upstream = host_copy(upstream).astype(np.float64)
        dy = to_device(self.upstream.astype(self.output.dtype), device_of(y).name)

        # Start from gradients that are not zero: a pullback must add to them, not overwrite them.
        junk = {key: self.rng.normal(size=p.value.shape) for key, p in owned}
        for key, parameter in owned:
            parameter.grad = to_device(junk[key].copy(), device_of(parameter.value).name)
        recording.in_forward = False
        with recording:
            returned = backward(dy)

        rows = self._input_rows(names, returned)
        for key, parameter in owned:
            gradient = parameter.grad - to_device(junk[key], device_of(parameter.value).name)
            rows.append(self._row(key, "parameter", parameter.value, gradient, self._parameter_probe(parameter)))
        if intermediates:
            rows += [self._intermediate_row(pair) for pair in recording.pairs() if not self._is_input(names, pair)]
        arrays = [*zip(names, before, self.inputs, strict=True), ("the upstream gradient", self.upstream, dy)]
        return rows + self._changed_in_place(arrays)

    def _input_rows(self, names: list[str], returned: Any) -> list[Row]:
        floats = [i for i, x in enumerate(self.inputs) if is_float_array(x)]
        gradients = list(returned) if isinstance(returned, tuple) else [] if returned is None else [returned]
        if len(gradients) != len(floats):
            problem = f"backward returned {len(gradients)} gradients for {len(floats)} floating-point inputs"
            return [Row("inputs", "input", (), error=math.inf, ok=False, problem=problem)]
        return [
            self._row(names[i], "input", self.inputs[i], gradient, self._input_probe(i))
            for i, gradient in zip(floats, gradients, strict=True)
        ]

    def _intermediate_row(self, pair: Pair) -> Row:
        if pair.gradient is None:
            problem = f"{pair.name} and d{pair.name} are bound different numbers of times, so they cannot be matched"
            return Row(pair.title, "intermediate", pair.value.shape, error=math.inf, ok=False, problem=problem)
        return self._row(pair.title, "intermediate", pair.value, pair.gradient, self._intermediate_probe(pair))

    def _is_input(self, names: list[str], pair: Pair) -> bool:
        """Whether the pair is an argument of f itself, which has a row already."""
        x = dict(zip(names, self.inputs, strict=True)).get(pair.name) if pair.call == 0 else None
        return is_float_array(x) and np.array_equal(host_copy(x), pair.value)

    def _changed_in_place(self, arrays: Iterable[tuple[str, np.ndarray | None, Array]]) -> list[Row]:
        """A row for each (name, earlier copy, array) that f or its pullback changed though it belongs to the caller."""
        rows = []
        for name, old, new in arrays:
            if old is not None and not np.array_equal(old, host_copy(new)):
                problem = "was changed in place"
                rows.append(Row(name, "input", old.shape, error=math.inf, ok=False, problem=problem))
        return rows

    def _require_finite(self, recording: Recording) -> None:
        if np.isfinite(self.output).all():
            return
        if recording.first_nan:
            raise ValueError(f"the output is not finite: NaN is first seen in {recording.first_nan}")
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(self.output))[0])
        raise ValueError(f"the output is not finite at {index}, so there is nothing to differentiate")

    # Three ways to displace an array and see the output.

    def _input_probe(self, i: int) -> Probe:
        def probe(displacement: np.ndarray) -> np.ndarray:
            moved = list(self.inputs)
            moved[i] = _displaced(self.inputs[i], displacement)
            return host_copy(self.call(moved)[0])

        return probe

    def _parameter_probe(self, parameter: Parameter) -> Probe:
        def probe(displacement: np.ndarray) -> np.ndarray:
            kept = parameter.value
            parameter.value = _displaced(kept, displacement)
            try:
                return host_copy(self.call()[0])
            finally:
                parameter.value = kept

        return probe

    def _intermediate_probe(self, pair: Pair) -> Probe:
        def probe(displacement: np.ndarray) -> np.ndarray:
            with Replacement(self.f, pair, lambda value: _displaced(value, displacement)) as replacement:
                y = self.call()[0]
            if not replacement.done:
                raise RuntimeError(f"{pair.title} was not met again: f takes another way each time it runs")
            return host_copy(y)

        return probe

    # Differences.

    def _row(self, name: str, kind: str, value: Array, gradient: Any, probe: Probe) -> Row:
        problem = _misfit(value, gradient)
        if problem:
            return Row(name, kind, tuple(value.shape), error=math.inf, ok=False, problem=problem)
        hand, here = host_copy(gradient), host_copy(value)
        if not np.isfinite(hand).all():
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(hand))[0])
            return Row(name, kind, here.shape, where=index, error=math.inf, ok=False, problem="gradient is not finite")
        if here.size > self.entrywise:
            row = self._along_directions(name, kind, hand, probe)
            if row.ok or not row.kinks:
                return row
        return self._entry_by_entry(name, kind, here, hand, probe)

    def _along_directions(self, name: str, kind: str, hand: np.ndarray, probe: Probe) -> Row:
        worst = Row(name, kind, hand.shape, f"{self.directions} direction" + "s" * (self.directions > 1), error=-1.0)
        for _ in range(self.directions):
            direction = self.rng.normal(size=hand.shape)
            direction /= np.linalg.norm(direction)
            slope = float((hand * direction).sum())
            numerical, ok, kink = self._difference(slope, direction, self.step, probe)
            error = _error(slope, numerical)
            if (not ok, error) > (not worst.ok, worst.error):
                worst = Row(name, kind, hand.shape, worst.checked, None, slope, numerical, error, ok, int(kink))
        return worst

    def _entry_by_entry(self, name: str, kind: str, here: np.ndarray, hand: np.ndarray, probe: Probe) -> Row:
        worst = Row(name, kind, hand.shape, f"{hand.size} entries", error=-1.0)
        everywhere = np.zeros(hand.shape)
        kinks = 0
        for index in np.ndindex(hand.shape):
            unit = np.zeros(hand.shape)
            unit[index] = 1.0
            size = abs(here[index])
            step = self.step * max(1.0, float(size)) if np.isfinite(size) else self.step
            slope = float(hand[index])
            numerical, ok, kink = self._difference(slope, unit, step, probe)
            everywhere[index] = numerical
            kinks += kink
            error = _error(slope, numerical)
            if (not ok, error) > (not worst.ok, worst.error):
                worst = Row(name, kind, hand.shape, worst.checked, index, slope, numerical, error, ok)
        return dataclasses.replace(worst, kinks=kinks, full=Entries(here, hand, everywhere))

    def _difference(self, slope: float, direction: np.ndarray, step: float, probe: Probe) -> tuple[float, bool, bool]:
        """The numerical slope along `direction`, whether `slope` agrees with it, and whether a kink is in the way.

        Where the central difference disagrees, the slopes to the right and to the left decide. On a smooth function
        their gap shrinks with the step; at a kink it stays; at a kink beside the point it vanishes once the step is
        short enough.
        """
        ahead, behind = probe(step * direction), probe(-step * direction)
        numerical = self._slope(ahead - behind, 2.0 * step)
        if self._agrees(slope, numerical):
            return numerical, True, False
        right, left = self._slope(ahead - self.output, step), self._slope(self.output - behind, step)
        shorter = step / 100.0
        ahead, behind = probe(shorter * direction), probe(-shorter * direction)
        near_right = self._slope(ahead - self.output, shorter)
        near_left = self._slope(self.output - behind, shorter)
        gap, near_gap = abs(right - left), abs(near_right - near_left)
        if near_gap > 0.5 * gap and near_gap > 1e-4:  # a kink just here: any slope between the two sides is right
            nearest = min(max(slope, min(near_left, near_right)), max(near_left, near_right))
            return nearest, self._agrees(slope, nearest), True
        nearby = self._slope(ahead - behind, 2.0 * shorter)
        if self._agrees(slope, nearby):  # a kink beside the point; curvature alone would leave gap / 100
            return nearby, True, near_gap < gap / 300.0
        return numerical, False, False

    def _slope(self, change: np.ndarray, distance: float) -> float:
        return float((self.upstream * change).sum() / distance)

    def _agrees(self, hand: float, numerical: float) -> bool:
        return abs(hand - numerical) <= self.atol + self.rtol * abs(numerical)


def _error(hand: float, numerical: float) -> float:
    error = abs(hand - numerical) / (1.0 + abs(numerical))
    return error if math.isfinite(error) else math.inf


def _misfit(value: Array, gradient: Any) -> str:
    """What is wrong with a gradient before its numbers are looked at, or ""."""
    if gradient is None:
        return "there is no gradient (None)"
    if not is_float_array(gradient):
        return f"the gradient is {_describe(gradient)}, not a floating-point array"
    if device_of(gradient) is not device_of(value) and not isinstance(value, np.ndarray):
        return f"the gradient is on {device_of(gradient).name}, its array on {device_of(value).name}"
    if tuple(gradient.shape) != tuple(value.shape):
        return f"the gradient has shape {tuple(gradient.shape)}, its array {tuple(value.shape)}"
    if gradient.dtype != value.dtype:
        return f"the gradient is {gradient.dtype}, its array {value.dtype}"
    return ""


def _displaced(x: Array, displacement: np.ndarray) -> Array:
    return to_device(host_copy(x) + displacement, device_of(x).name)


def _to_float64(x: Array) -> Array:
    return to_device(host_copy(x).astype(np.float64), device_of(x).name)


def _fresh(argument: Any) -> Any:
    return copy.deepcopy(argument) if isinstance(argument, np.random.Generator) else argument


def _input_names(f: Callable[..., Any], inputs: tuple[Any, ...]) -> list[str]:
    """The names of the positional arguments, from the signature of f: x, weight, ..., others[0], others[1]."""
    fallback = [f"input {i}" for i in range(len(inputs))]
    try:
        bound = inspect.signature(f).bind(*inputs)
    except (TypeError, ValueError):
        return fallback
    names: list[str] = []
    for name, argument in bound.arguments.items():
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}[{i}]" for i in range(len(argument))] if several else [name]
    return names if len(names) == len(inputs) else fallback


def _refuse_unusable(arrays: list[tuple[str, Any]], options: dict[str, Any]) -> None:
    for name, option in options.items():
        if is_float_array(option) and option.shape != ():
            raise TypeError(
                f"verify: {name} is a floating-point array given by keyword; give it by position to have it checked"
            )
    for name, x in arrays:
        if is_float_array(x) and np.isnan(host_copy(x)).any():
            index = tuple(int(i) for i in np.argwhere(np.isnan(host_copy(x)))[0])
            raise ValueError(
                f"verify: {name} contains NaN, first at {index}; gradients can be checked only where f is defined"
            )


def _parameters_of(f: Any, given: Parameters | None) -> list[tuple[str, Parameter]]:
    if given is None:
        f = _inside_partial(f)
        owner = f if isinstance(f, Module) else getattr(f, "__self__", None)
        given = owner if isinstance(owner, Module) else ()
    return list(given.parameters() if isinstance(given, Module) else given)


@contextlib.contextmanager
def _in_float64(owned: list[tuple[str, Parameter]]) -> Iterator[None]:
    """Turn parameters to float64 for the time of a check; afterwards values and gradients are as they were."""
    kept = [(parameter, parameter.value, parameter.grad) for _, parameter in owned]
    try:
        for parameter, value, _ in kept:
            parameter.value = _to_float64(value)
        yield
    finally:
        for parameter, value, grad in kept:
            parameter.value, parameter.grad = value, grad


def _inside_partial(f: Any) -> Any:
    while isinstance(f, functools.partial):
        f = f.func
    return f


def _name_of(f: Any) -> str:
    f = _inside_partial(f)
    return getattr(f, "__name__", None) or type(f).__name__


def _describe(x: Any) -> str:
    if isinstance(x, tuple):
        return "(" + ", ".join(_describe(item) for item in x) + ")"
    return f"an array of {x.dtype}" if hasattr(x, "dtype") else type(x).__name__
