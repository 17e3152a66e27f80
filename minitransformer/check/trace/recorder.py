"""Record running code with `sys.settrace`: its calls, and what they bind to names. There are two levels of detail.

A Recorder keeps the floating-point arrays of the forward pass and of its pullbacks, which is all that a gradient check
needs. A LineRecorder keeps every line and every number. Both copy each array at once, so that nothing that happens
later can change the record.

A line bound a name if afterwards the name holds another object, or the same array with other numbers in it; or if it
writes to rows of the array, which may get the numbers that they had. Identity is recorded, too. An argument may be the
same array that a name in the caller holds, and a result may be the same array that a name in the inner call held. The
`origin` of a binding is then the binding of that other name.
"""

from __future__ import annotations

import inspect
import linecache
import re
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .calls import Binding, Call, Group, Pair, label_calls, pairs_of
from .tracing import Traced, arguments_of, claimed_pullback, function_of, label_of, newly_bound, textbook_of, token_in
from .values import Value, as_array, as_numpy, copied, host_copy, is_array, is_float_array, keep, same_numbers


class Watch:
    """Watches the names of one running call: keeps each floating-point array as it was when bound and at the end."""

    def __init__(self, recorder: Recorder, call: Call, captured: dict[str, Any]) -> None:
        self.recorder, self.call = recorder, call
        self.held = captured
        self._arrays: list[tuple[Any, Group]] = []

    def follow(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """The trace function of the call. A method, since a closure that returns itself would keep all arrays."""
        self.look(frame)
        if event == "return":
            self.recorder.note_result(self.call, arg)
            self.end(arg)
            self.recorder.open.pop()
        return self.follow

    def look(self, frame: types.FrameType) -> None:
        """Record what has been bound since the last call."""
        for name, bound in newly_bound(self.held, frame.f_locals):
            value = as_numpy(bound)
            if is_float_array(value) and (self.recorder.only is None or name in self.recorder.only):
                self._arrays.append((value, self.recorder.bind(self.call, name, copied(value))))

    def end(self, result: Any) -> None:
        """The call returns: record which arrays were changed in place."""
        for array, group in self._arrays:
            before = group[0].value.array
            if before is not None and not same_numbers(before, array):
                self.recorder.bind(self.call, group[0].name, copied(array), changed=group)


class Recorder(Traced):
    """Follows a forward pass and then, once `in_forward` is False, its pullbacks.

    with Recorder(f) as recorder:
        y, backward = f(x)
    recorder.in_forward = False
    with recorder:
        backward(dy)

    only: the names to keep, if not all; a large model has gigabytes of arrays.
    """

    helpers_in_backward = False  # whether the functions that pullbacks call are among the calls, too
    watch_of: type[Any] = Watch

    def __init__(self, f: Any, only: Collection[str] | None = None) -> None:
        super().__init__(f)
        self.only = only
        self.in_forward = True
        self.calls: list[Call] = []
        self.open: list[Any] = []  # the watches of the running calls, the innermost last
        self._makers: dict[int, tuple[int, Any]] = {}  # by id of a pullback's own code object, or of a callable object
        self._helpers: list[Call] = []  # what else runs in backward
        self._serial = 0

    def __exit__(self, *_: Any) -> None:
        super().__exit__()
        label_calls(self.calls)

    def pairs(self) -> list[Pair]:
        """Every recorded value whose gradient has a name, with that gradient or why the two cannot be compared."""
        return [*pairs_of(self.calls), *self._apart()]

    def _apart(self) -> Iterator[Pair]:
        """Values with the names of a pair that a helper of the forward pass or of its pullback bound."""
        makers = {index for index, _ in self._makers.values()}
        forward = [call for call in self.calls if not call.in_backward]
        arrays = ((name, groups[-1][0].value.array) for call in forward for name, groups in call.bound.items())
        bound = {name: array for name, array in arrays if array is not None}

        def not_checked(label: str, name: str, why_not: str) -> Pair:
            return Pair(-1, name, 0, f"{label}.{name}", bound[name], None, why_not)

        for label, dname in dict.fromkeys(each for helper in self._helpers for each in _bound_by(helper)):
            if dname[0] == "d" and dname[1:] in bound:
                why_not = f"{dname} is bound in {label}, which is not the pullback of the call that binds {dname[1:]}"
                yield not_checked(label, dname[1:], why_not)
        for pullback in [call for call in self.calls if call.maker is not None]:
            owner = self.calls[pullback.forward_call]
            missing = [dname[1:] for dname in pullback.bound if dname[0] == "d" and dname[1:] not in owner.bound]
            for helper in [call for call in forward if missing and self._helps(call, owner, makers)]:
                for name in [name for name in missing if name in helper.bound]:
                    why_not = f"d{name} is bound in the pullback of {owner.name}, but {name} in {helper.name}"
                    yield not_checked(helper.label, name, why_not)

    def _helps(self, call: Call, other: Call, makers: set[int]) -> bool:
        """Whether `other` made this call, directly or through more calls that make no pullback either."""
        while call.parent is not None and call.index not in makers:
            call = self.calls[call.parent]
            if call is other:
                return True
        return False

    @property
    def first_nan(self) -> str:
        """Where forward first bound NaN, such as "softmax.y at (0, 2)"; "" if nowhere."""
        forward = [call for call in self.calls if not call.in_backward]
        bindings = [b for call in forward for groups in call.bound.values() for group in groups for b in group]
        for binding in sorted(bindings, key=lambda binding: binding.serial):
            array = binding.value.array
            if array is not None and np.isnan(array).any():
                return f"{binding.title} at {tuple(np.argwhere(np.isnan(array))[0].tolist())}"
        return ""

    def bind(
        self, call: Call, name: str, value: Value, changed: Group | None = None, origin: int | None = None
    ) -> Group:
        """Record a binding; if `changed` is a group, record there that the numbers of its array have changed."""
        self._serial += 1
        binding = Binding(name, value, call, self._serial, origin, in_place=changed is not None)
        if changed is not None:
            changed.append(binding)
            return changed
        call.bound.setdefault(name, []).append([binding])
        return call.bound[name][-1]

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if not self._wants(frame):
            return None
        maker = self._maker_of(frame)
        call = self._begin(frame, maker)
        # The values that a pullback captured were recorded in the call that made it.
        names = frame.f_code.co_freevars if maker is not None else ()
        watch = self.watch_of(self, call, {name: frame.f_locals[name] for name in names if name in frame.f_locals})
        self.open.append(watch)
        return watch.follow(frame, event, arg)

    def _begin(self, frame: types.FrameType, maker: int | None) -> Call:
        """Record that a call begins. A helper has no place among the calls, nor has the pullback that it makes."""
        is_helper = not (self.in_forward or self.helpers_in_backward) and (maker is None or maker < 0)
        call = Call(
            index=-1 if is_helper else len(self.calls),
            name=label_of(frame) + ("" if self.in_forward or maker is not None else " in backward"),
            code=frame.f_code,
            globals=frame.f_globals,
            parent=self.open[-1].call.index if self.open else None,
            depth=len(self.open),
            maker=maker,
            in_backward=not self.in_forward,
        )
        (self._helpers if is_helper else self.calls).append(call)
        if self._separate and self.in_forward:
            self._note_common(frame, call)
        return call

    def note_result(self, call: Call, result: Any) -> None:
        """Record which pullback a call made, so that its calls are known when they come."""
        is_pair = isinstance(result, tuple) and len(result) == 2 and callable(result[1])
        if is_pair and call.index < 0:  # as a recomputed layer's second run; the first was recorded
            self._helpers.remove(call)
        if pullback := claimed_pullback(result, call.code):
            self._makers[id(pullback.__code__)] = (call.index, pullback.__code__)
        elif self.in_forward and is_pair:
            self._makers.setdefault(id(result[1]), (call.index, result[1]))
        elif self.in_forward and self._separate and (token := token_in(result)) is not None:
            self._makers[id(token)] = (call.index, token)

    def _maker_of(self, frame: types.FrameType) -> int | None:
        """The index of the forward call that this call is the pullback of; None if it is not a pullback."""
        code = frame.f_code
        of_object = frame.f_locals.get("self") if code.co_name == "__call__" else None
        found = self._makers.get(id(code)) or self._makers.get(id(of_object))
        if found is None and self._separate and not self.in_forward:
            found = next(filter(None, (self._makers.get(id(x)) for x in arguments_of(frame))), None)
        return None if found is None else found[0]

    def _note_common(self, frame: types.FrameType, call: Call) -> None:
        """Note what a separate backward will have in common with this call: see tracing.py."""
        first = next(arguments_of(frame), None)
        if (function := function_of(first)) is not None:  # with setup_context, forward itself has no ctx
            code = inspect.unwrap(function.forward).__code__
            last = next((each for each in reversed(self.calls) if each.code is code), call)
            last.name = function.__name__
            self._makers[id(first)] = (last.index, first)
        elif call.code.co_name in ("forward", "__call__") and "self" in frame.f_locals:
            self._makers[id(first)] = (call.index, first)


def _bound_by(helper: Call) -> list[tuple[str, str]]:
    """(label, name) for each name that a helper binds. What it is given, or captures, has its name elsewhere."""
    arguments, several, named = inspect.getargs(helper.code)
    elsewhere = {*arguments, several, named, *helper.code.co_freevars}
    names = [name for name, bindings in helper.bound.items() if len(bindings) > (name in elsewhere)]
    return [(helper.name.removesuffix(" in backward"), name) for name in sorted(names) if helper.maker is None]


def values_inside(name: str, f: Any, *inputs: Any, **options: Any) -> list[np.ndarray]:
    """Run f(*inputs, **options) and return every value that an op, layer or model bound to `name`, in order.

    values_inside("weights", model, ids) gives the attention weights of each layer, (B, H, T_q, T_k).
    """
    f = textbook_of(f)
    with Recorder(f) as recorder:
        f(*inputs, **options)
    groups = [group for call in recorder.calls for group in call.bound.get(name, [])]
    return [group[0].value.array for group in groups if group[0].value.array is not None]


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


class LineRecorder(Recorder):
    """Follows a forward pass, its pullbacks and everything that they call, line by line.

    limit: of an array with more elements, only a summary is kept.
    """

    helpers_in_backward, watch_of = True, _LineWatch

    def __init__(self, f: Any, limit: int) -> None:
        super().__init__(f)
        self.limit = limit
        self.lines: list[Line] = []


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
