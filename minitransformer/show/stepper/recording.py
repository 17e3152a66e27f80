"""Record a forward and a backward pass line by line: what each executed statement of an op, layer or model bound, with
its numbers.

    recording = step(ops.attention, q, k, v)
    for step in recording.steps: print(step.source, [str(bound.value) for bound in step.bound])

The ops know nothing of it; how they are watched is told in recorder.py.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import html
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.backend import Array, device_of, to_device
from ...arrays.boundary import check_positive
from ...arrays.files import write
from ...trace.pairs import Pairs, pairs_of
from ...trace.recorder import Binding, OpenCall, Recorder, Value
from ...trace.tracing import is_array, textbook_of
from ...verify import Report, Row, gradients
from ...verify.gradients import parameters_of as parameters_of
from .sources import SourceFile, only_in_comprehensions

LIMIT = 4096  # elements: of a larger array shape, range and mean are kept


@dataclass(frozen=True, eq=False)
class Bound:
    """One name that a line bound. `title` says whose name it is: "attention.scores", "linear#2.product"."""

    name: str
    title: str
    value: Value
    serial: int = field(repr=False)  # which of all bindings, in the order they happened
    origin: int | None = field(default=None, repr=False)  # the binding, elsewhere, of this very array
    in_place: bool = False  # the name held this array before; its numbers were changed


@dataclass(frozen=True)
class Call:
    """One call of an op, layer or model, of a helper that they call, or of a pullback.

    label: "attention", "Linear", ...; the k-th of several is "linear#k", as in verify's reports. A pullback has the
    label of the call that made it. What runs forward during the backward pass, as a checkpointed layer does for the
    second time, is "linear in backward".
    """

    index: int
    label: str
    backward: bool  # whether it is a pullback
    depth: int
    parent: int | None
    forward_call: int  # of a pullback the call that made it, else the index itself
    file: str
    first_line: int
    source: tuple[str, ...]
    code: types.CodeType = field(repr=False, compare=False)
    globals: dict[str, Any] = field(repr=False, compare=False)
    results: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Step:
    """One executed statement and what it bound. It stands after the steps of the calls that ran inside it.

    quiet: nothing to see: it bound no number, or belongs to a check of the arguments.
    """

    index: int
    call: int
    line: int
    source: str
    bound: tuple[Bound, ...]
    quiet: bool
    other: dict[str, Any] = field(repr=False, compare=False)  # names bound to something that is no number: None, ...


class Summarised:
    """Stands for an array of which only a summary was recorded: its shape is known, its numbers are not."""

    def __init__(self, value: Value) -> None:
        self.shape, self.ndim, self.dtype = value.shape, len(value.shape), np.dtype(value.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """A recorded forward and backward pass: `.steps` in the order they ended, `.calls` they stand in, `.report` if
    verified. `.again()` records the same call once more, on the code as it is then: with a mistake in it, say.
    """

    name: str
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    report: Report | None = None
    again: Callable[[], Recording] | None = field(default=None, repr=False, compare=False)

    def find(self, title: str) -> tuple[Step, Bound]:
        """The last step that bound the given title, such as "attention.scores" or "attention.dscores"."""
        if title not in self._by_title:
            raise KeyError(f"nothing called {title!r} was recorded")
        return self._by_title[title]

    def steps_of(self, call: Call) -> tuple[Step, ...]:
        """The steps of one call, in order, without those of the calls inside it."""
        return self._by_call[call.index]

    def calls_in(self, step: Step) -> tuple[Call, ...]:
        """The calls that ran inside this step's statement, in order."""
        own = self._by_call[step.call]
        before = own[own.index(step) - 1].index if own[0] is not step else -1
        return tuple(c for c in self._children[step.call] if before < self._by_call[c.index][-1].index < step.index)

    def path(self, step: Step) -> tuple[Call, ...]:
        """The calls that were running, from the outermost to the step's own."""
        path: list[Call] = []
        index: int | None = step.call
        while index is not None:
            path.insert(0, self.calls[index])
            index = self.calls[index].parent
        return tuple(path)

    def binding(self, serial: int) -> tuple[Step, Bound]:
        """The step that made the binding of this serial number, and the binding."""
        return self._by_serial[serial]

    def visible(self, step: Step) -> dict[str, Bound]:
        """The latest binding before this step of every name of an array or number that its line could see."""
        call = self.calls[step.call]
        seen = [] if call.forward_call == call.index else list(self._by_call[call.forward_call])
        seen += [other for other in self._by_call[call.index] if other.index < step.index]
        return {bound.name: bound for other in seen for bound in other.bound}

    def names_before(self, step: Step) -> dict[str, Any]:
        """Every name that the step's line could see, arrays as the copies that were recorded (on the host)."""
        call = self.calls[step.call]
        names = dict(call.globals)
        for index in dict.fromkeys((call.forward_call, call.index)):
            for other in self._by_call[index]:
                if index != call.index or other.index < step.index:
                    names |= other.other | {bound.name: _as_seen(bound.value) for bound in other.bound}
        return names | {"xp": np}

    def pair_of(self, step: Step, bound: Bound) -> Bound | None:
        """In backward, the value whose gradient this is: for `dname` the `name` of the call that made the pullback.

        A name that was bound as often as its gradient, in a loop, meets it in the reverse order; else the last one.
        """
        return self._pairs.get(bound.serial, (None, ""))[0]

    def check_of(self, step: Step, bound: Bound) -> Row | None:
        """The report's row for a gradient: of `dname` in a pullback the row of `name`. Without `verify` there is none.

        A gradient that is filled or summed up in steps has its row at the last of them.
        """
        return self._checks.get(self._pairs.get(bound.serial, (None, ""))[1])

    def is_unreachable(self, step: Step, bound: Bound) -> bool:
        """Whether this gradient would have a row in the report, had its value not been computed during backward.

        A Checkpoint runs its layer again there. Finite differences displace what the forward pass binds, and what runs
        in the second pass has no place in it; a mistake there shows in the rows of the inputs and the parameters.
        """
        maker = self.calls[self.calls[step.call].forward_call]
        ran_again = " in backward" in maker.label
        return self.report is not None and ran_again and self._pairs.get(bound.serial, (None, ""))[1] != ""

    def to_json(self, path: str | Path | None = None) -> str:
        """The whole recording as a JSON document (its layout: stepper/document.py), also written to `path` if given."""
        from .document import to_json

        text = to_json(self)
        if path is not None:
            write(path, text + "\n")
        return text

    def to_html(self, path: str | Path | None = None, **options: Any) -> str:
        """The recording as one self-contained page, also written to `path` if given. options: as of page.to_html."""
        from .page import to_html

        return to_html(self, path, **options)

    def __repr__(self) -> str:
        return f"<Recording of {self.name}: {len(self.steps)} steps in {len(self.calls)} calls>"

    def __str__(self) -> str:
        from .drawing import plain

        return plain(self)

    def _repr_html_(self) -> str:
        """In a notebook: the page in a frame of its own, so that neither disturbs the other's style or scripts."""
        page = html.escape(self.to_html(), quote=True)
        title = html.escape(f"{self.name}, step by step", quote=True)
        return f'<iframe title="{title}" srcdoc="{page}" width="100%" height="640" style="border: 0"></iframe>'

    @functools.cached_property
    def _by_title(self) -> dict[str, tuple[Step, Bound]]:
        return {bound.title: (step, bound) for step in self.steps for bound in step.bound}

    @functools.cached_property
    def _by_serial(self) -> dict[int, tuple[Step, Bound]]:
        return {bound.serial: (step, bound) for step in self.steps for bound in step.bound}

    @functools.cached_property
    def _by_call(self) -> tuple[tuple[Step, ...], ...]:
        steps: list[list[Step]] = [[] for _ in self.calls]
        for step in self.steps:
            steps[step.call].append(step)
        return tuple(map(tuple, steps))

    @functools.cached_property
    def _children(self) -> tuple[tuple[Call, ...], ...]:
        children: list[list[Call]] = [[] for _ in self.calls]
        for call in self.calls:
            if call.parent is not None:
                children[call.parent].append(call)
        return tuple(map(tuple, children))

    @functools.cached_property
    def _pairs(self) -> Pairs:
        return pairs_of(self.calls, self._by_call)

    @functools.cached_property
    def _checks(self) -> dict[str, Row]:
        rows = () if self.report is None else self.report.rows
        inputs = {f"{self.calls[0].label}.{row.name}": row for row in rows if row.kind == "input"}
        return inputs | {row.name: row for row in rows if row.kind == "intermediate"}

    @functools.cached_property
    def workings(self) -> dict[Any, Any]:
        """Where expansion.py keeps what it has worked out of a step, for the next cell of the same step."""
        return {}


def _as_seen(value: Value) -> Any:
    return Summarised(value) if value.array is None else value.plain()


def step(
    f: Callable[..., Any],
    *inputs: Any,
    upstream: Array | None = None,
    parameters: Any = None,
    verify: bool = False,
    limit: int = LIMIT,
    seed: int = 0,
    **options: Any,
) -> Recording:
    """Run f(*inputs, **options) and its backward pass under a tracer and return the Recording.

    f: an op, layer or model, or a function that calls some and returns `(output, backward)`. upstream: the gradient of
    the output; unless given it is 1 for a single number and else drawn from a generator with `seed`. verify=True also
    checks every gradient against finite differences (see verify.gradients, which takes `parameters`), in `.report`.
    limit: of an array with more elements only a summary is kept.

    It is a look, and leaves things as they were: random generators among the arguments (f gets copies), the gradients
    of the parameters (of f, or those given), and the trace function of a debugger or a coverage tool, also when f
    raises. Calls in other threads are not seen. A layer in a Checkpoint runs twice, and is shown both times.
    """
    check_positive("step", limit=limit)
    inputs = tuple(map(_fresh, inputs))
    options = {name: _fresh(option) for name, option in options.items()}
    f = textbook_of(f)
    recorder = Recorder(f, limit)
    with recorder:
        result = f(*map(_fresh, inputs), **{name: _fresh(option) for name, option in options.items()})
    if not (isinstance(result, tuple) and len(result) == 2 and is_array(result[0]) and callable(result[1])):
        raise TypeError(f"step: the function must return (output, backward), got {type(result).__name__}")
    y, backward = result
    if upstream is None:
        rng = np.random.default_rng(
            (seed, 1)
        )  # not (seed): the inputs may be drawn with that, and upstream must differ
        drawn = rng.normal(size=y.shape).round(2) if y.shape else np.ones(())
        upstream = to_device(drawn.astype(str(y.dtype)), device_of(y).name)
    recorder.in_forward = False
    with _gradients_kept(f, parameters), recorder:
        backward(upstream)
    name, report = _name_of(f), None
    if verify:
        report = gradients(f, *inputs, upstream=upstream, parameters=parameters, name=name, **options)
    files = {file: SourceFile(file) for file in {call.code.co_filename for call in recorder.calls}}
    calls = _close(recorder.calls, files)
    again = functools.partial(step, f, *inputs, upstream=upstream, parameters=parameters, limit=limit, **options)
    return Recording(name, calls, _steps(recorder, calls, files), report, again)


@contextlib.contextmanager
def _gradients_kept(f: Any, parameters: Any) -> Iterator[None]:
    """Give every parameter a copy of its gradient to add to, and afterwards its own again."""
    kept = [(parameter, parameter.grad) for _, parameter in parameters_of(f, parameters)]
    try:
        for parameter, gradient in kept:
            parameter.grad = gradient.copy()
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


def _fresh(argument: Any) -> Any:
    return copy.deepcopy(argument) if isinstance(argument, np.random.Generator) else argument


def _name_of(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", None) or type(f).__name__


def _close(opened: list[OpenCall], files: dict[str, SourceFile]) -> tuple[Call, ...]:
    """Name the calls, numbering those of one label, and give pullbacks the names of the calls that made them."""
    total = Counter(call.label for call in opened if call.maker is None)
    count: Counter[str] = Counter()
    labels: dict[int, str] = {}
    closed = []
    for call in opened:
        if call.maker is None:
            count[call.label] += 1
            labels[call.index] = call.label if total[call.label] == 1 else f"{call.label}#{count[call.label]}"
        maker = call.index if call.maker is None else call.maker
        file, first = call.code.co_filename, call.code.co_firstlineno
        closed.append(
            Call(
                call.index,
                labels[maker],
                call.maker is not None,
                call.depth,
                call.parent,
                maker,
                file,
                first,
                files[file].function(first),
                call.code,
                call.globals,
                call.results,
            )
        )
    return tuple(closed)


@dataclass
class _Statement:
    """A statement that was executed, or is being: it ends with the last of its lines that was seen."""

    call: int
    line: int
    source: str
    end: int
    bound: list[Binding]
    other: dict[str, Any]


def _steps(recorder: Recorder, calls: tuple[Call, ...], files: dict[str, SourceFile]) -> tuple[Step, ...]:
    """One step for each executed statement: what its lines bound, together."""
    current: dict[int, _Statement] = {}  # by call
    statements: list[_Statement] = []
    for position, line in enumerate(recorder.lines):
        source = files[calls[line.call].file]
        first = source.first_line(line.line)
        running = current.get(line.call)
        if running is None or running.line != first:
            running = _Statement(line.call, first, source.statement(line.line), position, [], {})
            current[line.call] = running
            statements.append(running)
        running.end = position
        running.bound += line.bound
        running.other |= line.other
    statements.sort(key=lambda statement: statement.end)
    steps = []
    for index, statement in enumerate(statements):
        call = calls[statement.call]
        hidden = only_in_comprehensions(statement.source) if statement.bound else ()
        bound = tuple(
            Bound(b.name, f"{call.label}.{b.name}", b.value, b.serial, b.origin, b.in_place)
            for b in statement.bound
            if b.name not in hidden
        )
        quiet = not bound or (call.results is None and not call.backward)
        steps.append(Step(index, call.index, statement.line, statement.source, bound, quiet, statement.other))
    return tuple(steps)
