"""Record running code with `sys.settrace`: its calls, and what they bind to names. There are two levels of detail.

A Recorder keeps the floating-point arrays of the forward pass and of its pullbacks, which is all that a gradient check
needs. A LineRecorder (lines.py) keeps every line and every number. Both copy each array at once, so that nothing that
happens later can change the record.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from .calls import Binding, Call, Group, Pair, label_calls, pairs_of
from .foreign import arguments_of, as_numpy, function_of, token_in
from .tracing import Traced, claimed_pullback, label_of, newly_bound, textbook_of
from .values import Value, copied, is_float_array, same_numbers


class Recorder(Traced):
    """Follows a forward pass and then, once `in_forward` is False, its pullbacks.

    with Recorder(f) as recorder:
        y, backward = f(x)
    recorder.in_forward = False
    with recorder:
        backward(dy)

    only: the names to keep, if not all; a large model has gigabytes of arrays.
    """

    helpers_in_backward = False  # whether to follow the functions that pullbacks call, too

    def __init__(self, f: Any, only: Collection[str] | None = None) -> None:
        super().__init__(f)
        self.only = only
        self.in_forward = True
        self.calls: list[Call] = []
        self.open: list[Any] = []  # the watches of the running calls, the innermost last
        self._makers: dict[int, tuple[int, Any]] = {}  # by id of a pullback's own code object, or of a callable object
        self._again: dict[int, Any] = {}  # code of the pullbacks that are made in backward, by id
        self._strays: dict[tuple[str, str], None] = {}  # (label, name) of arrays that other functions bind in backward
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

        for label, dname in self._strays:
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

    def _watch(self, call: Call, captured: dict[str, Any]) -> Watch:
        return Watch(self, call, captured)

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if not self._wants(frame):
            return None
        maker = self._maker_of(frame)
        if not (self.in_forward or maker is not None or self.helpers_in_backward):
            again = id(frame.f_code) in self._again
            return None if again else _Stray(self, frame).follow(frame, event, arg)
        call = self._begin(frame, maker)
        # The values that a pullback captured were recorded in the call that made it.
        names = frame.f_code.co_freevars if maker is not None else ()
        watch = self._watch(call, {name: frame.f_locals[name] for name in names if name in frame.f_locals})
        self.open.append(watch)
        return watch.follow(frame, event, arg)

    def _begin(self, frame: types.FrameType, maker: int | None) -> Call:
        """Record that a call begins."""
        call = Call(
            index=len(self.calls),
            name=label_of(frame) + ("" if self.in_forward or maker is not None else " in backward"),
            code=frame.f_code,
            globals=frame.f_globals,
            parent=self.open[-1].call.index if self.open else None,
            depth=len(self.open),
            maker=maker,
            in_backward=not self.in_forward,
        )
        self.calls.append(call)
        if self._separate and self.in_forward:
            self._note_common(frame, call)
        return call

    def note_result(self, call: Call, result: Any) -> None:
        """Record which pullback a call made, so that its calls are known when they come."""
        if pullback := claimed_pullback(result, call.code):
            self._makers[id(pullback.__code__)] = (call.index, pullback.__code__)
        elif self.in_forward and isinstance(result, tuple) and len(result) == 2 and callable(result[1]):
            self._makers.setdefault(id(result[1]), (call.index, result[1]))
        elif self.in_forward and self._separate and (token := token_in(result)) is not None:
            self._makers[id(token)] = (call.index, token)

    def note_stray(self, stray: _Stray, result: Any) -> None:
        """Record the names that a function which is no pullback bound in backward."""
        if pullback := claimed_pullback(result, stray.code):  # a recomputed layer's second run; the first was recorded
            self._again[id(pullback.__code__)] = pullback.__code__
        elif not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
            self._strays.update(dict.fromkeys((stray.label, name) for name in sorted(stray.names)))

    def _maker_of(self, frame: types.FrameType) -> int | None:
        """The index of the forward call that this call is the pullback of; None if it is not a pullback."""
        code = frame.f_code
        of_object = frame.f_locals.get("self") if code.co_name == "__call__" else None
        found = self._makers.get(id(code)) or self._makers.get(id(of_object))
        if found is None and self._separate and not self.in_forward:
            found = next(filter(None, (self._makers.get(id(x)) for x in arguments_of(frame))), None)
        return None if found is None else found[0]

    def _note_common(self, frame: types.FrameType, call: Call) -> None:
        """Note what a separate backward will have in common with this call: see foreign.py."""
        first = next(arguments_of(frame), None)
        if (function := function_of(first)) is not None:  # with setup_context, forward itself has no ctx
            code = inspect.unwrap(function.forward).__code__
            last = next((each for each in reversed(self.calls) if each.code is code), call)
            last.name = function.__name__
            self._makers[id(first)] = (last.index, first)
        elif call.code.co_name in ("forward", "__call__") and "self" in frame.f_locals:
            self._makers[id(first)] = (call.index, first)


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


class _Stray:
    """Watches which arrays a function that is not a pullback binds in backward."""

    def __init__(self, recorder: Recorder, frame: types.FrameType) -> None:
        self.recorder, self.code, self.label = recorder, frame.f_code, label_of(frame)
        self.names: set[str] = set()
        self._held = dict(frame.f_locals)  # its arguments have their names elsewhere

    def follow(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        bound = newly_bound(self._held, frame.f_locals)
        self.names.update(name for name, value in bound if is_float_array(as_numpy(value)))
        if event == "return":
            self.recorder.note_stray(self, arg)
        return self.follow


def values_inside(name: str, f: Any, *inputs: Any, **options: Any) -> list[np.ndarray]:
    """Run f(*inputs, **options) and return every value that an op, layer or model bound to `name`, in order.

    values_inside("weights", model, ids) gives the attention weights of each layer, (B, H, T_q, T_k).
    """
    f = textbook_of(f)
    with Recorder(f) as recorder:
        f(*inputs, **options)
    groups = [group for call in recorder.calls for group in call.bound.get(name, [])]
    return [group[0].value.array for group in groups if group[0].value.array is not None]
