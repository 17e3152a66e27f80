"""What the page is given: a recording as JSON, with each line, array and formula in it once.

Most lines of a recording run many times and most arrays are bound under many names (an argument here, a result there), so
both are kept in tables and named by their place. Small arrays hold every digit; larger ones are float32, which suffices
for a heat map; and of those above a limit, which falls until the page is small enough, only the range and mean are kept.
"""

from __future__ import annotations

import ast
import base64
import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import mathml
from .expansion import NotExpandable
from .page_cells import templates
from .recording import Bound, Call, Recording, Step

EXACT = 400  # cells: larger arrays are drawn as a picture, for which float32 is enough
BUDGET = 6_000_000  # characters for all arrays together
EXPANDED = 12_000  # cells, all arrays together, whose sums are written out
_LIMITS = (1 << 30, 65536, 16384, 4096, 2048, 1024, 512, 256, 64, 16)
_CELL_LIMITS = (400, 256, 128, 64, 32, 16, 8)


def page_data(recording: Recording, tokens: Sequence[str] = ()) -> dict[str, Any]:
    """The recording as JSON can hold it; see the comments at the keys."""
    return _Page(recording).data() | {"tokens": [str(token) for token in tokens]}


class _Page:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.arrays = Pool()
        self.sources = Table()
        self.lines = Table()
        self.titles = Table()
        self.texts = Table()
        self._forward_values: dict[tuple[int, str], Bound] = {}
        self._scalars: dict[str, set[str]] = {}
        self._sizes: dict[tuple[str, str], int] = {}  # by label and name, in cells

    def data(self) -> dict[str, Any]:
        steps = [self._step(step) for step in self.recording.steps]
        cell_limit = self._expand(steps)
        calls = [self._call(call) for call in self.recording.calls]
        arrays, limit = self.arrays.fitted()
        return {
            "name": self.recording.name,
            "calls": calls,
            "sources": self.sources.items,
            "steps": steps,
            "lines": self.lines.items,
            "names": {b.name: mathml.as_lists(mathml.name(b.name)) for s in self.recording.steps for b in s.bound},
            "arrays": arrays,
            "titles": self.titles.items,
            "texts": self.texts.items,
            "limits": {"array": limit, "exact": EXACT, "expanded": cell_limit},
            "verified": self.recording.report is not None,
        }

    def _call(self, call: Call) -> dict[str, Any]:
        forward = self.recording.calls[call.forward_call]
        return {
            "label": call.label,
            "backward": call.backward,
            "parent": call.parent,
            "forward": call.forward_call,
            "source": self.sources.add({"first": forward.first_line, "lines": listing(forward.source)}),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        call = self.recording.calls[step.call]
        known = self._scalars.setdefault(call.label, set())
        known |= {bound.name for bound in step.bound if bound.value.shape == ()}
        bound = [self._bound(step, b) for b in step.bound]
        if not call.backward:
            self._forward_values |= {(call.index, b.name): b for b in step.bound}
        return {
            "call": step.call,
            "line": self.lines.add(line_of(call, step, known)),
            "bound": bound,
            "shown": not call.label.startswith("_check") and any(map(_counts, step.bound)),
        }

    def _bound(self, step: Step, bound: Bound) -> dict[str, Any]:
        """A name that the step bound: the number of its array, of the value it is the gradient of, and of the
        finite difference it is held against.
        """
        out: dict[str, Any] = {"name": bound.name, "array": self.arrays.add(bound.value.array, bound.value)}
        call = self.recording.calls[step.call]
        if call.backward and bound.name.startswith("d") and _is_float(bound):
            value = self._forward_values.get((call.forward_call, bound.name[1:]))
            if value is not None and value.value.shape == bound.value.shape:
                out["pair"] = {"name": value.name, "array": self.arrays.add(value.value.array, value.value)}
            numerical = self._numerical(call, bound)
            if numerical is not None:
                out["numerical"] = self.arrays.add(numerical)
        return out

    def _numerical(self, call: Call, bound: Bound) -> np.ndarray | None:
        """The gradient by finite differences, where the report has it: of a sum in steps that of the whole alone."""
        if self.recording.report is None or bound.value.array is None:
            return None
        name = bound.name[1:]
        titles = [f"{call.label}.{name}"] + ([name] if call.parent is None else [])
        for row in self.recording.report.rows:
            if row.full is not None and row.name.partition("[")[0] in titles:
                same = row.full.by_hand.shape == bound.value.array.shape
                if same and np.allclose(row.full.by_hand, bound.value.array, rtol=1e-4, atol=1e-6):
                    return row.full.numerical
        return None

    def _expand(self, steps: list[dict[str, Any]]) -> int:
        """Write out where the numbers come from, for all arrays up to as many cells as there is room for."""
        places = []
        for step, entry in zip(self.recording.steps, steps, strict=True):
            label = self.recording.calls[step.call].label
            self._sizes |= {(label, b.name): math.prod(b.value.shape) for b in step.bound}
            read = max(
                (self._sizes.get((label, name), 0) for name in self.lines.items[entry["line"]]["uses"]), default=0
            )
            if entry["shown"] and read <= EXACT:  # a sum over more cells than that is too long to read
                places += [(step, i) for i, b in enumerate(step.bound) if _is_float(b) and b.value.array is not None]
        sizes = [math.prod(step.bound[i].value.shape) for step, i in places]
        fitting = (limit for limit in _CELL_LIMITS if sum(s for s in sizes if s <= limit) <= EXPANDED)
        limit = next(fitting, 0)
        for (step, i), size in zip(places, sizes, strict=True):
            if size <= limit:
                steps[step.index]["bound"][i]["from"] = self.origin(self.recording, step, step.bound[i])
        return limit

    def origin(self, recording: Recording, step: Step, bound: Bound) -> dict[str, Any]:
        """Where the numbers come from: a text and its cells for each, another step, or why it cannot be said."""
        try:
            found = templates(recording, step, bound)
        except NotExpandable as error:
            return {"why": str(error)}
        if isinstance(found, tuple):
            return {"step": found[0].index, "bound": found[0].bound.index(found[1])}
        return {
            "texts": [self.texts.add(template.text) for template in found],
            "cells": [[n for title, place in t.cells for n in (self.titles.add(title), place)] for t in found],
        }


def _counts(bound: Bound) -> bool:
    """Whether a name is worth a step of its own: an array, or a number that is no size and no switch."""
    return bound.value.shape != () or _is_float(bound)


def _is_float(bound: Bound) -> bool:
    return bound.value.dtype.startswith("float")


def line_of(call: Call, step: Step, scalars: set[str]) -> dict[str, Any]:
    """A line: where it stands in its file, its text, its formula, and the names it reads."""
    text, last = step.source, step.line + step.source.count("\n")
    entry = text.startswith(("@", "def "))
    if entry:  # a call begins: the step stands for the arguments it came with
        text, last = _head(call, step.line)
    element = mathml.formula(f"{text}\n    pass" if entry else text, scalars)
    return {
        "first": step.line,
        "last": last,
        "text": text,
        "entry": entry,
        "math": None if element is None else mathml.as_lists(element),
        "uses": [] if entry else list(_names_read(text)),
    }


def _head(call: Call, line: int) -> tuple[str, int]:
    """From the decorators on, the head of the function that begins at a line, and the last line of it."""
    source = textwrap.dedent("\n".join(call.source[line - call.first_line :]))
    try:
        definition = ast.parse(source).body[0]
    except SyntaxError:
        return source.split("\n")[0], line
    if not isinstance(definition, ast.FunctionDef):
        return source.split("\n")[0], line
    end = definition.body[0].lineno - 1
    lines = source.split("\n")[definition.lineno - 1 : max(end, definition.lineno)]
    return "\n".join(lines), line + max(end, definition.lineno) - 1


def _names_read(text: str) -> Iterator[str]:
    """The names that a statement reads, in the order in which they stand there, each once."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    if isinstance(tree.body[0], ast.AugAssign):
        names += [node for node in ast.walk(tree.body[0].target) if isinstance(node, ast.Name)]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    yield from dict.fromkeys(node.id for node in names)


def listing(source: Sequence[str]) -> list[str]:
    """The lines of a function, with its documentation, which the page need not repeat, left empty."""
    lines = list(source)
    try:
        definition = ast.parse(textwrap.dedent("\n".join(lines))).body[0]
    except SyntaxError:
        return lines
    if isinstance(definition, ast.FunctionDef) and ast.get_docstring(definition) is not None:
        documentation = definition.body[0]
        for i in range(documentation.lineno - 1, documentation.end_lineno or documentation.lineno):
            lines[i] = ""
    return lines


class Table:
    """A list that holds each item once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._places: dict[str, int] = {}

    def add(self, item: Any) -> int:
        """The item's place in the list."""
        key = json.dumps(item)
        if key not in self._places:
            self._places[key] = len(self.items)
            self.items.append(item)
        return self._places[key]


class Pool:
    """All arrays of the page, each once."""

    def __init__(self) -> None:
        self._arrays: list[tuple[np.ndarray | None, Any]] = []
        self._places: dict[Any, int] = {}

    def add(self, array: np.ndarray | None, value: Any = None) -> int:
        """The array's place in the pool. value: the recorded Value; its summary is all there is of a large one."""
        key = (value.shape, value.summary) if array is None else (array.shape, array.dtype.str, array.tobytes())
        if key not in self._places:
            self._places[key] = len(self._arrays)
            self._arrays.append((array, value))
        return self._places[key]

    def fitted(self) -> tuple[list[dict[str, Any]], int]:
        """The arrays as JSON can hold them, and above how many cells they had to be summarised to fit the budget."""
        for limit in _LIMITS:
            if sum(_length(array, limit) for array, _ in self._arrays) <= BUDGET:
                break
        largest = max((a.size for a, _ in self._arrays if a is not None and a.size <= limit), default=0)
        return [_encoded(array, value, limit) for array, value in self._arrays], min(limit, largest)


def _length(array: np.ndarray | None, limit: int) -> int:
    if array is None or array.size > limit:
        return 80
    return 19 * array.size if array.size <= EXACT else 6 * array.size


def _encoded(array: np.ndarray | None, value: Any, limit: int) -> dict[str, Any]:
    if array is None:
        return {"shape": list(value.shape), "kind": value.dtype, "summary": value.summary}
    out: dict[str, Any] = {"shape": list(array.shape), "kind": str(array.dtype)}
    if array.size <= min(EXACT, limit):
        return out | {"data": plain(array)}
    if array.size <= limit:
        return out | {"float32": base64.b64encode(array.astype("<f4").tobytes()).decode()}
    low, high, mean = (float(part) for part in (array.min(), array.max(), array.mean()))
    return out | {"summary": f"{array.size} numbers from {low:.4g} to {high:.4g}, mean {mean:.4g}"}


def plain(array: np.ndarray) -> list[Any]:
    """The numbers in order, as JSON has them: it knows no infinity and no NaN, so these become texts."""
    out: list[Any] = []
    for number in array.ravel().tolist():
        if isinstance(number, float) and not math.isfinite(number):
            out.append(str(number))
        else:
            out.append(int(number) if number == int(number) else number)
    return out
