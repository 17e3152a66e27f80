"""What flows from box to box of the map: which box reads the result of which other one, inputs, sums and products.

The lines of a box are followed in the order in which they ran. Each name holds a Flow: the places of the map from which
its numbers come without passing through another one. A call of another box takes in the flows of its arguments, and its
results come from that box. A line of the box itself passes on the flows of what it reads; one that adds the result of a
box to something else makes a place of its own, a sum. So a residual connection is a flow from an input to a sum. A line
whose one operation on two arrays is a matrix product makes a place, too: in attention, where q meets k, and v comes in.
"""

import functools
import inspect
import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ....check.trace.calls import Binding, Call
from ....check.trace.values import is_array
from . import expressions as ex
from .boxes import Boxes
from .steps import Step
from .walk import walk_of

Kind: TypeAlias = Literal["input", "box", "sum", "product"]
Place: TypeAlias = tuple[Kind, int]  # for a box, the number is the index of its call
Flow: TypeAlias = "frozenset[Place] | tuple[Flow, ...]"  # a tuple: of each part of a value that has several

NOTHING: Flow = frozenset()
_SIZES = {"shape", "ndim", "size", "dtype"}  # these are not numbers that flow
_OF_SIZES = set("array_module device_of len library zeros zeros_like ones ones_like empty_like arange".split())
_OF_SIZES |= {"lacks_heads"}


@dataclass
class Graph:
    """The places in one box, in an order in which each comes after all that it reads."""

    places: dict[Place, None] = field(default_factory=dict)
    edges: dict[tuple[Place, Place], str] = field(default_factory=dict)  # from, to: what the code calls the value
    inputs: dict[Place, str] = field(default_factory=dict)  # the name in the box
    steps: dict[Place, int] = field(default_factory=dict)  # of a sum or product, the index of the step that computes it
    beside: dict[Place, list[Place]] = field(default_factory=dict)  # by reader: inputs that it alone reads

    def read(self, flow: Flow, reader: Place, name: str) -> None:
        """Note that the reader takes in the flow."""
        for place in sorted(whole(flow)):  # else the page would differ from one process to the next
            if place != reader:
                self.edges.setdefault((place, reader), name)

    def readers(self, name: str) -> list[str]:
        """The places that read a value, as the page writes them; only the sum, where a residual connection ends."""
        found = [
            after
            for (before, after), text in self.edges.items()
            if name in (self.inputs.get(before), *re.findall(r"\w+", text))
        ]
        found += [place for place, inputs in self.beside.items() if name in [self.inputs[other] for other in inputs]]
        found = [place for place in found if place[0] == "sum"] or found
        return [f"{place[0]} {self.steps.get(place, place[1])}" for place in found]

    def meet(self, place: Place, step: int, sides: list[tuple[Flow, str]]) -> Flow:
        """Note that flows meet in a sum or product, and return the flow of its result."""
        self.places[place] = None
        self.steps[place] = step
        for flow, name in sides:
            self.read(flow, place, name)
        return frozenset([place])


def whole(flow: Flow) -> frozenset[Place]:
    """All places of a flow, whatever part they belong to."""
    return union(flow) if isinstance(flow, tuple) else flow


def union(flows: Iterable[Flow]) -> frozenset[Place]:
    """All places of several flows."""
    return frozenset().union(*map(whole, flows))


def graph_of(boxes: Boxes, box: int) -> Graph:
    """The graph of a box, without the inputs that nothing in it reads, and without a sole input that has one reader:
    the box itself shows where that comes from.
    """
    graph = _Frame(boxes, box).graph
    readers: dict[Place, list[Place]] = {place: [] for place in graph.inputs}
    reads: dict[Place, list[Place]] = {}
    for before, after in graph.edges:
        readers.setdefault(before, []).append(after)
        reads.setdefault(after, []).append(before)
    alone = {place for place in graph.inputs if len(readers[place]) == 1}
    for place in graph.inputs:
        for reader in readers[place] if place in alone else ():
            if not alone.issuperset(reads[reader]):
                graph.beside.setdefault(reader, []).append(place)
                del graph.edges[place, reader]
    beside = {place for places in graph.beside.values() for place in places}
    inputs = [place for place in graph.inputs if readers[place] and place not in beside]
    if len(inputs) == 1 and inputs[0] in alone:
        first = inputs.pop()
        del graph.edges[first, readers[first][0]]
    graph.places = dict.fromkeys([*inputs, *graph.places])
    return graph


class _Frame:
    """Follows the lines of one box: of its call, and of the helpers that have no box of their own."""

    def __init__(self, boxes: Boxes, box: int) -> None:
        self.boxes, self.recording, self.box = boxes, boxes.recording, box
        self.graph = Graph()
        self.at: dict[int, Flow] = {}  # by the serial of a binding in the box
        self.names: dict[int, dict[str, Flow]] = {}  # by call: what each name holds
        self.numbers: dict[tuple[int, int], int] = {}  # of sums and products, by step and node
        call = self.recording.calls[box]
        first = self.recording.steps_of(call)[0]
        given: dict[str, Flow] = {bound.name: self._input(bound) for bound in first.bound if _is_data(bound)}
        for name, value in first.other.items():
            if _holds_arrays(value):
                place: Place = ("input", -1 - len(self.graph.inputs))  # no binding has it
                self.graph.inputs[place] = name
                given[name] = frozenset([place])
        self._run(call, given)

    def outside(self, call: Call, name: str) -> Flow:
        """What a nested function reads of the functions around it: in this box, or an input of the box."""
        while call.parent is not None:
            call = self.recording.calls[call.parent]
            if name in self.names.get(call.index, ()):
                return self.names[call.index][name]
            for bound in (b for step in self.recording.steps_of(call) for b in step.bound if b.name == name):
                return self._input(bound) if _is_data(bound) and call.index not in self.names else NOTHING
        return NOTHING

    def _input(self, bound: Binding) -> Flow:
        """An array that comes from outside of the box; under several names, it is one input."""
        place: Place = ("input", self.recording.first(bound).serial)
        self.graph.inputs.setdefault(place, bound.name)
        return frozenset([place])

    def _run(self, call: Call, given: dict[str, Flow]) -> Flow:
        """Follow a call of this box from its arguments to what it returns."""
        names = self.names[call.index] = dict(given)
        result: Flow = NOTHING
        for step in self.recording.steps_of(call):
            result = _Line(self, step, names).follow()
            for name, value in step.other.items():
                if value is None or callable(value) or isinstance(value, str | types.ModuleType):
                    names.pop(name, None)  # no numbers
            for bound in step.bound:
                if not _is_data(bound) and not bound.value.dtype.startswith("float"):
                    names.pop(bound.name, None)
                self.at[bound.serial] = names.get(bound.name, NOTHING)
        return result

    def enter(self, call: Call, given: dict[str, Flow], names: dict[str, str]) -> Flow:
        """The flow of what a call within this box returns. given: by argument; names: what the caller calls them."""
        box = self.boxes.of[call.index]
        if box == self.box:
            return self._run(call, given)
        if box not in self.boxes.drawn:
            return union(given.values())
        place: Place = ("box", box)
        self.graph.places[place] = None
        for argument, flow in given.items():
            self.graph.read(flow, place, names.get(argument, argument))
        return frozenset([place])

    def of_binding(self, serial: int) -> Flow:
        """The flow of an array that a name holds somewhere: in this box, in one of its inner boxes, or outside."""
        if serial in self.at:
            return self.at[serial]
        bound = self.recording.binding(serial)[1]
        for box in self.boxes.path(self.boxes.of[bound.call.index]):
            if ("box", box) in self.graph.places:
                return frozenset([("box", box)])
            if box == self.box:
                return self.of_binding(bound.origin) if bound.origin is not None else NOTHING
        return self._input(bound)

    def add(self, step: Step, node: object, sides: list[tuple[Flow, str]]) -> Flow:
        """The flow of a sum. It has a place of its own if a box or a sum flows into it, and something else, too."""
        flows = [whole(flow) for flow, _ in sides]
        some = [flow for flow in flows if flow]
        if len(set(some)) < 2 or not any(kind != "input" for flow in some for kind, _ in flow):
            return union(flows)
        place: Place = ("sum", self.numbers.setdefault((step.index, id(node)), len(self.numbers)))
        for before in flows[0]:  # a total that grows from line to line is one sum
            if before[0] == "sum" and self._continues(before, step):
                place = before
                del self.graph.places[place]
        return self.graph.meet(place, step.index, sides)

    def multiply(self, step: Step, node: object, sides: list[tuple[Flow, str]]) -> Flow:
        """The flow of a matrix product. It has a place of its own if two different flows meet there."""
        if not all(whole(flow) for flow, _ in sides) or whole(sides[0][0]) == whole(sides[1][0]):
            return union(flow for flow, _ in sides)
        place: Place = ("product", self.numbers.setdefault((step.index, id(node)), len(self.numbers)))
        return self.graph.meet(place, step.index, sides)

    def _continues(self, place: Place, step: Step) -> bool:
        """Whether the step is the line of this sum once more, and nothing else has read it so far."""
        before = self.recording.steps[self.graph.steps[place]]
        is_same = (before.call, before.line) == (step.call, step.line) and ex.read(step.source).kind == "change"
        return is_same and not any(edge[0] == place for edge in self.graph.edges)


class _Line:
    """Follows one executed line."""

    def __init__(self, frame: _Frame, step: Step, names: dict[str, Flow]) -> None:
        self.frame, self.step, self.names = frame, step, names
        self.recording = frame.recording
        self.call = self.recording.calls[step.call]
        self.inner = self.recording.calls_in(step)
        self.walk = walk_of(self.recording, step)
        self.statement = self.walk.statement if self.walk.statement.kind else ex.read(f"{step.source}\n    pass")
        self.parts = self.statement.everything
        calls = [part for part in self.parts if isinstance(part, ex.Applied)]
        self.made = {part.node: call for part in calls if (call := self.walk.call_of(part)) is not None}
        left = [call for call in self.inner if call not in self.made.values()]
        if left and self.walk.statement.kind:  # getattr(ops, name)(x): the line computes which function it calls
            unknown = [part for part in calls if part.node not in self.made and self.walk.callee(part) is None]
            if len(left) == len(unknown) == 1:
                self.made[unknown[0].node] = left[0]

    @functools.cached_property
    def only_multiplies(self) -> bool:
        """Whether the line has one matrix product, adds nothing, and runs once: a loop would make many places."""
        symbols = [part.symbol for part in self.parts if isinstance(part, ex.Operation)]
        once = sum(step.line == self.step.line for step in self.recording.steps_of(self.call)) == 1
        return symbols.count("@") == 1 and "+" not in symbols and not self.inner and once

    def follow(self) -> Flow:
        """Bind what the line binds, and return the flow of what it returns."""
        statement, value, matched = self.statement, self.statement.value, set(self.made.values())
        if value is None or statement.kind == "":
            return NOTHING
        left = [self.frame.enter(call, *self._passed(call)) for call in self.inner if call not in matched]
        flow = self.of(value)
        if union(left):
            flow = union([flow, *left])
        match statement:
            case ex.Statement("return"):
                return flow
            case ex.Statement("call", _, ex.Applied(function=ex.Member(ex.Name(changed)))):  # rows.append(y)
                if changed in self.names:
                    self.names[changed] = union([self.names[changed], flow])
            case ex.Statement("call"):  # such as scatter_add(total, ids, rows)
                for bound in (each for each in self.step.bound if each.in_place):
                    self.names[bound.name] = union([self.names.get(bound.name, NOTHING), flow])
        for target in statement.targets:
            self._bind(target, flow)
        if statement.kind == "for":
            for bound in self.step.bound:  # the array itself tells which of the values it is
                if bound.origin is not None:
                    self.names[bound.name] = self.frame.of_binding(bound.origin)
        return NOTHING

    def of(self, whole: ex.Expression) -> Flow:
        """The flow of an expression."""
        match whole:
            case ex.Name(name):
                return self._of_name(name)
            case ex.Operation(",", parts) if not any(ex.is_joined(part, "starred") for part in parts):
                return tuple(map(self.of, parts))
            case ex.Operation(":=", (target, value)):
                flow = self.of(value)
                self._bind(target, flow)
                return flow
            case ex.Member(name=name) if name in _SIZES:
                return NOTHING
            case ex.Operation("[]", (value, at)):
                flow = self.of(value)
                if isinstance(flow, tuple) and isinstance(at, ex.Number) and isinstance(at.value, int):
                    return flow[at.value]
                known = any(name in self.names for name in ex.names(value))
                return flow if known else self.of(at)  # of a table that nothing computed, the ids are the data
            case ex.Operation("+"):
                sides = [(self.of(side), side.text) for side in _addends(whole)]
                return self.frame.add(self.step, whole.node, sides)
            case ex.Operation("@", parts) if self.only_multiplies:
                return self.frame.multiply(self.step, whole.node, [(self.of(side), side.text) for side in parts])
            case ex.Operation("if", (_, yes, no)):
                try:
                    return self.of(self.walk.chosen(whole))
                except ex.NotExpandable:
                    return union([self.of(yes), self.of(no)])
            case ex.Applied() if whole.node in self.made:
                call = self.made[whole.node]
                return self.frame.enter(call, *self._passed(call, whole))
            case ex.Applied(name) if name in _OF_SIZES:
                return NOTHING
            case ex.Operation("lambda"):
                return NOTHING
            case ex.Operation("for", parts):
                kept = dict(self.names)
                for loop in parts:
                    if ex.is_joined(loop, "each"):
                        self._bind(ex.inner(loop)[0], self.of(ex.inner(loop)[1]))
                flow = union(self.of(part) for part in parts if not ex.is_joined(part, "each"))
                self.names.clear()
                self.names.update(kept)
                return flow
        return union(map(self.of, ex.inner(whole)))

    def _of_name(self, name: str) -> Flow:
        if name not in self.names and name in self.call.code.co_freevars:
            return self.frame.outside(self.call, name)
        return self.names.get(name, NOTHING)

    def _captured(self, code: types.CodeType) -> dict[str, Flow]:
        """What a nested function reads by name, itself or in other functions that it calls by name."""
        found: dict[str, Flow] = {}
        for name in code.co_freevars:
            value = self.walk.names.get(name)
            if isinstance(value, types.FunctionType) and value.__code__ is not code:
                found |= self._captured(value.__code__)
            else:
                found[name] = self.names[name] if name in self.names else self.frame.outside(self.call, name)
        return found

    def _passed(self, call: Call, made: ex.Applied | None = None) -> tuple[dict[str, Flow], dict[str, str]]:
        """By argument: the flow that the caller's code passes, and the caller's name for it.

        made: the code of the call. Where it was not found, the call may have been given all that the line reads.
        """
        flows = self._captured(call.code)
        texts: dict[str, str] = {}
        first = self.recording.steps_of(call)[0]
        bound = {b.name: b for b in first.bound if _is_data(b)}
        unpacked: list[ex.Expression] = [part for part in self.parts if isinstance(part, ex.Name)]
        if made is not None:
            unpacked = [part for part in made.parts if ex.is_joined(part, "starred")]
            unpacked += [part for key, part in made.options.items() if key.startswith("**")]
        for name in dict.fromkeys([*bound, *first.other]):
            if name in call.code.co_freevars:
                continue
            expression = None if made is None else ex.argument_in(made, call.code, name)
            flows[name] = NOTHING
            if made is not None and name == _rest(call.code):
                positional = made.parts[call.code.co_argcount - ("self" in ex.arguments(call.code)) :]
                flows[name] = union(map(self.of, positional))
            elif expression is not None:
                flows[name] = self.of(expression)
                texts[name] = expression.text
            elif unpacked and (name in bound or _holds_arrays(first.other[name])):
                origin = bound[name].origin if name in bound else None  # the array itself tells where it comes from
                flows[name] = union(map(self.of, unpacked)) if origin is None else self.frame.of_binding(origin)
        return flows, texts

    def _bind(self, target: ex.Expression, flow: Flow) -> None:
        match target:
            case ex.Name(name):
                self.names[name] = flow
            case ex.Operation("[]", (ex.Name(name), at)):
                self.names[name] = union([self.names.get(name, NOTHING), flow, self.of(at)])
            case ex.Operation("starred", (part,)):
                self._bind(part, flow)
            case ex.Operation(",", parts):
                apart = isinstance(flow, tuple) and len(flow) == len(parts)
                apart = apart and not any(ex.is_joined(part, "starred") for part in parts)
                for i, part in enumerate(parts):
                    self._bind(part, flow[i] if apart and isinstance(flow, tuple) else whole(flow))


def _rest(code: types.CodeType) -> str | None:
    """The name of *args."""
    return code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else None


def _addends(whole: ex.Expression) -> Iterator[ex.Expression]:
    """a, b and c of a + b + c."""
    if isinstance(whole, ex.Operation) and whole.symbol == "+":
        for part in whole.parts:
            yield from _addends(part)
    else:
        yield whole


def _is_data(bound: Binding) -> bool:
    return bound.value.shape != ()


def _holds_arrays(value: Any) -> bool:
    return isinstance(value, tuple | list) and any(map(is_array, value))
