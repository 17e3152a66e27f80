"""Record every line that runs, and every number that it binds.

A line bound a name if afterwards the name holds another object, or the same array with other numbers in it; or if it
writes to rows of the array, which may get the numbers that they had. Identity is recorded, too. An argument may be the
same array that a name in the caller holds, and a result may be the same array that a name in the inner call held. The
`origin` of a binding is then the binding of that other name.
"""

from __future__ import annotations

import linecache
import re
import types
from dataclasses import dataclass, field
from typing import Any

from .calls import Binding, Call, Group
from .foreign import as_array
from .recorder import Recorder, Watch
from .values import Value, host_copy, is_array, keep, same_numbers

_WRITES = re.compile(r"\s*(\w+)\[.*\] [-+*/]?= ")  # rows of an array


@dataclass(frozen=True)
class Returned:
    """An array or a number that a call returned, and the serial of its binding in that call, if it had one."""

    value: Value
    serial: int | None


@dataclass
class Line:
    """An executed line, or its part of a longer statement: the numbers that it bound, and the other values by name."""

    call: Call
    line: int
    bound: list[Binding] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)


class LineRecorder(Recorder):
    """Follows a forward pass, its pullbacks and everything that they call, line by line.

    limit: of an array with more elements, only a summary is kept.
    """

    helpers_in_backward = True

    def __init__(self, f: Any, limit: int) -> None:
        super().__init__(f)
        self.limit = limit
        self.lines: list[Line] = []

    def _watch(self, call: Call, captured: dict[str, Any]) -> Watch:
        return _LineWatch(self, call, captured)


class _LineWatch(Watch):
    """The names of a running call and what they hold; also the results of its inner calls, with their names there."""

    recorder: LineRecorder

    def __init__(self, recorder: LineRecorder, call: Call, captured: dict[str, Any]) -> None:
        super().__init__(recorder, call, captured)
        self._seen = {name: _Seen(value, None) for name, value in captured.items()}
        self._results: list[tuple[Any, int]] = []
        self._executed = call.first_line

    def look(self, frame: types.FrameType) -> None:
        line = Line(self.call, self._executed)
        into = _WRITES.match(linecache.getline(self.call.file, self._executed))
        written = into and into[1]  # also if it gets the numbers that it had
        for name, value in list(frame.f_locals.items()):
            seen = self._seen.get(name)
            seen = seen if seen is not None and seen.object is value else None
            if seen is not None and not seen.differs(self.recorder.limit) and not (seen.group and name == written):
                continue
            kept = keep(value, self.recorder.limit)
            if kept is None:
                self._seen[name] = _Seen(value, None)
                line.other[name] = _frozen(value)
                continue
            origin = self._origin(value) if is_array(as_array(value)) and seen is None else None
            group = self.recorder.bind(self.call, name, kept, None if seen is None else seen.group, origin)
            line.bound.append(group[-1])
            self._seen[name] = _Seen(value, group)
        self.recorder.lines.append(line)
        self._executed = frame.f_lineno

    def end(self, result: Any) -> None:
        self.call.results = self._returned(result)
        self._seen.clear()  # free what the call held
        self._results.clear()

    def _origin(self, value: Any) -> int | None:
        """The latest binding of this very array, in this call or else in one around it."""
        found = (watch._serial_of(value) for watch in reversed(self.recorder.open))
        return next((serial for serial in found if serial is not None), None)

    def _serial_of(self, value: Any) -> int | None:
        """The latest binding of this very array in this call or, if it has no name here, in an inner call."""
        serials = [seen.group[-1].serial for seen in self._seen.values() if seen.object is value and seen.group]
        inner = (serial for result, serial in reversed(self._results) if result is value)
        return max(serials) if serials else next(inner, None)

    def _returned(self, result: Any) -> Any:
        if isinstance(result, tuple | list):
            return tuple(map(self._returned, result))
        serial = self._serial_of(result) if is_array(as_array(result)) else None
        if serial is not None and len(self.recorder.open) > 1:
            self.recorder.open[-2]._results.append((result, serial))
        kept = keep(result, self.recorder.limit)
        return None if kept is None else Returned(kept, serial)


class _Seen:
    """What a name held when it was last looked at, and its bindings if that was an array or a number."""

    def __init__(self, value: Any, group: Group | None) -> None:
        self.object, self.group = value, group
        self._kept = group[-1].value if group else None
        self._sum = float(value.sum()) if self._kept is not None and self._kept.array is None else 0.0

    def differs(self, limit: int) -> bool:
        """Whether the array's numbers differ from the copy: it was changed in place."""
        array = as_array(self.object)
        if self._kept is None or not is_array(array):
            return False
        if self._kept.array is not None:
            return not same_numbers(self._kept.array, array)
        total = float(array.sum())  # too large for a copy: compare its sum and its summary
        same = total == self._sum or (total != total and self._sum != self._sum)
        now = keep(array, limit)
        return not same or now is None or now.summary != self._kept.summary


def _frozen(value: Any) -> Any:
    """A value that is not a number; a tuple or list of arrays is copied to the host."""
    if isinstance(value, tuple | list) and all(_is_plain(part) for part in value):
        copies = [host_copy(part) if is_array(part) else part for part in value]
        return copies if isinstance(value, list) else tuple(copies)
    return value


def _is_plain(part: Any) -> bool:
    return is_array(part) or part is None or isinstance(part, bool | int | float | str)
