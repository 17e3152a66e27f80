"""The data of the page: a recording as JSON that holds each line, array and formula once.

Most lines of a recording run many times, and most arrays have many names, as arguments and as results. So both are kept
in tables, and each use is an index into its table. Small arrays keep every digit. Larger ones are float32, which
suffices for a heat map. Of arrays above a limit, only the range, the mean and a corner are kept; the limit falls until
the page is small enough.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....check.trace.calls import Binding, Call
from ....check.trace.values import CORNER, Value, copied, corner_of, summary_of
from ..page import packed
from . import mathml
from .drawing import verdict
from .expansion import term_of
from .expressions import Applied, Name, NotExpandable, Number, Operation, numbers, read
from .page_map import map_data
from .paper import paper, parameter, returned
from .sentences import sections, sentence_of
from .steps import Step, Steps, counts, is_float
from .stops import stops_of
from .symbols import LETTERS, symbols_of
from .terms import Term

EXACT = 400  # cells: larger arrays are drawn as a picture, for which float32 is enough
BUDGET = 6_000_000  # characters for all arrays together
EXPANDED = 12_000  # cells whose sums are written out, in all arrays together
_LIMITS = (1 << 30, 65536, 16384, 4096, 2048, 1024, 512, 256, 64, 16)
_CELL_LIMITS = (400, 256, 128, 64, 32, 16, 8)


def page_data(recording: Steps, tokens: Sequence[str] = (), memory: Sequence[str] = ()) -> dict[str, Any]:
    """The recording as a dict for JSON, with tables of all sources, lines, arrays and terms."""
    labels = {"tokens": [str(token) for token in tokens], "memory": [str(token) for token in memory]}
    return _Page(recording).data() | labels


class _Page:
    def __init__(self, recording: Steps) -> None:
        self.recording = recording
        self.arrays = Pool()
        self.sources = Table()
        self.lines = Table()
        self.symbols = Table()
        self.number_of = recording.number_of
        self.stops = stops_of(recording)

    def data(self) -> dict[str, Any]:
        steps = [self._step(step) for step in self.recording.steps]
        terms, cell_limit = self._expand(steps)
        calls = [self._call(call) for call in self.recording.calls]
        arrays, limit = self.arrays.fitted()
        pairs = zip(self.recording.steps, steps, strict=True)
        shown = {step.index for step, entry in pairs if entry["shown"] and step.call not in self.stops.idle}
        return {
            "name": self.recording.name,
            "calls": calls,
            "sources": self.sources.items,
            "steps": steps,
            "lines": self.lines.items,
            "output": self.number_of.get(self.recording.calls[0].results[0].serial),
            "names": {bound.name: mathml.as_lists(mathml.name(bound.name)) for _, bound in self.recording.bindings},
            "symbols": self.symbols.items,
            "arrays": arrays,
            "terms": terms,
            "changes": [],  # the numbers that mistakes change; see page_bugs.py
            "limits": {"array": limit, "exact": EXACT, "expanded": cell_limit},
            "map": map_data(self.recording, shown),
            "verified": self.recording.report is not None,
            "glossary": sections()["glossary"],
            "dictionary": self._dictionary(),
        }

    def _dictionary(self) -> list[tuple[str, list[Any]]]:
        """What the code and the chapters call a value that has a letter here: scores, which is S."""
        seen = [b for s, b in self.recording.bindings if is_shown(s) and b.value.shape and not b.call.in_backward]
        written = {b.name: b for b in seen if "_" not in b.name}
        named = [(name, symbols_of(self.recording).of(written[name])) for name in LETTERS if name in written]
        return [(name, mathml.as_lists(symbol)) for name, symbol in named if symbol.text in LETTERS.values()][:6]

    def _call(self, call: Call) -> dict[str, Any]:
        forward = self.recording.calls[call.forward_call]
        return {
            "label": call.label,
            "backward": call.in_backward,
            "parent": call.parent,
            "forward": call.forward_call,
            "source": self.sources.add(code_of(forward)),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        stop = self.stops.found.get(step.index)
        returned = [self.number_of[bound.serial] for bound in self.recording.returned(step)]
        told: dict[str, Any] = {"given": self._given(step) if is_shown(step) else [], "returned": returned}
        if stop is not None:
            told |= {"stop": True, "into": stop.into, "also": [self.number_of[bound.serial] for bound in stop.also]}
        return {
            **{key: value for key, value in told.items() if value not in ([], None)},
            "call": step.call,
            "line": self.lines.add(line_of(self.recording, step)),
            "bound": [self._bound(step, bound) for bound in step.bound],
            "shown": stop is not None or is_shown(step),
        }

    def _given(self, step: Step) -> list[int]:
        """The arrays that the line gives to what it calls and that have no name here, such as a layer's weights."""
        found = []
        waiting = list(self.recording.calls_in(step))
        while waiting:
            call = waiting.pop(0)
            steps = self.recording.steps_of(call)
            if call.name == "Linear":  # a product with its weights, which are one call deeper
                waiting = [inner for other in steps for inner in self.recording.calls_in(other)] + waiting
            found += [b for b in steps[0].bound if b.value.shape and b.origin is None and not call.backward]
            if call.backward and self.stops.is_folded(call):  # what it reads of the forward pass
                seen = [(self.recording.visible(other), name) for other in steps for name in _names_read(other.source)]
                read = [names[name] for names, name in seen if name in names and not names[name].call.in_backward]
                found += filter(None, map(symbols_of(self.recording).outside, read))
        return [self.number_of[bound.serial] for bound in found if is_float(bound)]

    def _bound(self, step: Step, bound: Binding) -> dict[str, Any]:
        """A name that the step bound. array, numerical: indices into the table of arrays, of its numbers and of the
        finite differences to compare them with. symbol: the index of what papers call it; outside: of what the caller
        calls it. origin, pair: numbers of bindings: of this very array under another name, and of the value whose
        gradient this is. told: the result of a gradient's check, if it lacks a finite difference for some number, or
        rounding hides one.
        """
        symbols = symbols_of(self.recording)
        out: dict[str, Any] = {"name": bound.name, "array": self.arrays.hold(bound.value)}
        named = symbols.outside(bound)
        outside = parameter(self.recording, bound)
        if outside is None and named is not None:
            outside = symbols.of(named)
        for key, written in (("symbol", symbols.of(bound)), ("outside", outside)):
            if written is not None:
                out[key] = self.symbols.add(mathml.as_lists(written))
        if self.recording.is_gradient(bound):
            out["gradient"] = True
        if bound.origin in self.number_of:
            out["origin"] = self.number_of[bound.origin]
        value = self.recording.pair_of(step, bound)
        if value is not None:
            out["pair"] = self.number_of[value.serial]
        row = self.recording.check_of(step, bound)
        full = None if row is None or row.hidden else row.full  # the gap of an entry that rounding hides says nothing
        if full is not None and full.numerical.shape == bound.value.shape:
            out["numerical"] = self.arrays.hold(copied(full.numerical))
        elif told := verdict(self.recording, step, bound):
            out["told"] = told
        return out

    def _expand(self, steps: list[dict[str, Any]]) -> tuple[list[Any], int]:
        """Write out where the numbers come from, for all arrays up to a size that fits: (terms, this size in cells)."""
        places = []
        for step, entry in zip(self.recording.steps, steps, strict=True):
            line = self.lines.items[entry["line"]]
            seen = self.recording.visible(step) if entry["shown"] else {}
            read = max((math.prod(seen[name].value.shape) for name in line["uses"] if name in seen), default=0)
            if entry["shown"] and read <= EXACT:  # a sum of more cells is too long to read
                places += [(step, i) for i, b in enumerate(step.bound) if is_expandable(b)]
        sizes = [math.prod(step.bound[i].value.shape) for step, i in places]
        fitting = (limit for limit in _CELL_LIMITS if sum(s for s in sizes if s <= limit) <= EXPANDED)
        limit = next(fitting, 0)
        terms = Table()
        for (step, i), size in zip(places, sizes, strict=True):
            if size <= limit:
                steps[step.index]["bound"][i]["from"] = written_out(
                    self.recording, step, step.bound[i], self.number_of, terms
                )
        return terms.items, limit


def is_expandable(bound: Binding) -> bool:
    """Whether its numbers, or what is true of them, were computed here and recorded in full."""
    has_numbers = is_float(bound) or (bound.value.dtype == "bool" and bound.value.shape != ())
    return has_numbers and bound.value.array is not None and bound.origin is None


def written_out(
    recording: Steps, step: Step, bound: Binding, number_of: dict[int, int], terms: Table
) -> dict[str, Any]:
    """Where the numbers of a binding come from: for each cell, a term without its numbers, and the cells they are in.

    Each of these cells is the number of a binding and the place in it, so the page can put in other numbers.
    """
    places, cells = [], []
    try:
        for index in np.ndindex(bound.value.shape):
            used: list[int] = []
            term = _without_numbers(recording, term_of(recording, step, bound, index), used, number_of)
            places.append(terms.add(term))
            cells.append(used)
    except NotExpandable as error:
        return {"why": f"{str(error).rstrip('.')}."}
    return {"terms": places, "cells": cells}


def is_frozen(recording: Steps, step: Step, bound: Binding, number_of: dict[int, int]) -> bool:
    """Whether the first cell of a binding was computed from a number that other inputs would change, but that is not
    known by its place: the result of a call without a name here, or what only the wrong code binds.
    """
    term = term_of(recording, step, bound, (0,) * len(bound.value.shape))
    constants = [n.value for n in numbers(term) if n.serial is None and isinstance(n.value, float)]
    lost = any(n.serial is not None and n.serial not in number_of for n in numbers(term))
    return lost or any(f"{abs(x):g}" not in step.source and repr(abs(x)) not in step.source for x in constants)


def _without_numbers(recording: Steps, term: Term, used: list[int], number_of: dict[int, int]) -> int | str | list[Any]:
    """The term with constants as texts, in all their digits, and each recorded number as its index in `used`."""
    if isinstance(term, Number):
        if term.serial is None or term.serial not in number_of:
            return repr(int(term.value) if isinstance(term.value, bool) else term.value)
        shape = recording.binding(term.serial)[1].value.shape
        used += [number_of[term.serial], int(np.ravel_multi_index(term.index, shape)) if shape else 0]
        return len(used) // 2 - 1
    assert isinstance(term, Operation | Applied)
    sign = term.symbol if isinstance(term, Operation) else term.name
    return [sign, *(_without_numbers(recording, part, used, number_of) for part in term.parts)]


def is_shown(step: Step) -> bool:
    """Whether a step is one to stop at."""
    return not step.quiet and any(map(counts, step.bound))


def line_of(recording: Steps, step: Step) -> dict[str, Any]:
    """A line: its place in its file, its text, its formulas, the names it reads, and what it does, in a sentence.

    paper: the formula as papers write it; where there is none, math: as the code has it. None where there is none.
    entry: whether it is the head of a function, so that its step shows the arguments of the call.
    """
    call = recording.calls[step.call]
    is_lambda = call.code.co_name == "<lambda>"
    entry = step is recording.steps_of(call)[0] and not is_lambda
    element = returned(recording, step)
    if element is None:
        element = mathml.formula(f"{step.source}\n    pass" if entry else step.source, recording.scalars(step))
    written = paper(recording, step, entry) if is_shown(step) else None
    names = [] if entry else _names_read(step.source)
    if is_lambda:  # its line is that of the function around it, which reads other names
        names = [name for name in names if name in call.code.co_freevars]
    if written is not None:  # an argument that the formula leaves out, a temperature of 1
        given, told = recording.steps_of(recording.calls[call.forward_call])[0].bound, "".join(written.itertext())
        ones = [b for b in given if b.value.shape == () and b.value.array == 1.0]
        left_out = {b.name for b in ones if "".join(symbols_of(recording).of(b).itertext()) not in told}
        names = [name for name in names if name not in left_out]
    return {
        "first": step.line,
        "last": step.line + step.source.count("\n"),
        "text": step.source,
        "entry": entry or is_lambda,
        "math": None if element is None or written is not None else mathml.as_lists(element),
        "paper": None if written is None else mathml.as_lists(written),
        "uses": names,
        "sentence": sentence_of(recording, step),
    }


def _names_read(text: str) -> list[str]:
    """The names that a statement reads, in the order of the text, each once."""
    found = [part for part in read(text).everything if isinstance(part, Name) and not part.stored]
    found.sort(key=lambda part: (part.node.lineno, part.node.col_offset))  # type: ignore[union-attr]
    return list(dict.fromkeys(part.id for part in found))


def code_of(call: Call) -> dict[str, Any]:
    """The code of a call: the number of its first line, and its lines."""
    return {"first": call.first_line, "lines": _listing(call.source)}


@functools.lru_cache(maxsize=256)
def _listing(source: tuple[str, ...]) -> list[str]:
    """The lines of a function. Those of its docstring are empty: the page need not repeat it."""
    lines = list(source)
    definition = read(textwrap.dedent("\n".join(lines))).node
    if isinstance(definition, ast.FunctionDef) and ast.get_docstring(definition) is not None:
        documentation = definition.body[0]
        for i in range(documentation.lineno - 1, documentation.end_lineno or documentation.lineno):
            lines[i] = ""
    return lines


class Table:
    """A list that holds each item once."""

    def __init__(self, items: list[Any] | None = None) -> None:
        self.items: list[Any] = [] if items is None else items
        self._places: dict[Any, int] = {json.dumps(item): place for place, item in enumerate(self.items)}

    def add(self, item: Any, key: Any = None) -> int:
        """The item's index in the list. A new item is added first. key: what tells it from others, if not its JSON."""
        key = json.dumps(item) if key is None else key
        if key not in self._places:
            self._places[key] = len(self.items)
            self.items.append(item)
        return self._places[key]


class Pool(Table):
    """All arrays of the page, each once."""

    def hold(self, value: Value) -> int:
        """The array's index in the pool."""
        kept = value.corner if value.array is None else value.array
        assert kept is not None
        return self.add(value, (value.shape, value.summary, kept.dtype.str, kept.tobytes()))

    def fitted(self) -> tuple[list[dict[str, Any]], int]:
        """The arrays for JSON, and the size in cells up to which they are kept whole to fit the budget."""
        for limit in _LIMITS:
            if sum(_length(value.array, limit) for value in self.items) <= BUDGET:
                break
        arrays = [value.array for value in self.items if value.array is not None]
        largest = max((array.size for array in arrays if array.size <= limit), default=0)
        return [_encoded(value, limit) for value in self.items], min(limit, largest)


def _length(array: np.ndarray | None, limit: int) -> int:
    if array is None or array.size > limit:
        return 80 if limit == _LIMITS[-1] else 80 + 6 * CORNER**2
    return 19 * array.size if array.size <= EXACT else 6 * array.size


def _encoded(value: Value, limit: int) -> dict[str, Any]:
    """An array for JSON; above the limit only its summary and, except at the lowest limit, its corner."""
    array = value.array
    out: dict[str, Any] = {"shape": list(value.shape), "kind": value.dtype if array is None else str(array.dtype)}
    if array is not None and array.size <= limit:
        return out | ({"data": plain(array)} if array.size <= EXACT else {"float32": packed(array)})
    out["summary"] = value.summary if array is None else summary_of(array)
    if limit == _LIMITS[-1]:
        return out
    corner = value.corner if array is None else corner_of(array)
    assert corner is not None
    return out | {"corner": {"shape": list(corner.shape), "kind": out["kind"], "float32": packed(corner)}}


def plain(array: np.ndarray) -> list[Any]:
    """The numbers in order, for JSON. It has no infinity and no NaN, so these become texts."""
    out: list[Any] = []
    for number in array.ravel().tolist():
        if isinstance(number, float) and not math.isfinite(number):
            out.append(str(number))
        else:
            out.append(int(number) if number == int(number) else number)
    return out
