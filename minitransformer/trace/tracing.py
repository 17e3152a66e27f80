"""Look inside running ops and layers: read, and replace, their local variables, with no instrumentation in them.

The convention that the gradient of `scores` is called `dscores` makes this possible. A Recording runs a function under
`sys.settrace` and notes every floating-point array that an op, layer or model binds to a name, in forward; and, once
its pullback runs, in backward. Then `name` and `dname` of one call can be held against each other. A Replacement runs
the function again and exchanges one such value the moment it is bound, so that a finite difference can be taken with
respect to it.
"""

from __future__ import annotations

import abc
import inspect
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.backend import Array, device_of

_PACKAGE = Path(__file__).parent.parent  # not resolved: code objects keep the path they were imported by
_ROOMS = tuple(str(_PACKAGE / room) for room in ("ops", "layers", "models"))


@dataclass
class Call:
    """One call of an op, layer or model: the values that each name was bound to, in forward and in its pullback."""

    index: int
    label: str
    forward: dict[str, list[np.ndarray]] = field(default_factory=dict)
    backward: dict[str, list[np.ndarray]] = field(default_factory=dict)
    overwritten: set[str] = field(default_factory=set)  # names whose array was changed in place after it was bound


@dataclass(frozen=True)
class Pair:
    """A value and its gradient: binding number `occurrence` of `name` in call number `call`."""

    call: int
    name: str
    occurrence: int
    title: str
    value: np.ndarray
    gradient: np.ndarray | None
    why_not: str = ""  # where there is no gradient to hold against the value


def is_array(x: Any) -> bool:
    """Whether x is an array (or NumPy scalar) of a known library."""
    if not hasattr(x, "dtype"):
        return False
    try:
        device_of(x)
    except TypeError:
        return False
    return True


def is_float_array(x: Any) -> bool:
    """Whether x is a floating-point array (or NumPy scalar) of a known library."""
    return is_array(x) and x.dtype.kind == "f"


def textbook_of(f: Any) -> Any:
    """The form of f that is written to be read: of a fast twin, or a method of one, its original; else f itself."""
    if inspect.ismethod(f):
        return getattr(getattr(f.__self__, "textbook", f.__self__), f.__name__)
    return getattr(f, "textbook", f)


def host_copy(x: Array) -> np.ndarray:
    """A copy of x on the host."""
    return np.array(device_of(x).to_numpy(x))


def _file_of(f: Any) -> str:
    """The file that holds the code of f: calls into it are traced beside those into our ops, layers and models."""
    f = inspect.unwrap(f) if callable(f) else f
    while hasattr(f, "func"):  # functools.partial
        f = inspect.unwrap(f.func)
    f = f if hasattr(f, "__code__") else type(f).__call__  # of a module the code of its class's __call__
    code = getattr(f, "__code__", None)
    return code.co_filename if code is not None else ""


class _Watch:
    """Notices when a frame binds a name: between two events its value has become another object."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def bound(self, frame_locals: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        for name, value in list(frame_locals.items()):
            if name not in self._last or self._last[name] is not value:
                self._last[name] = value
                yield name, value


class Traced(abc.ABC):
    """Sets the trace function, and puts back the one that was there (a debugger's, a coverage tool's)."""

    def __init__(self, f: Any) -> None:
        self._file = _file_of(f)

    def __enter__(self) -> Any:
        self._previous = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._previous)

    def _wants(self, code: types.CodeType) -> bool:
        return code.co_filename == self._file or code.co_filename.startswith(_ROOMS)

    @abc.abstractmethod
    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any: ...


class Recording(Traced):
    """Notes forward calls while `in_forward`, and afterwards the pullbacks of these calls."""

    def __init__(self, f: Any) -> None:
        super().__init__(f)
        self.calls: list[Call] = []
        self.in_forward = True
        self.first_nan = ""  # where the first NaN was bound in forward, e.g. "softmax.y at (0, 2)"
        self._owners: dict[int, tuple[Call, types.CodeType]] = {}  # by id of a pullback's own code object

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if not self._wants(frame.f_code):
            return None
        if self.in_forward:
            call = Call(len(self.calls), label_of(frame))
            self.calls.append(call)
            values = call.forward
        elif id(frame.f_code) in self._owners:
            call, _ = self._owners[id(frame.f_code)]
            values = call.backward
        else:
            return None  # a forward pass that runs again inside backward (activation checkpointing)
        watch = _Watch()
        live: list[tuple[str, Array, np.ndarray]] = []

        def note(frame: types.FrameType, event: str, arg: Any) -> Any:
            for name, value in watch.bound(frame.f_locals):
                if is_float_array(value):
                    values.setdefault(name, []).append(host_copy(value) if self.in_forward else value)
                    live.append((name, value, values[name][-1]))
                    if self.in_forward and not self.first_nan:
                        self.first_nan = _nan_in(values[name][-1], f"{call.label}.{name}")
            if event == "return" and self.in_forward:
                pullback = made_here(arg, frame.f_code)
                call.overwritten.update(name for name, value, seen in live if not _same(seen, host_copy(value)))
                if pullback is not None:
                    self._owners[id(pullback.__code__)] = (call, pullback.__code__)
            elif event == "return":  # a gradient may be filled after it is bound, so it counts as it is in the end
                values.update({name: [host_copy(value) for value in bound] for name, bound in values.items()})
            return note

        return note(frame, event, arg)

    def pairs(self) -> list[Pair]:
        """Every (value, gradient) whose `name` stands in a forward pass and `dname` in its pullback.

        A name bound n times in a loop meets dname bound n times in the reverse order; a name bound once meets the last
        dname (a gradient that is summed up in steps); a dname bound once meets the last name. Anything else cannot be
        matched and gets no gradient.
        """
        times = Counter(call.label for call in self.calls)
        seen: dict[str, int] = {}
        found = []
        for call in self.calls:
            seen[call.label] = seen.get(call.label, 0) + 1
            place = call.label if times[call.label] == 1 else f"{call.label}#{seen[call.label]}"
            for name, values in call.forward.items():
                gradients = call.backward.get("d" + name)
                if not gradients:
                    continue
                why_not, matched = "", dict(enumerate(reversed(gradients)))
                if name in call.overwritten:
                    why_not = f"the array of {name} was changed in place after it was bound"
                elif len(values) == 1 or len(gradients) == 1:
                    matched = {len(values) - 1: gradients[-1]}
                elif len(values) != len(gradients):
                    why_not = f"{name} is bound {len(values)} times and d{name} {len(gradients)} times"
                for i, value in enumerate(values):
                    title = f"{place}.{name}" if len(values) == 1 else f"{place}.{name}[{i}]"
                    if why_not:
                        found.append(Pair(call.index, name, i, title, value, None, why_not))
                    elif i in matched:
                        found.append(Pair(call.index, name, i, title, value, matched[i]))
        return found


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _nan_in(array: np.ndarray, title: str) -> str:
    where = np.argwhere(np.isnan(array))
    return f"{title} at {tuple(where[0].tolist())}" if len(where) else ""


def made_here(result: Any, code: types.CodeType) -> types.FunctionType | None:
    """The pullback in `result = (y, pullback)` if this very call made it; else None.

    It is given a code object of its own, by whose identity it is known when it runs: all pullbacks that a line of
    source ever makes share one code object otherwise.
    """
    pullback = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    pullback = inspect.unwrap(pullback) if callable(pullback) else None  # a decorator may stand around it
    if isinstance(pullback, types.FunctionType) and any(pullback.__code__ is const for const in code.co_consts):
        pullback.__code__ = pullback.__code__.replace()
        return pullback
    return None


def label_of(frame: types.FrameType) -> str:
    """The name of the op, or of the module's class: "attention", "EncoderLayer", "Residual._pre"."""
    owner = frame.f_locals.get("self")
    name = frame.f_code.co_name
    if owner is None:
        return name
    return type(owner).__name__ if name == "__call__" else f"{type(owner).__name__}.{name}"


class Replacement(Traced):
    """Exchanges one binding, found by its place in a recording, for `change(value)`; the function goes on with that."""

    def __init__(self, f: Any, pair: Pair, change: Callable[[Array], Array]) -> None:
        super().__init__(f)
        self._pair, self._change = pair, change
        self._calls = 0
        self.done = False

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if not self._wants(frame.f_code):
            return None
        self._calls += 1
        if self._calls - 1 != self._pair.call:
            return None
        watch = _Watch()
        bindings = 0

        def exchange(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal bindings
            frame_locals = frame.f_locals  # read once: before Python 3.13 a second look would undo the change
            for name, value in watch.bound(frame_locals):
                if name == self._pair.name and is_float_array(value):
                    if bindings == self._pair.occurrence:
                        frame_locals[name] = self._change(value)
                        self.done = True
                        sys.settrace(None)
                        return None
                    bindings += 1
            return exchange

        return exchange(frame, event, arg)


def values_inside(name: str, f: Any, *inputs: Any, **options: Any) -> list[np.ndarray]:
    """Run f(*inputs, **options) and return every value that an op, layer or model bound to `name`, in order.

    values_inside("weights", model, ids) gives the attention weights of each layer, (B, H, T_q, T_k).
    """
    f = textbook_of(f)
    with Recording(f) as recording:
        f(*inputs, **options)
    return [value for call in recording.calls for value in call.forward.get(name, [])]
