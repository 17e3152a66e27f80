"""Compare hand-derived gradients with central differences.

For a scalar L = sum(upstream * f(x)) with a random upstream gradient, the pullback gives dL/dx at once, and central
differences (differences.py) give it entry by entry. A large array is checked along a few random directions u instead:
<dL/dx, u> must equal the difference along u. A wrong gradient could pass only if its error were orthogonal to all of
them. The upstream gradient is random because an array of ones would hide most mistakes: the outputs of softmax and of
LayerNorm have constant sums, so their true gradient is then zero, and a backward that returns zeros would pass.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, device_of, to_device, to_numpy
from ...core.arrays.boundary import check_flags, check_integers, check_number, check_positive
from ...core.layers import Module, Parameter
from ..trace.calls import Pair
from ..trace.inside import layer_inside, upstream_of
from ..trace.recorder import Recorder
from ..trace.tracing import Replacement, textbook_of
from ..trace.values import host_copy, is_array, is_float_array, same_numbers
from . import anew, blame, culprits, foreign
from . import arguments as given
from .arguments import displaced, leaves_of, parameter_probe
from .contract import CHANGED, Contract, marked
from .differences import Differences, Probe
from .one_thread import one_blas_thread
from .report import Report, Row

Progress = Callable[[list[Any]], Iterable[Any]]  # iterates over a list and shows the progress, as tqdm does


@one_blas_thread
def gradients(
    f: Callable[..., Any],
    *inputs: Any,
    parameters: given.Parameters | None = None,
    upstream: Array | None = None,
    seed: int = 0,
    atol: float | None = None,
    rtol: float = 1e-6,
    step: float = 1e-5,
    entrywise: int = 64,
    directions: int = 3,
    entries_at_kinks: bool = True,
    intermediates: bool = True,
    name: str | None = None,
    progress: Progress = iter,
    **options: Any,
) -> Report:
    """Check every gradient of `f(*inputs, **options) -> (output, backward)` in float64; returns a Report.

    The check covers each floating-point input, each parameter (of `parameters` if given, else of f if it is a module or
    a module's method) and each intermediate: every local variable `name` of a running op, layer or model that has a
    `dname` in its pullback. An input may be a dict or list of arrays; its gradient is then a dict or list of the same
    form. A gradient must have the shape and dtype of its array and satisfy |hand - numerical| <= atol + rtol
    |numerical| everywhere; the absolute part is needed because some true gradients are exactly zero (that of the key
    bias in attention). By default atol is 1e-8; gradients below 1e-6 must be right to 1%. How f rounds is measured;
    a gradient that its rounding hides is neither right nor wrong, and the report is not `ok`.

    The pullback must be linear in the upstream gradient, add to the gradients of parameters, change no array of the
    caller, not depend on what f did before or does later, and return arrays that no later call writes to. It must give
    the same result when called again, and for arrays with gaps in memory; in float32, if f runs there, to 0.1%.

    Arrays of up to `entrywise` elements are checked entry by entry, larger ones along `directions` random directions.
    Generators among the arguments start from the same state in each evaluation, so dropout stays frozen. At a kink of
    f, such as ReLU at 0, any slope between those of the two sides is accepted, and the row counts it. Along directions
    that move several entries, also of several arrays, the gradient must then be possible too. entries_at_kinks: whether
    a large array is then checked entry by entry, one of more than 4096 entries at 1024 of them. progress: iterates over
    the list of checks of parameters and intermediates. Raises ValueError for NaN in an input, parameter or output, or
    if f is random by a generator that is not an argument; TypeError if f does not return (array, backward), or is a
    module that does not list a parameter it reads.

    If all is right, arrays that are constant or one-hot are drawn anew, since they hide terms, and the gradients are
    compared once more (anew.py). The first line of the report names what was not checked, such as parameters that f
    reads and does not own; `report.assert_ok(everything=True)` fails on it. Second derivatives are not checked.

    All this checks the textbook form. A fast twin (run/fast/twins.py) then runs as well and must give the same results.
    """
    given.check_callable("verify.gradients", f)
    check_flags("verify.gradients", intermediates=intermediates)
    check_integers("verify.gradients", seed=seed)
    settings: dict[str, Any] = {"atol": atol, "rtol": rtol, "step": step, "entrywise": entrywise}
    settings |= {"directions": directions, "entries_at_kinks": entries_at_kinks}
    _check_settings(**settings)
    wide = (given.with_leaves(x, given.to_float64) for x in foreign.arrays_for(f, inputs))
    arguments = list(zip(given.input_names(f, inputs), wide, strict=True))
    foreign.trait(f, "at_work", lambda *_: None)([x for _, x in arguments], options)
    owned = given.parameters_of(f, parameters)
    leaves = [leaf for name, x in arguments for leaf in leaves_of(name, x)]
    given.refuse_unusable([*leaves, *((key, p.value) for key, p in owned)], options)
    settings = foreign.as_close_as_it_computes(f, settings)
    held = list(foreign.trait(f, "held", {}).items())
    with given.parameters_as(given.to_float64, *(parameter for _, parameter in [*owned, *held])):
        check = _Check(textbook_of(f), arguments, options, owned, seed)
        rows = check.run(upstream, settings, intermediates, progress)
        rows = check.as_given(check.in_other_forms(rows))
        note = foreign.how_close(f, check.differences.precision)
        left_out = given.unlisted(f, [*owned, *held], check.read) if parameters is None else []
        if check.f is not f:
            rows = check.with_twin(f, rows)
        rows = blame.with_remedies(check, blame.blamed(check, rows))
        second = anew.SecondLook([])
        if all(row.ok for row in rows):
            look = functools.partial(check.rows_elsewhere, upstream, settings, intermediates)
            second = anew.second_look(look, [*arguments, *options.items()], [*owned, *held], seed)
    stopped = "" if all(row.ok for row in second.rows or rows) else foreign.trait(f, "stopped", "")
    note = " ".join(filter(None, [note, foreign.trait(f, "found", ""), second.note, stopped]))
    note = "\n".join(filter(None, [note, culprits.told(check, rows)]))
    left_out += second.left_out + list(foreign.trait(f, "left_out", {}).items())
    moved = tuple(x for _, x in second.arguments[: len(arguments)])
    changed = dict(second.arguments[len(arguments) :])
    return Report(name or given.name_of(f), tuple(second.rows or rows), note, tuple(left_out), moved, changed)


def _check_settings(
    atol: float | None, rtol: float, step: float, entrywise: int, directions: int, entries_at_kinks: bool
) -> None:
    for setting, number in {"atol": atol or 0.0, "rtol": rtol, "step": step}.items():
        check_number("verify.gradients", setting, number)
    check_flags("verify.gradients", entries_at_kinks=entries_at_kinks)
    check_integers("verify.gradients", directions=directions, entrywise=entrywise)
    check_positive("verify.gradients", step=step, directions=directions)
    if min(atol or 0.0, rtol) < 0.0:
        raise ValueError(f"verify.gradients: atol and rtol must be at least 0, got {atol} and {rtol}")


class _Check(Contract):
    """One check: the rows of all gradients, and what the contract says about them."""

    def run(
        self, upstream: Array | None, settings: dict[str, Any], intermediates: bool, progress: Progress
    ) -> list[Row]:
        belongings = self._copies(self._belongings())
        first, first_backward = self._call_elsewhere()  # if f caches anything, the cache now holds other numbers
        self._pull_back(first_backward, self._drawn(first))
        with Recorder(self.f) as recording:
            y, backward = self.call()
        output = host_copy(y)
        self._note_what_is_written(belongings)
        _require_finite(output, recording)
        (again, _), self.read = given.reading(self.call)
        if not self._changed(belongings, self._belongings()) and not np.array_equal(host_copy(again), output):
            raise ValueError(foreign.why_unsteady(given.name_of(self.f), lambda: host_copy(self.call()[0])))
        self.differences = Differences(output, _upstream(upstream, output, self.dy_rng), self.dy_rng, **settings)
        dy = to_device(self.differences.upstream.astype(output.dtype), device_of(y).name)
        belongings += self._copies([("the output", y), ("the upstream gradient", dy)])
        self.upstream, self.size = dy, min(1.0, float(abs(self.differences.upstream).max(initial=0.0)) or 1.0)

        later, later_backward = self._call_elsewhere()
        recording.in_forward = False
        with recording:
            returned, added = self._pull_back(backward, dy)
        copies = [x.copy() if is_float_array(x) else x for x in returned]
        self.results = self._named(y, copies, added)
        gradients = [host_copy(x) for _, x in self.results[1:] if is_float_array(x)]
        self.differences.largest = max((float(abs(x).max(initial=0.0)) for x in gradients), default=0.0)
        unlike = self._unlike(self._named(y, *self._pull_back(backward, dy)))
        now = [*self._belongings(), ("the output", y), ("the upstream gradient", dy)]
        changed = [*self.written, *self._changed(belongings, now)]
        self._note_what_is_written(belongings)
        multiples = self._multiples(y, backward)
        self._pull_back(later_backward, self._drawn(later))
        overwritten = [
            name
            for (name, _), x, old in zip(self.results[1:], returned, copies, strict=False)
            if is_float_array(x) and not same_numbers(host_copy(old), x)
        ]

        if changed:  # whatever else is unlike follows from it
            unlike, multiples, overwritten = [], [], []
            self.upstream = to_device(self.differences.upstream.astype(output.dtype), device_of(y).name)

        self.probes: dict[str, tuple[np.ndarray, Probe]] = {}  # of each input and parameter whose gradient fits it
        rows = self._input_rows(copies)
        self.recording = recording
        self.pairs = pairs = [pair for pair in recording.pairs() if not self._is_input(pair)] if intermediates else []
        checks = [functools.partial(self._parameter_row, key, p, added[key]) for key, p in self.owned]
        checks += [functools.partial(self._intermediate_row, pair) for pair in pairs]
        rows += [check() for check in progress(checks)]
        rows += self.differences.together(self._joint_probe)
        both = [row.name for row in rows if row.name in changed and row.is_wrong]
        rows = marked(rows, self._not_linear(multiples), "backward is not linear in its argument, but a derivative is")
        why = foreign.why_unlike(lambda: self._named(y, *self._pull_back(backward, dy))) if unlike else ""
        rows = marked(rows, unlike, why, first=True)
        rows = marked(rows, overwritten, "a later backward wrote into this gradient; return a new array", first=True)
        rows = marked(rows, changed, CHANGED, first=True)
        return marked(rows, both, f"{CHANGED}, and its gradient is wrong", first=True)

    def rows_elsewhere(
        self,
        upstream: Array | None,
        settings: dict[str, Any],
        intermediates: bool,
        named: list[given.Named],
        finely: bool,
    ) -> list[Row]:
        """The rows of f with other arguments and options: as finely as here, or along a few directions."""
        arguments, options = named[: len(self.arguments)], dict(named[len(self.arguments) :])
        again = _Check(self.textbook, arguments, options, self.owned, self.seed)
        settings = settings if finely else settings | anew.COARSE
        rows = blame.blamed(again, again.run(upstream, settings, intermediates and finely, iter))
        return blame.with_remedies(again, rows) if finely else rows

    def _input_rows(self, returned: list[Any]) -> list[Row]:
        if len(self.raw) != len(self.wanted):
            problem = f"backward returned {len(self.raw)} gradients for {len(self.wanted)} floating-point inputs"
            integers = [name for name, x in self.leaves if is_array(x) and x.dtype.kind in "iu"]
            numbers = [name for name, x in self.leaves if isinstance(x, float)]
            if [type(x) for x in self.raw] == [list]:
                problem = "backward returned a list; return its gradients as a tuple: return dx, dw"
            elif len(self.raw) < len(self.wanted):
                problem += "; return one for each, in order (bind inputs without a gradient with functools.partial)"
            elif integers:
                problem += f"; {integers[0]} holds integers, which have no gradient: convert it with astype(float)"
            elif numbers:
                problem += f"; make {numbers[0]} an array to have its gradient checked: numpy.array({numbers[0]})"
            return [Row("inputs", "input", ()).wrong(problem)]
        places = [i for i, (_, x) in enumerate(self.leaves) if is_float_array(x)]
        return [
            self._row(name, "input", self.leaves[i][1], gradient, self._input_probe(i))
            for name, i, gradient in zip(self.names, places, returned, strict=True)
        ]

    def _parameter_row(self, name: str, parameter: Parameter, gradient: Array) -> Row:
        probe = given.parameter_probe(parameter, self.call)
        return self._row(name, "parameter", parameter.value, gradient, probe)

    def _intermediate_row(self, pair: Pair) -> Row:
        if pair.gradient is None:
            return Row(pair.title, "intermediate", pair.value.shape, problem=f"not checked: {pair.why_not}")
        return self._row(pair.title, "intermediate", pair.value, pair.gradient, self._intermediate_probe(pair))

    def _is_input(self, pair: Pair) -> bool:
        """Whether the pair's value is an argument of f itself, which already has a row."""
        x = dict(self.leaves).get(pair.name) if pair.call == 0 else None
        return is_float_array(x) and np.array_equal(host_copy(x), pair.value)

    def _row(self, name: str, kind: str, value: Array, gradient: Any, probe: Probe) -> Row:
        if problem := given.misfit(value, gradient):
            return Row(name, kind, tuple(value.shape)).wrong(problem)
        if kind != "intermediate":
            self.probes[name] = host_copy(gradient), probe
        return self.differences.row(name, kind, host_copy(value), host_copy(gradient), probe)

    # Each probe displaces an array and returns the output.

    def _input_probe(self, i: int) -> Probe:
        def probe(displacement: np.ndarray) -> np.ndarray:
            moved = [x for _, x in self.leaves]
            moved[i] = displaced(moved[i], displacement)
            return host_copy(self.call(moved)[0])

        return probe

    def _joint_probe(self, displacements: list[np.ndarray]) -> np.ndarray:
        """The output where each input and parameter that is at a kink is displaced."""
        at_kinks = zip(self.differences.at_kinks, displacements, strict=True)
        moves = {(kinks.kind, kinks.name): displacement for kinks, displacement in at_kinks}

        def moved(kind: str, name: str, x: Any) -> Any:
            return displaced(x, moves[kind, name]) if (kind, name) in moves else x

        with contextlib.ExitStack() as stack:
            for name, parameter in self.owned:
                stack.enter_context(given.parameters_as(functools.partial(moved, "parameter", name), parameter))
            return host_copy(self.call([moved("input", name, x) for name, x in self.leaves])[0])

    def _intermediate_probe(self, pair: Pair) -> Probe:
        def probe(displacement: np.ndarray) -> np.ndarray:
            with Replacement(self.f, pair, lambda value: displaced(value, displacement)) as replacement:
                y = self.call()[0]
            if not replacement.done:
                raise RuntimeError(f"{pair.title} was not bound again: f takes a different path each time it runs")
            return host_copy(y)

        return probe


def _upstream(wanted: Array | None, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if wanted is None:
        return rng.normal(size=output.shape)
    if not is_float_array(wanted) or wanted.shape != output.shape:
        came = getattr(wanted, "shape", wanted)
        raise ValueError(f"upstream must be a floating-point array of the output's shape {output.shape}, got {came}")
    return host_copy(wanted).astype(np.float64)


def _require_finite(output: np.ndarray, recording: Recorder) -> None:
    if np.isfinite(output).all():
        return
    if recording.first_nan:
        raise ValueError(f"the output is not finite: NaN is first seen in {recording.first_nan}")
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(output))[0])
    raise ValueError(f"the output is not finite at {index}, so there is nothing to differentiate")


@one_blas_thread
def model_gradients(
    model: Module,
    run: Callable[[], tuple[Array, Pullback]],
    layers: list[Any],
    i: int,
    place: int,
    seed: int = 0,
    directions: int = 2,
    progress: Progress = iter,
) -> Report:
    """The check of every parameter of `model`, which `run` runs, and of everything in layer i of `layers`.

    For a model that is too large to check as a whole. Each parameter is displaced along random directions while the
    model runs from its input to its loss. The intermediates are those of one layer, with the inputs and the upstream
    gradient that it has in the model. Nothing in the other layers is recorded, so a check needs the memory of the
    weights, of their gradients and of a few copies of the largest one.

    The model must be in float64. Afterwards its gradients are those of one run. place: the number of the layer in the
    names of its rows; for the other settings see `gradients`. Raises ValueError for a model in another dtype, or
    whose output is not finite.
    """
    parameters = list(model.parameters())
    narrow = [key for key, parameter in parameters if str(parameter.value.dtype) != "float64"]
    if narrow:
        raise ValueError(f'model_gradients: {narrow[0]} must be float64; call model.to(dtype="float64") first')
    model.zero_grad()
    y, backward = run()
    upstream = upstream_of(y, seed)
    output = host_copy(y)
    if not np.isfinite(output).all():
        raise ValueError("model_gradients: the output is not finite, so there is nothing to differentiate")
    backward(upstream)
    rng = np.random.default_rng((seed, 2))
    how: dict[str, Any] = {"entrywise": 0, "directions": directions, "entries_at_kinks": False}
    differences = Differences(output, host_copy(upstream), rng, atol=None, rtol=1e-6, step=1e-5, **how)

    def row(key: str) -> Row:
        parameter = dict(parameters)[key]
        value, gradient = to_numpy(parameter.value), to_numpy(parameter.grad)
        return differences.row(key, "parameter", value, gradient, parameter_probe(parameter, run))

    rows = [row(key) for key in progress([key for key, _ in parameters])]
    part = layer_inside(model, layers, i, run, seed)
    how |= {"upstream": part.upstream, "seed": seed, "progress": progress}
    inside = gradients(part.module, *part.inputs, **how, **part.options)
    in_layer = [dataclasses.replace(each, name=f"layer {place}: {each.name}") for each in inside.rows]
    return Report(type(model).__name__, (*rows, *in_layer))
