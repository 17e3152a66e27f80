"""Record a forward and a backward pass line by line: what each executed line of an op, layer or model bound, with its
numbers.

The ops know nothing of it: `sys.settrace` shows each line of a running function, and a local variable whose value has
become another object, or has other numbers in it, was bound by the line before. Values are copied when they are seen,
so nothing that happens later can change the record; of an array above a limit only a summary is kept.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backend import Array, device_of, to_device
from ..boundary import check_positive
from ..layers.module import Module
from ..verify import Report, gradients
from ..verify.tracing import Traced, host_copy, is_array, label_of, made_here

LIMIT = 4096  # elements: of a larger array shape, range and mean are kept


@dataclass(frozen=True)
class Value:
    """What a name was bound to: an array's or a number's copy, or, above the limit, only its summary."""

    shape: tuple[int, ...]
    dtype: str
    array: np.ndarray | None
    summary: str = ""

    def plain(self) -> Any:
        """The array, or a Python number where a Python number was recorded."""
        is_number = self.shape == () and self.dtype in ("int", "float", "bool")
        return self.array.item() if is_number and self.array is not None else self.array

    def __str__(self) -> str:
        if self.array is None:
            return self.summary
        return np.array2string(self.array, precision=4, suppress_small=True, separator=" ")


@dataclass(frozen=True)
class Bound:
    """One name that a line bound. `title` is unique in its pass: "attention.scores", "linear#2.product"."""

    name: str
    title: str
    value: Value


@dataclass(frozen=True)
class Call:
    """One call of an op, layer or model, or of its pullback."""

    index: int
    label: str  # "attention", "Linear", ...; the k-th of several is "linear#k"
    backward: bool
    depth: int
    parent: int | None
    forward_call: int  # of a pullback the call that made it, else the index itself
    file: str
    first_line: int
    source: tuple[str, ...]
    globals: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Step:
    """One executed statement and what it bound."""

    index: int
    call: int
    line: int
    source: str
    bound: tuple[Bound, ...]
    other: dict[str, Any] = field(
        default_factory=dict, repr=False, compare=False
    )  # names bound to no number: None, ...


class Recorder(Traced):
    """Follows a forward pass, and then, once `in_forward` is False, the pullbacks that this pass made."""

    def __init__(self, f: Any, limit: int) -> None:
        super().__init__(f)
        self.limit = limit
        self.in_forward = True
        self.calls: list[_OpenCall] = []
        self.lines: list[tuple[int, int, dict[str, Value], dict[str, Any]]] = []  # call, line, what it bound
        self._stack: list[int] = []
        self._owners: dict[int, tuple[int, types.CodeType]] = {}

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if not self._wants(frame.f_code):
            return None
        maker, _ = self._owners.get(id(frame.f_code), (None, None))
        if not self.in_forward and maker is None:
            return None  # a forward pass that runs again inside backward (activation checkpointing)
        call = _OpenCall(len(self.calls), frame, maker, tuple(self._stack), not self.in_forward)
        self.calls.append(call)
        self._stack.append(call.index)
        executed = frame.f_code.co_firstlineno

        def follow(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal executed
            changed, other = call.changes(frame.f_locals, self.limit)
            if changed or other or event in ("line", "return"):
                self.lines.append((call.index, executed, changed, other))
            executed = frame.f_lineno
            if event == "return":
                self._stack.pop()
                if self.in_forward and (pullback := made_here(arg, frame.f_code)):
                    self._owners[id(pullback.__code__)] = (call.index, pullback.__code__)
            return follow

        return follow(frame, event, arg)


class _OpenCall:
    """A call while it runs: its frame's names, and the copies last seen of them."""

    def __init__(
        self, index: int, frame: types.FrameType, maker: int | None, stack: tuple[int, ...], backward: bool
    ) -> None:
        self.index, self.maker, self.stack, self.backward = index, maker, stack, backward
        self.code = frame.f_code
        self.label = label_of(frame)
        self.globals = frame.f_globals
        self._seen: dict[str, tuple[Any, Value | None]] = {}

    def changes(self, frame_locals: dict[str, Any], limit: int) -> tuple[dict[str, Value], dict[str, Any]]:
        """What has been bound since the last look: arrays and numbers as copies, and whatever else as it is."""
        changed, other = {}, {}
        for name, value in list(frame_locals.items()):
            if name in self.code.co_freevars:
                continue
            old, copy = self._seen.get(name, (None, None))
            if name in self._seen and old is value and not _differs(value, copy):
                continue
            kept = keep(value, limit)
            self._seen[name] = (value, kept)
            if kept is None:
                other[name] = value
            else:
                changed[name] = kept
        return changed, other


def _differs(value: Any, copy: Value | None) -> bool:
    """Whether an array holds other numbers than when it was copied: it was changed in place."""
    return (
        copy is not None
        and copy.array is not None
        and is_array(value)
        and not np.array_equal(copy.array, device_of(value).to_numpy(value), equal_nan=copy.array.dtype.kind == "f")
    )


def keep(value: Any, limit: int = LIMIT) -> Value | None:
    """A copy of an array or a number, or the summary of a large array; None for anything else."""
    if isinstance(value, bool | int | float):
        return Value((), type(value).__name__, np.asarray(value))
    if not is_array(value) or value.dtype.kind not in "fiub":
        return None
    if value.size <= limit:
        return Value(tuple(value.shape), str(value.dtype), host_copy(value))
    low, high, mean = (float(part) for part in (value.min(), value.max(), value.mean()))
    summary = f"{value.size} numbers from {low:.4g} to {high:.4g}, mean {mean:.4g}"
    return Value(tuple(value.shape), str(value.dtype), None, summary)


@functools.lru_cache(maxsize=64)
def _statements(file: str) -> dict[int, tuple[int, int]]:
    """For each line of a file the first and last line of the innermost simple statement, or head, it belongs to."""
    lines = linecache.getlines(file)
    spans: dict[int, tuple[int, int]] = {}
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return spans
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else (node.end_lineno or node.lineno)
            for line in range(node.lineno, max(last, node.lineno) + 1):
                spans[line] = (node.lineno, max(last, node.lineno))
    return spans


def _source(file: str, line: int) -> str:
    first, last = _statements(file).get(line, (line, line))
    text = "".join(linecache.getline(file, i) for i in range(first, last + 1))
    return inspect.cleandoc(text)


@dataclass(frozen=True)
class Recording:
    """A recorded forward and backward pass: `.steps` in the order they ran, `.calls` they stand in, `.report` if
    verified. `.again()` records the same call once more, on the code as it is then: with a mistake in it, say.
    """

    name: str
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    report: Report | None = None
    again: Callable[[], Recording] | None = field(default=None, repr=False, compare=False)

    def find(self, title: str) -> tuple[Step, Bound]:
        """The last step that bound the given title, such as "attention.scores" or "attention.dscores"."""
        for step in reversed(self.steps):
            for bound in step.bound:
                if bound.title == title:
                    return step, bound
        raise KeyError(f"nothing called {title!r} was recorded")

    def names_before(self, step: Step) -> dict[str, Any]:
        """Every name that the step's line could see, arrays as the copies that were recorded (on the host)."""
        call = self.calls[step.call]
        names = dict(call.globals)
        for other in self.steps:
            if other.call in (call.forward_call, call.index) and (other.call != call.index or other.index < step.index):
                names |= other.other | {bound.name: bound.value.plain() for bound in other.bound}
        return names | {"xp": np}

    def pair_of(self, step: Step, bound: Bound) -> Bound | None:
        """In backward, the value whose gradient this is: for `dname` the last `name` of the call that made the
        pullback.
        """
        call = self.calls[step.call]
        if not call.backward or not bound.name.startswith("d"):
            return None
        found = None
        for other in self.steps:
            if other.call == call.forward_call:
                found = next((b for b in other.bound if b.name == bound.name[1:]), found)
        return found


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

    upstream: the gradient of the output; drawn from a generator with `seed` unless given. verify=True also checks every
    gradient against finite differences (see verify.gradients, which takes `parameters`), in `.report`. limit: of an
    array with more elements only a summary is kept. A debugger's or a coverage tool's trace function is put back
    afterwards, also when f raises.
    """
    check_positive("step", limit=limit)
    frozen = _copied(options)
    recorder = Recorder(f, limit)
    with recorder:
        result = f(*inputs, **options)
    if not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
        raise TypeError(f"step: the function must return (output, backward), got {type(result).__name__}")
    y, backward = result
    if upstream is None:
        drawn = np.random.default_rng(seed).normal(size=y.shape).round(1)
        upstream = to_device(drawn.astype(str(y.dtype)), device_of(y).name)
    recorder.in_forward = False
    with recorder:
        backward(upstream)
    name = getattr(f, "__name__", None) or type(f).__name__
    report = None
    if verify:
        report = gradients(f, *inputs, upstream=upstream, parameters=parameters, name=name, **_copied(frozen))
    calls = _close(recorder.calls)

    def again() -> Recording:
        owned = [p for source in (f, parameters) if isinstance(source, Module) for _, p in source.parameters()]
        before = [p.grad.copy() for p in owned]
        try:
            return step(f, *inputs, upstream=upstream, limit=limit, **_copied(frozen))
        finally:
            for parameter, gradient in zip(owned, before, strict=True):
                parameter.grad[...] = gradient

    return Recording(name, calls, _steps(recorder, calls), report, again)


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with a generator of random numbers as a copy in its present state, so that it can draw the same."""
    return {key: deepcopy(o) if isinstance(o, np.random.Generator) else o for key, o in options.items()}


def _close(opened: list[_OpenCall]) -> tuple[Call, ...]:
    """Name the calls, numbering those of one label, and give pullbacks the names of the calls that made them."""
    forward = [call for call in opened if not call.backward]
    total = {call.label: sum(other.label == call.label for other in forward) for call in forward}
    count: dict[str, int] = {}
    labels: dict[int, str] = {}
    for call in forward:
        count[call.label] = count.get(call.label, 0) + 1
        labels[call.index] = call.label if total[call.label] == 1 else f"{call.label}#{count[call.label]}"
    closed = []
    for call in opened:
        maker = call.index if call.maker is None else call.maker
        lines, first = inspect.getsourcelines(call.code)
        closed.append(
            Call(
                call.index,
                labels[maker],
                call.backward,
                len(call.stack),
                call.stack[-1] if call.stack else None,
                maker,
                call.code.co_filename,
                first,
                tuple(line.rstrip("\n") for line in lines),
                call.globals,
            )
        )
    return tuple(closed)


def _steps(recorder: Recorder, calls: tuple[Call, ...]) -> tuple[Step, ...]:
    """One step for each executed statement: what its lines bound, together."""
    steps: list[Step] = []
    for call_index, line, bound_values, other in recorder.lines:
        call = calls[call_index]
        first, _ = _statements(call.file).get(line, (line, line))
        bound = tuple(Bound(name, f"{call.label}.{name}", value) for name, value in bound_values.items())
        last = steps[-1] if steps else None
        if last is not None and last.call == call_index and last.line == first:
            steps[-1] = Step(last.index, call_index, first, last.source, last.bound + bound, last.other | other)
        else:
            steps.append(Step(len(steps), call_index, first, _source(call.file, line), bound, other))
    return tuple(steps)
