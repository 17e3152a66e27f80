"""Record a forward and a backward pass line by line: each executed statement of an op, layer or model, with the numbers
that it bound.

    recording = step(ops.attention, q, k, v)
    for step in recording.steps: print(step.source, [str(bound.value) for bound in step.bound])

The ops know nothing of it; trace/ watches them from outside.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....check.trace.calls import Call
from ....check.trace.inside import upstream_of
from ....check.trace.recorder import Line, LineRecorder, Returned
from ....check.trace.tracing import textbook_of
from ....check.trace.values import host_copy, is_array
from ....check.verify import gradients
from ....check.verify.arguments import check_callable, fresh, name_of, parameters_of
from ....check.verify.gradients import Progress
from ....core.arrays.backend import Array, device_of, to_device
from ....core.arrays.boundary import check_positive
from ....core.arrays.files import write
from ....core.layers import Parameter
from ..page import frame
from . import document, drawing, page, widget
from .expressions import arguments, only_in_comprehensions
from .sources import source_of
from .steps import Step, Steps

Numbers = Mapping[str, np.ndarray]
LIMIT = 4096  # elements: of a larger array, only shape, range, mean and a corner are kept


@dataclass(frozen=True, eq=False, repr=False)
class Recording(Steps):
    """The steps of a recorded forward and backward pass, which can be shown as text, as JSON and as a page."""

    def to_json(self, path: str | Path | None = None) -> str:
        """The whole recording as a JSON document (document.py gives its layout), also written to `path` if given."""
        text = document.to_json(self)
        if path is not None:
            write(path, text + "\n")
        return text

    def to_html(self, path: str | Path | None = None, **options: Any) -> str:
        """The recording as one self-contained page, also written to `path` if given. options: see page.to_html."""
        return page.to_html(self, path, **options)

    def widget(self, **options: Any) -> Any:
        """The page as a widget of a notebook, which keeps its state. options: see widget.widget."""
        return widget.widget(self, **options)

    def __repr__(self) -> str:
        return f"<Recording of {self.name}: {len(self.steps)} steps in {len(self.calls)} calls>"

    def __str__(self) -> str:
        return drawing.plain(self)

    def _repr_html_(self) -> str:
        return frame(self.to_html(), f"{self.name}, step by step", height=640)


def step(
    f: Callable[..., Any],
    *inputs: Any,
    upstream: Array | None = None,
    parameters: Any = None,
    verify: bool = False,
    limit: int = LIMIT,
    seed: int = 0,
    progress: Progress = iter,
    **options: Any,
) -> Recording:
    """Run f(*inputs, **options) and its backward pass under a tracer and return the Recording.

    f: an op, layer or model, or a function that calls some and returns `(output, backward)`. upstream: the gradient of
    the output; by default 1 for a single number, otherwise drawn from a generator with `seed`. verify=True also
    compares every gradient with finite differences (see verify.gradients, which takes `parameters` and `progress`) and
    puts the result in `.report`. limit: of an array with more elements, only a summary is kept.

    Recording changes nothing, even if f raises: not the arrays and random generators among the arguments (f gets
    copies), not the parameters (of f, or those given) and their gradients, and not the trace function of a debugger or
    a coverage tool. Calls in other threads are not recorded. A layer in Recompute runs and is shown twice.
    """
    check_positive("step", limit=limit)
    check_callable("step", f)
    inputs = tuple(map(fresh, inputs))
    options = {name: fresh(option) for name, option in options.items()}
    f = textbook_of(f)
    copies = _apart([*inputs, *options.values()])
    arguments, keywords = copies[: len(inputs)], dict(zip(options, copies[len(inputs) :], strict=True))
    recorder = LineRecorder(f, limit)
    with recorder:
        result = f(*arguments, **keywords)
    if not (isinstance(result, tuple) and len(result) == 2 and is_array(result[0]) and callable(result[1])):
        raise TypeError(f"step: the function must return (output, backward), got {type(result).__name__}")
    y, backward = result
    if upstream is None:
        upstream = upstream_of(y, seed).round(2)
    recorder.in_forward = False
    with parameters_set(parameters_of(f, parameters)), recorder:
        backward(upstream.copy())
    name, report = name_of(f), None
    if verify:
        given: dict[str, Any] = {"upstream": upstream, "parameters": parameters, "progress": progress}
        report = gradients(f, *inputs, name=name, **given, **options)
    again = functools.partial(step, f, *inputs, upstream=upstream, parameters=parameters, limit=limit, **options)
    return Recording(name, tuple(recorder.calls), _steps(recorder), report, again)


@contextlib.contextmanager
def parameters_set(parameters: Sequence[tuple[str, Parameter]], numbers: Numbers | None = None) -> Iterator[None]:
    """Replace every parameter's value and gradient with copies, and restore the originals afterwards.

    numbers: other values, by name.
    """
    kept = [(parameter, parameter.value, parameter.grad) for _, parameter in parameters]
    try:
        for name, parameter in parameters:
            value = to_device((numbers or {}).get(name, parameter.value), parameter.device)
            parameter.value, parameter.grad = value.copy(), parameter.grad.copy()
        yield
    finally:
        for parameter, value, gradient in kept:
            parameter.value, parameter.grad = value, gradient


def _apart(arguments: list[Any]) -> list[Any]:
    """Copies of arrays and generators, which f may change; an array that is given twice stays one array."""
    copies: dict[int, Any] = {}
    for x in arguments:
        is_whole = is_array(x) and x.shape != ()
        copies[id(x)] = to_device(host_copy(x), device_of(x).name) if is_whole else fresh(x)
    return [copies[id(x)] for x in arguments]


def _steps(recorder: LineRecorder) -> tuple[Step, ...]:
    """One step for each executed statement, with everything that its lines bound. Also sets the source of the calls."""
    files = {file: source_of(file) for file in {call.file for call in recorder.calls}}
    for call in recorder.calls:
        call.source = files[call.file].function(call.first_line)
    current: dict[int, Line] = {}  # by call: the statement that runs, as one line that binds all that its lines bind
    statements: dict[int, Line] = {}  # by id, in the order in which their last lines ran
    for line in recorder.lines:
        first = files[line.call.file].first_line(line.line)
        running = current.get(line.call.index)
        if running is None or running.line != first:
            running = current[line.call.index] = Line(line.call, first)
        statements.pop(id(running), None)
        statements[id(running)] = running
        running.bound += line.bound
        running.other |= line.other
    steps = []
    for index, statement in enumerate(statements.values()):
        call, source = statement.call, files[statement.call.file].statement(statement.line)
        inner = only_in_comprehensions(source) if statement.bound else ()
        hidden = [binding for binding in statement.bound if binding.name in inner]
        for binding in hidden:
            call.bound[binding.name] = [group for group in call.bound[binding.name] if binding not in group]
        bound = tuple(binding for binding in statement.bound if binding not in hidden)
        quiet = not bound or (call.results is None and not call.backward) or _passes_on(call)
        steps.append(Step(index, call.index, statement.line, source, bound, quiet, statement.other))
    return tuple(steps)


def _passes_on(call: Call) -> bool:
    """Whether it is a helper that returns only what it was given, as the pullback of what was left out."""
    given = {call.bound[name][0][0].serial for name in arguments(call.code) if name in call.bound}
    results = call.results if isinstance(call.results, tuple) else (call.results,)
    is_helper = call.name.rpartition(".")[2].startswith("_") and not call.backward
    return is_helper and all(isinstance(result, Returned) and result.serial in given for result in results)
