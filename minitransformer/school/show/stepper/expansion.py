"""Where does this number come from? The right-hand side of its line, written out with the numbers of one cell.

    scores = (q @ k.swapaxes(-1, -2)) * factor
    scores[1, 2] = (2·2 + 2·3 + 2·1)·0.7071 = 8.485

The walk through the line's syntax tree starts at the top and asks of each node: which cells of its parts make up this
one cell? For element-wise arithmetic it is the cell at the same place (after broadcasting), for a matrix product a row
and a column, for a sum the cells along an axis. For a node that only moves numbers (a transpose, a reshape, an index)
it is the cell that was moved here. To find it, the same move is made with an array that holds each cell's own place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....check.trace.calls import Binding, Call
from . import expressions as ex
from . import terms
from .expressions import NotExpandable
from .steps import Step, Steps
from .terms import Term, total
from .walk import Walk, walk_of

__all__ = ["Expansion", "NotExpandable", "expand", "term_of"]


@dataclass(frozen=True)
class Expansion:
    """How one cell was computed. numbers: each recorded number that it was computed from, once."""

    title: str
    index: ex.Index
    term: Term
    numbers: tuple[ex.Number, ...]

    def __str__(self) -> str:
        result, written = terms.readable(float(terms.evaluate(self.term))), terms.pretty(self.term)
        parts = [_place(self.title.rpartition(".")[2], self.index), written, result]
        if written == result:  # it was not computed; it only has another name
            parts[1:2] = [_place(number.title, number.index) for number in self.numbers]
        return " = ".join(parts)


def _place(name: str, index: ex.Index) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def expand(recording: Steps, step: Step, bound: Binding, index: Sequence[int]) -> Expansion:
    """Write out how the cell `index` of what `step` bound was computed.

    The result of an inner call is written out where it was computed, and an argument where the caller computed it.
    Raises NotExpandable for an argument of f itself, a parameter, a default, a size, a number drawn at random, and an
    array that was only summarised.
    """
    term = term_of(recording, step, bound, index)
    used = dict.fromkeys(number for number in ex.numbers(term) if number.serial is not None)
    return Expansion(bound.title, tuple(int(i) for i in index), term, tuple(used))


def term_of(recording: Steps, step: Step, bound: Binding, index: Sequence[int]) -> Term:
    """The expansion as a tree whose numbers say where they were recorded. Raises NotExpandable, as expand does."""
    array = bound.value.array
    if array is None:
        raise NotExpandable(f"only a summary of {bound.title} was recorded")
    cell = tuple(int(i) for i in index)
    if len(cell) != array.ndim or any(not 0 <= i < size for i, size in zip(cell, array.shape, strict=True)):
        raise ValueError(f"{bound.title} has the shape {array.shape}, so it has no cell {cell}")
    return _term(recording, step, bound, cell)


def _term(recording: Steps, step: Step, bound: Binding, cell: ex.Index) -> Term:
    if bound.value.shape == () and bound.value.dtype in ("int", "bool"):
        raise NotExpandable(f"{bound.title} is a size, an index or a flag, which is given and not computed")
    if bound.in_place:
        return _changed(walk_of(recording, step), bound, cell)
    if bound.origin is not None:
        return _elsewhere(recording, step, bound, cell)
    call = recording.calls[step.call]
    if step is recording.steps_of(call)[0] and bound.name in ex.arguments(call.code):
        return _given(recording, call, bound, cell)
    walk = walk_of(recording, step)
    source = ex.assigned(walk.statement, bound.name, bound.title)
    return _checked(walk, _result(walk, *source, cell), bound, cell)


def _elsewhere(recording: Steps, step: Step, bound: Binding, cell: ex.Index) -> Term:
    """A cell of an array that has another name: in this call, in the caller, or in the inner call that returned it."""
    assert bound.origin is not None and bound.value.array is not None
    other_step, other = recording.binding(bound.origin)
    same = ex.Number(bound.value.array[cell].item(), other.title, cell, other.serial)
    if recording.calls[other_step.call].depth <= recording.calls[step.call].depth:
        return same
    try:
        return _term(recording, other_step, other, cell)
    except NotExpandable:
        return same


def _given(recording: Steps, call: Call, bound: Binding, cell: ex.Index) -> Term:
    """A cell of an argument that the caller's line computed without giving it a name."""
    nothing = f"{bound.title} was passed to the call"
    caller = recording.step_around(call)
    made = None if caller is None else walk_of(recording, caller).applied(call)
    argument = None if made is None else ex.argument_in(made, call.code, bound.name)
    if caller is None or argument is None:
        raise NotExpandable(nothing)
    walk = walk_of(recording, caller)
    try:
        term = _checked(walk, _result(walk, argument, (), cell), bound, cell)
        if isinstance(term, ex.Number) and term.serial is None:
            raise NotExpandable("a constant")
    except NotExpandable as error:
        raise NotExpandable(f"{nothing}: it is {argument.text}") from error
    return term


def _result(walk: Walk, whole: ex.Expression, path: ex.Path, cell: ex.Index) -> Term:
    """A cell of an expression's value, or of the part of it that the path leads to."""
    whole = walk.chosen(whole)
    call = walk.call_of(whole)
    if call is not None:
        return _returned(walk.recording, call, path, cell)
    if path:
        raise NotExpandable(f"{whole.text} has several parts and cannot be written out")
    return walk.cell(whole, cell)


def _returned(recording: Steps, call: Call, path: ex.Path, cell: ex.Index) -> Term:
    """A cell of a call's result that has no name, from its return statement."""
    walk = walk_of(recording, recording.steps_of(call)[-1])
    if walk.statement.kind != "return" or walk.statement.value is None:
        raise NotExpandable(f"the result of {call.label} cannot be written out")
    return _result(walk, *ex.part_of(walk.chosen(walk.statement.value), path), cell)


def _changed(walk: Walk, bound: Binding, cell: ex.Index) -> Term:
    """A cell of an array that a statement changed: scatter_add(x, ids, rows), x[i:j] = rows, x[i:j] += rows, x += y."""
    before = walk.bound[bound.name]
    assert before.value.array is not None
    old = ex.Number(before.value.array[cell].item(), before.title, cell, before.serial)
    changed = ex.Name(bound.name)
    match walk.statement.targets, walk.statement.value:
        case (), ex.Applied("scatter_add", (target, ids, rows)) if target == changed:
            places = np.flatnonzero(walk.value(ids) == cell[0])
            added = [walk.cell(rows, (int(n), *cell[1:])) for n in places]
            return total(tuple(added if added and old.value == 0.0 else [old, *added]))
        case (ex.Name(bound.name),), ex.Expression() as value if walk.statement.kind == "change":
            return walk.cell(value, cell)
        case (ex.Operation("[]", (of, at)), *_), ex.Expression() as value if of == changed:
            held, shape = walk.placed(of, at)
            if held[cell] < 0:
                return old
            place = tuple(int(i) for i in np.unravel_index(int(held[cell]), shape))
            if walk.statement.kind == "change":
                assert isinstance(value, ex.Operation)
                return terms.joined(value.symbol, old, walk.under(value.parts[1], place))
            return walk.under(value, place)
    raise NotExpandable(f"{bound.title} was changed in place, under another name or by something that is not an op")


def _checked(walk: Walk, term: Term, bound: Binding, cell: ex.Index) -> Term:
    """The term. Raises NotExpandable if it reads an unrecorded value, such as a parameter, that has changed since."""
    if walk.reads_attributes:
        assert bound.value.array is not None
        now, then = terms.evaluate(term), float(bound.value.array[cell])
        if not np.isclose(now, then, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise NotExpandable(f"a value that {bound.title} was computed from has changed since")
    return term
