"""Hold hand-derived gradients against central differences.

For a scalar L = sum(upstream * f(x)) with a random upstream gradient, the pullback gives dL/dx at once, and central
differences (differences.py) give it entry by entry. A large array is checked along a few random directions u instead,
where <dL/dx, u> must equal the difference along u: a wrong gradient would have to be wrong at right angles to all of
them. The upstream gradient is random and not symmetric because ones would hide most mistakes: the outputs of softmax
and of LayerNorm have constant sums, so their true gradient is then zero and a backward that returns zeros would pass.
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

from ..arrays.backend import Array, device_of, to_device
from ..arrays.boundary import check_integers, check_number, check_positive
from ..layers import Module, Parameter
from ..trace.calls import Pair
from ..trace.recorder import Recorder
from ..trace.tracing import Replacement, textbook_of
from ..trace.values import host_copy, is_array, is_float_array
from .differences import Differences, Probe
from .report import Report, Row

Parameters = Module | Iterable[tuple[str, Parameter]]
Named = tuple[str, Any]
Progress = Callable[[list[Any]], Iterable[Any]]  # goes through a list and shows how far it has come, as tqdm does


def gradients(
    f: Callable[..., Any],
    *inputs: Any,
    parameters: Parameters | None = None,
    upstream: Array | None = None,
    seed: int = 0,
    atol: float = 1e-8,
    rtol: float = 1e-6,
    step: float = 1e-5,
    entrywise: int = 64,
    directions: int = 3,
    intermediates: bool = True,
    name: str | None = None,
    progress: Progress = iter,
    **options: Any,
) -> Report:
    """Check every gradient of `f(*inputs, **options) -> (output, backward)` in float64; returns a Report.

    Checked are each floating-point input, each parameter (of f itself if it is a module or a module's method, else of
    `parameters`) and each intermediate: every local variable `name` of a running op, layer or model that has a `dname`
    in its pullback. A gradient must have the shape and dtype of its array and satisfy |hand - numerical| <= atol + rtol
    |numerical| everywhere; the absolute part is needed because some true gradients are exactly zero (that of the key
    bias in attention). The pullback must add to the gradients of parameters, change nothing that is not its own, not
    depend on what f does later, and give the same when it is called again.

    Arrays of up to `entrywise` elements are checked entry by entry, larger ones along `directions` random directions.
    Generators among the arguments start from the same state in each evaluation, so dropout stays frozen. Where f has a
    kink, as ReLU at 0, any slope between those of both sides is accepted and the row counts it. Raises ValueError for
    NaN in an input, a parameter or the output and where f is random by a generator that is no argument, and TypeError
    where it does not return (array, backward).

    All this is done on the textbook form. A fast twin (see fast/twins.py) then runs as well, and must give the same
    output and the same gradients. progress: goes through the list of checks of parameters and intermediates.
    """
    for setting, number in {"atol": atol, "rtol": rtol, "step": step}.items():
        check_number("verify.gradients", setting, number)
    check_integers("verify.gradients", directions=directions, entrywise=entrywise)
    check_positive("verify.gradients", step=step, directions=directions)
    if min(atol, rtol) < 0.0:
        raise ValueError(f"verify.gradients: atol and rtol must be at least 0, got {atol} and {rtol}")
    names = _input_names(f, inputs)
    arguments = [_to_float64(x) if is_float_array(x) else x for x in inputs]
    owned = parameters_of(f, parameters)
    _refuse_unusable([*zip(names, arguments, strict=True), *((key, p.value) for key, p in owned)], options)
    settings = {"atol": atol, "rtol": rtol, "step": step, "entrywise": entrywise, "directions": directions}
    with _in_float64(owned):
        check = _Check(textbook_of(f), list(zip(names, arguments, strict=True)), options, owned)
        rng = np.random.default_rng((seed, 1))  # not (seed): inputs drawn with that must differ from upstream
        rows = check.run(upstream, rng, settings, intermediates, progress)
        if check.f is not f:
            rows = check.with_twin(f, rows)
    return Report(name or _name_of(f), tuple(rows))


class _Check:
    """One check: the function, its named inputs, its options and the parameters that it owns."""

    def __init__(
        self, f: Callable[..., Any], inputs: list[Named], options: dict[str, Any], owned: list[tuple[str, Parameter]]
    ) -> None:
        self.f, self.options, self.owned = f, options, owned
        self.names = [name for name, _ in inputs]
        self.inputs = [x for _, x in inputs]

    def call(self, inputs: list[Any] | None = None) -> Any:
        """f on fresh copies of the generators, so that every evaluation draws the same random numbers."""
        frozen = [_fresh(x) for x in (self.inputs if inputs is None else inputs)]
        return self.f(*frozen, **{key: _fresh(value) for key, value in self.options.items()})

    def run(
        self,
        upstream: Array | None,
        rng: np.random.Generator,
        settings: dict[str, Any],
        intermediates: bool,
        progress: Progress,
    ) -> list[Row]:
        belongings = self._copies(self._belongings())
        first = self.call()  # fills what is computed once and kept (a table of positions); later runs are all alike
        with Recorder(self.f) as recording:
            result = self.call()
        if not (isinstance(result, tuple) and len(result) == 2 and is_float_array(result[0]) and callable(result[1])):
            raise TypeError(f"{_name_of(self.f)} must return (floating-point array, backward), got {_describe(result)}")
        y, backward = result
        output = host_copy(y)
        _require_finite(output, recording)
        if not self._changed(belongings, self._belongings()) and not np.array_equal(host_copy(first[0]), output):
            raise ValueError(
                f"{_name_of(self.f)} gives another output each time it runs, so there are no differences to take; "
                "pass its random generator as an argument, then every run starts from the same state"
            )
        self.differences = Differences(output, _upstream(upstream, output, rng), rng, **settings)
        dy = to_device(self.differences.upstream.astype(output.dtype), device_of(y).name)
        belongings += self._copies([("the output", y), ("the upstream gradient", dy)])
        self.upstream = dy

        # Start from gradients that are not zero: a pullback must add to them, not overwrite them.
        for _, parameter in self.owned:
            parameter.grad = to_device(rng.normal(size=parameter.value.shape), device_of(parameter.value).name)
        self.call([_displaced(x, 0.01 * rng.normal(size=x.shape)) if is_float_array(x) else x for x in self.inputs])
        recording.in_forward = False
        with recording:
            returned, added = self._pull_back(backward, dy)
        returned_again, added_again = self._pull_back(backward, dy)
        names = [name for name, x in zip(self.names, self.inputs, strict=True) if is_float_array(x)]
        changed = self._changed(belongings, [*self._belongings(), ("the output", y), ("the upstream gradient", dy)])

        rows = self._input_rows(names, returned)
        pairs = [pair for pair in recording.pairs() if not self._is_input(pair)] if intermediates else []
        checks = [functools.partial(self._parameter_row, key, p, added[key]) for key, p in self.owned]
        checks += [functools.partial(self._intermediate_row, pair) for pair in pairs]
        rows += [check() for check in progress(checks)]
        self.results = [("the output", y), *zip(names, returned, strict=False), *added.items()]
        again = [("the output", y), *zip(names, returned_again, strict=False), *added_again.items()]
        wrong = dict.fromkeys(self._unlike(again), "backward gives another gradient when it is called again")
        return _marked(rows, wrong | {name: "was changed in place" for name in changed})

    def with_twin(self, twin: Callable[..., Any], rows: list[Row]) -> list[Row]:
        """The rows of `run`, with a problem written into those for which the fast twin of f gives something else."""
        self.f = twin
        y, backward = self.call()
        names = [name for name, x in zip(self.names, self.inputs, strict=True) if is_float_array(x)]
        returned, added = self._pull_back(backward, self.upstream)
        by_twin = [("the output", y), *zip(names, returned, strict=False), *added.items()]
        wrong = dict.fromkeys(self._unlike(by_twin), "the fast twin gives something else than the textbook form")
        return _marked(rows, {name: problem for name, problem in wrong.items() if name not in _wrong_names(rows)})

    def _unlike(self, others: list[Named]) -> list[str]:
        """The names of those results of `run` that another run gave otherwise."""
        return [
            name
            for (name, one), (_, other) in zip(self.results, others, strict=False)
            if is_float_array(one) and not (is_float_array(other) and _alike(one, other))
        ]

    def _pull_back(self, backward: Callable[..., Any], dy: Array) -> tuple[list[Any], dict[str, Array]]:
        """Copies of what backward returns for the inputs, and of what it adds to the gradient of each parameter."""
        before = {key: parameter.grad.copy() for key, parameter in self.owned}
        returned = backward(dy)
        listed = list(returned) if isinstance(returned, tuple) else [] if returned is None else [returned]
        added = {key: parameter.grad - before[key] for key, parameter in self.owned}
        return [x.copy() if is_float_array(x) else x for x in listed], added

    def _belongings(self) -> list[Named]:
        """Every array that belongs to the caller: neither f nor its pullback may change it."""
        values = [(key, parameter.value) for key, parameter in self.owned]
        named = [*zip(self.names, self.inputs, strict=True), *self.options.items(), *values]
        return [(name, x) for name, x in named if is_array(x)]

    def _copies(self, arrays: list[Named]) -> list[Named]:
        return [(name, host_copy(x)) for name, x in arrays]

    def _changed(self, before: list[Named], now: list[Named]) -> list[str]:
        same = functools.partial(np.array_equal, equal_nan=False)
        return [name for (name, old), (_, new) in zip(before, now, strict=False) if not same(old, host_copy(new))]

    def _input_rows(self, names: list[str], returned: list[Any]) -> list[Row]:
        if len(returned) != len(names):
            problem = f"backward returned {len(returned)} gradients for {len(names)} floating-point inputs"
            integers = [n for n, x in zip(self.names, self.inputs, strict=True) if is_array(x) and x.dtype.kind in "iu"]
            if len(returned) < len(names):
                problem += "; return one for each, in their order (functools.partial can bind one that has none)"
            elif integers:
                problem += f"; {integers[0]} holds integers, which have none: convert it with astype(float)"
            return [Row("inputs", "input", (), error=math.inf, ok=False, problem=problem)]
        places = [i for i, x in enumerate(self.inputs) if is_float_array(x)]
        return [
            self._row(name, "input", self.inputs[i], gradient, self._input_probe(i))
            for name, i, gradient in zip(names, places, returned, strict=True)
        ]

    def _parameter_row(self, name: str, parameter: Parameter, gradient: Array) -> Row:
        return self._row(name, "parameter", parameter.value, gradient, self._parameter_probe(parameter))

    def _intermediate_row(self, pair: Pair) -> Row:
        if pair.gradient is None:
            return Row(pair.title, "intermediate", pair.value.shape, problem=f"not checked: {pair.why_not}")
        return self._row(pair.title, "intermediate", pair.value, pair.gradient, self._intermediate_probe(pair))

    def _is_input(self, pair: Pair) -> bool:
        """Whether the pair is an argument of f itself, which has a row already."""
        x = dict(zip(self.names, self.inputs, strict=True)).get(pair.name) if pair.call == 0 else None
        return is_float_array(x) and np.array_equal(host_copy(x), pair.value)

    def _row(self, name: str, kind: str, value: Array, gradient: Any, probe: Probe) -> Row:
        problem = _misfit(value, gradient)
        if problem:
            return Row(name, kind, tuple(value.shape), error=math.inf, ok=False, problem=problem)
        return self.differences.row(name, kind, host_copy(value), host_copy(gradient), probe)

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


def _upstream(given: Array | None, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if given is None:
        return rng.normal(size=output.shape)
    if not is_float_array(given) or given.shape != output.shape:
        raise ValueError(f"upstream must be a floating-point array of the output's shape {output.shape}")
    return host_copy(given).astype(np.float64)


def _require_finite(output: np.ndarray, recording: Recorder) -> None:
    if np.isfinite(output).all():
        return
    if recording.first_nan:
        raise ValueError(f"the output is not finite: NaN is first seen in {recording.first_nan}")
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(output))[0])
    raise ValueError(f"the output is not finite at {index}, so there is nothing to differentiate")


def _alike(one: Array, other: Array) -> bool:
    """Whether two runs of one pullback gave the same, but for the order in which a GPU adds."""
    return one.shape == other.shape and np.allclose(
        host_copy(one), host_copy(other), rtol=1e-9, atol=1e-9, equal_nan=True
    )


def _marked(rows: list[Row], wrong: dict[str, str]) -> list[Row]:
    """The rows with a problem written into those named in `wrong`, and a further row for each name that has none."""
    marked = [
        dataclasses.replace(row, ok=False, error=math.inf, problem=wrong[row.name]) if row.name in wrong else row
        for row in rows
    ]
    missing = [name for name in wrong if name not in {row.name for row in rows}]
    return marked + [Row(name, "input", (), error=math.inf, ok=False, problem=wrong[name]) for name in missing]


def _wrong_names(rows: list[Row]) -> set[str]:
    return {row.name for row in rows if not row.ok}


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
        bound = inspect.signature(f).bind_partial(*inputs)
    except (TypeError, ValueError):
        return fallback
    names: list[str] = []
    for name, argument in bound.arguments.items():
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}[{i}]" for i in range(len(argument))] if several else [name]
    return names if len(names) == len(inputs) else fallback


def _refuse_unusable(arrays: list[tuple[str, Any]], options: dict[str, Any]) -> None:
    for name, x in arrays:
        if isinstance(x, list | tuple):
            raise TypeError(
                f"verify: {name} is a {type(x).__name__}; make it an array: numpy.array({name}, dtype=float)"
            )
    for name, option in options.items():
        if is_float_array(option) and option.shape != ():
            raise TypeError(
                f"verify: {name} is a floating-point array given by keyword; give it by position to have it checked, "
                "or bind it by functools.partial if it is not to be differentiated"
            )
    for name, x in arrays:
        if is_float_array(x) and np.isnan(host_copy(x)).any():
            index = tuple(int(i) for i in np.argwhere(np.isnan(host_copy(x)))[0])
            raise ValueError(
                f"verify: {name} contains NaN, first at {index}; gradients can be checked only where f is defined"
            )


def parameters_of(f: Any, given: Parameters | None) -> list[tuple[str, Parameter]]:
    """The parameters that are given, or else those of f, where that is a module or a module's method."""
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
