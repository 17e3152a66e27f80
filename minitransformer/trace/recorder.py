"""Follow running code with `sys.settrace`, and copy what every line bound to a name.

A line bound a name if afterwards the name holds another object, or the same array with other numbers in it. What is
seen is copied at once, so that nothing that happens later can change the record. Identity is noted too: an argument
that is the very array which the caller has a name for, or a result that the inner call had a name for, is the same
numbers under another name, and its binding says which (`origin`).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.backend import Array, device_of
from .tracing import Traced, host_copy, is_array, label_of, made_here

_HIDDEN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


CORNER = 8  # rows and columns that are kept of an array of which only a summary is


@dataclass(frozen=True, eq=False)
class Value:
    """What a name was bound to: an array's or a number's copy, or, above the limit, only its summary and its corner."""

    shape: tuple[int, ...]
    dtype: str
    array: np.ndarray | None
    summary: str = ""
    corner: np.ndarray | None = None

    @property
    def is_float_array(self) -> bool:
        """Whether it is a floating-point array, and not a Python number."""
        return self.dtype.startswith("float") and self.dtype != "float"

    def plain(self) -> Any:
        """The array, or a Python number where a Python number was recorded."""
        is_number = self.shape == () and self.dtype in ("int", "float", "bool")
        return self.array.item() if is_number and self.array is not None else self.array

    def __str__(self) -> str:
        if self.array is None:
            return self.summary
        return np.array2string(self.array, precision=4, suppress_small=True, separator=" ")


def keep(value: Any, limit: int) -> Value | None:
    """A copy of an array or a number, or the summary of an array with more elements; None for anything else."""
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return _number(value)
    if not is_array(value) or value.dtype.kind not in "fiub":
        return None
    if value.size <= limit:
        return Value(tuple(value.shape), str(value.dtype), host_copy(value))
    return Value(tuple(value.shape), str(value.dtype), None, summary_of(value), host_copy(corner_of(value)))


def summary_of(array: Array) -> str:
    """The range and the mean of an array that has elements, in words."""
    low, high, mean = (float(part) for part in (array.min(), array.max(), array.mean()))
    return f"{array.size} numbers from {low:.4g} to {high:.4g}, mean {mean:.4g}"


def corner_of(array: Array) -> Array:
    """The first rows and columns of an array, (T, D) or (D,); of one with more axes, of its first matrix."""
    first = (0,) * (array.ndim - 2)
    return array[(*first, *[slice(CORNER)] * min(array.ndim, 2))]


def _number(value: bool | int | float) -> Value | None:
    array = np.asarray(value)
    return Value((), type(value).__name__, array) if array.dtype.kind in "fiub" else None  # an int may be too long


@dataclass(frozen=True)
class Binding:
    """One name, bound once. serial: which of all bindings; origin: the serial of another name of this very array."""

    name: str
    value: Value
    serial: int
    origin: int | None
    in_place: bool


@dataclass(frozen=True)
class Returned:
    """An array or a number that a call returned, and the serial of the binding that it had there, if it had one."""

    value: Value
    serial: int | None


@dataclass
class Line:
    """An executed line, or the part of a statement that lies in it: what it bound, and to what that is no number."""

    call: int
    line: int
    bound: list[Binding] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)


@dataclass
class OpenCall:
    """A call that was met: of an op, layer or model, of their helpers, or of a pullback that one of them made."""

    index: int
    label: str
    code: types.CodeType
    globals: dict[str, Any]
    parent: int | None
    depth: int
    maker: int | None  # of a pullback: the call that made it
    results: Any = None  # a Returned, a tuple of such, or None


class Recorder(Traced):
    """Follows a forward pass, and then, once `in_forward` is False, its pullbacks and whatever these call."""

    def __init__(self, f: Any, limit: int) -> None:
        super().__init__(f)
        self.limit = limit
        self.in_forward = True
        self.calls: list[OpenCall] = []
        self.lines: list[Line] = []
        self._open: list[_Names] = []
        self._pullbacks: dict[int, tuple[OpenCall, types.CodeType]] = {}  # by id of a pullback's own code object
        self._serial = 0

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not self._wants(code) or code.co_flags & _HIDDEN or (code.co_name[0] == "<" and code.co_name != "<lambda>"):
            return None  # comprehensions and generators belong to the statement that runs them
        caller = self._open[-1] if self._open else None
        maker, _ = self._pullbacks.get(id(code), (None, None))
        call = OpenCall(
            index=len(self.calls),
            label=label_of(frame) + ("" if self.in_forward or maker else " in backward"),
            code=code,
            globals=frame.f_globals,
            parent=caller.call.index if caller else None,
            depth=len(self._open),
            maker=None if maker is None else maker.index,
        )
        names = _Names(call)
        self.calls.append(call)
        self._open.append(names)
        executed = code.co_firstlineno

        def follow(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal executed
            line = Line(call.index, executed)
            line.bound, line.other = self._changes(names, frame.f_locals)
            self.lines.append(line)
            executed = frame.f_lineno
            if event == "return":
                if pullback := made_here(arg, code):
                    self._pullbacks[id(pullback.__code__)] = (call, pullback.__code__)
                call.results = self._returned(arg, names)
                if caller is not None:
                    caller.note_results(arg, names)
                names.forget()  # what the call held may go now
                self._open.pop()
            return follow

        return follow(frame, "call", arg)

    def _changes(self, names: _Names, frame_locals: dict[str, Any]) -> tuple[list[Binding], dict[str, Any]]:
        """What has been bound since the last look: arrays and numbers as copies, and whatever else as it is."""
        bound, other = [], {}
        for name, value in list(frame_locals.items()):
            if names.call.maker is not None and name in names.call.code.co_freevars:
                continue  # what a pullback captured was recorded where it was made
            seen = names.seen.get(name)
            if seen is not None and seen.object is value and not seen.differs(self.limit):
                continue
            kept = keep(value, self.limit)
            if kept is None:
                names.seen[name] = _Seen(value, None, None)
                other[name] = _frozen(value)
                continue
            self._serial += 1
            in_place = seen is not None and seen.object is value
            origin = self._origin(value) if is_array(value) and not in_place else None
            bound.append(Binding(name, kept, self._serial, origin, in_place))
            names.seen[name] = _Seen(value, kept, self._serial)
        return bound, other

    def _origin(self, value: Any) -> int | None:
        """The latest binding of this very array, in the call that runs or else in the calls around it."""
        found = (names.serial_of(value) for names in reversed(self._open))
        return next((serial for serial in found if serial is not None), None)

    def _returned(self, result: Any, names: _Names) -> Any:
        if isinstance(result, tuple | list):
            return tuple(self._returned(part, names) for part in result)
        kept = keep(result, self.limit)
        return None if kept is None else Returned(kept, names.serial_of(result) if is_array(result) else None)


class _Seen:
    """What a name held when it was last looked at."""

    def __init__(self, value: Any, kept: Value | None, serial: int | None) -> None:
        self.object, self.kept, self.serial = value, kept, serial
        self._sum = float(value.sum()) if kept is not None and kept.array is None else 0.0

    def differs(self, limit: int) -> bool:
        """Whether the array holds other numbers than when it was copied: it was changed in place."""
        if self.kept is None or not is_array(self.object):
            return False
        if self.kept.array is None:  # too large for a copy: its sum and its summary must do
            total = float(self.object.sum())
            same = total == self._sum or (total != total and self._sum != self._sum)
            now = keep(self.object, limit)
            return not same or now is None or now.summary != self.kept.summary
        numbers = device_of(self.object).to_numpy(self.object)
        return not np.array_equal(self.kept.array, numbers, equal_nan=numbers.dtype.kind == "f")


class _Names:
    """The names of a running call and what they hold, and what its inner calls returned, with its names in there."""

    def __init__(self, call: OpenCall) -> None:
        self.call = call
        self.seen: dict[str, _Seen] = {}
        self._results: list[tuple[Any, int]] = []

    def serial_of(self, value: Any) -> int | None:
        """The latest binding of this very object, here or, where it has no name here, in an inner call."""
        serials = [seen.serial for seen in self.seen.values() if seen.object is value and seen.serial is not None]
        return max(serials) if serials else self._result(value)

    def _result(self, value: Any) -> int | None:
        return next((serial for result, serial in reversed(self._results) if result is value), None)

    def note_results(self, result: Any, inner: _Names) -> None:
        """Keep in mind what an inner call returned."""
        for value in _leaves(result):
            serial = inner.serial_of(value) if is_array(value) else None
            if serial is not None:
                self._results.append((value, serial))

    def forget(self) -> None:
        """Let go of everything that the call held."""
        self.seen.clear()
        self._results.clear()


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, tuple | list):
        for part in result:
            yield from _leaves(part)
    else:
        yield result


def _frozen(value: Any) -> Any:
    """A value that is no number itself; of a tuple or list of arrays a copy, on the host."""
    if isinstance(value, tuple | list) and all(_is_plain(part) for part in value):
        copies = [host_copy(part) if is_array(part) else part for part in value]
        return copies if isinstance(value, list) else tuple(copies)
    return value


def _is_plain(part: Any) -> bool:
    return is_array(part) or part is None or isinstance(part, bool | int | float | str)
