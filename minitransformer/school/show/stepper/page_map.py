"""The data of the map: the boxes, and for each box what lies in it and what reads what.

Some figures the code alone does not show: the parts of attention within one line, and recurrent cells. A box that
stands for a line is found by the name that the line binds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ....check.trace.calls import Call
from . import expressions as ex
from .boxes import Boxes
from .flow import Graph, Place, graph_of
from .series import row_of
from .steps import Step, Steps

# Each cell from bottom to top, as papers draw it; a tuple holds what stands side by side. An entry is an input, or
# "title of the box = name that its line binds < inputs that only this line reads".
_CELLS: dict[str, list[Any]] = {
    "rnn_cell": ["h", "Linear = carried < weight", "+, tanh = new < inputs"],
    "lstm_cell": [
        "state", "Linear = carried < weight", "+ = sums < inputs",
        (
            [
                (["Forget gate = keep"], ["Input gate = write"], ["Candidate = candidate"]),
                "New cell = new_cell < cell", "tanh = shown",
            ],
            ["Output gate = show"],
        ),
        "× = new",
    ],
    "gru_cell": [
        "h", "Linear = carried < weight, bias",
        (["Reset gate = reset < inputs", "Candidate = candidate < inputs"], ["Update gate = keep < inputs"]),
        "Mean of both = new < h",
    ],
}  # fmt: skip


def map_data(recording: Steps, shown: Collection[int]) -> dict[str, Any]:
    """of: by call, the drawn box in which its lines lie. boxes: by the call of a box, its name and its row. work: by
    backward step, the places of the map that read the values whose gradients it computes, such as "box 12".

    A row is a list of parts, each of which reads what the part before it gives:
        {"box": call} or {"input": name} or {"sum": step} or {"product": step},
                      with beside: the names of inputs that it alone reads;
                      and reads: the names of all that it reads, where the parts before it do not tell
        {"line": step, "name": what papers call it}, with beside; back: the step of its gradient
        {"branches": [row, ...]}, with around: the name of the value that goes around the rows
        {"ranks": [[part, ...], ...]}
    shown: the indices of the steps that the page shows.
    """
    boxes = Boxes(recording, shown)
    parents = boxes.parents()
    names = {box: boxes.name(box) for box in boxes.drawn}
    softmax = {box for box, name in names.items() if name == "Softmax"}
    graphs = {box: graph_of(boxes, box) for box in names if box in parents}

    def row(box: int) -> list[dict[str, Any]]:
        call, graph = recording.calls[box], graphs[box]
        if call.name in _CELLS:
            return _cell_of(recording, call)
        parts = _row(graph, names, row_of(graph.places, graph.edges))
        return _with_scale_and_mask(recording, call, parts, softmax)

    work: dict[int, list[str]] = {}
    for step, bound in recording.bindings:
        call = recording.calls[step.call]
        graph = graphs.get(boxes.of[step.call]) if call.in_backward and recording.is_gradient(bound) else None
        if graph is not None:
            work.setdefault(step.index, []).extend(graph.readers(bound.name[1:]))
    return {
        "of": [next(outer for outer in boxes.path(box) if outer in names) for box in boxes.of],
        "boxes": {str(box): {"name": name, "row": row(box) if box in parents else []} for box, name in names.items()},
        "work": {str(step): sorted(set(places)) for step, places in work.items() if places},
    }


def _row(graph: Graph, names: dict[int, str], row: list[Any]) -> list[dict[str, Any]]:
    """A row of `row_of` for JSON. names: of the boxes."""

    def named(place: Place) -> str:
        kind, number = place
        return {"box": names.get(number, ""), "input": graph.inputs.get(place, ""), "sum": "+", "product": "×"}[kind]

    def placed(place: Place, with_reads: bool) -> dict[str, Any]:
        kind, number = place
        out: dict[str, Any] = {kind: graph.inputs.get(place, graph.steps.get(place, number))}
        if place in graph.beside:
            out["beside"] = [graph.inputs[other] for other in graph.beside[place]]
        reads = [named(before) for before, after in graph.edges if after == place] if with_reads else []
        return out | ({"reads": reads} if reads else {})

    parts: list[dict[str, Any]] = []
    for part in row:
        if not isinstance(part, dict):
            parts.append(placed(part, bool(parts) and "ranks" in parts[-1]))
        elif "ranks" in part:
            parts.append({"ranks": [[placed(place, True) for place in rank] for rank in part["ranks"]]})
        else:
            around = {"around": graph.edges[part["around"]]} if "around" in part else {}
            parts.append({"branches": [_row(graph, names, inner) for inner in part["branches"]]} | around)
    return parts


def _cell_of(recording: Steps, call: Call) -> list[dict[str, Any]]:
    """The boxes of a recurrent cell. line: the step of a box; back: that of its gradient, if it has one."""
    at: dict[str, int] = {}
    for step, bound in recording.bindings:
        if recording.calls[step.call].forward_call == call.index:
            at[bound.name] = step.index

    def placed(part: Any) -> dict[str, Any]:
        if isinstance(part, tuple):
            return {"branches": [list(map(placed, row)) for row in part]}
        name, _, rest = part.partition(" = ")
        binds, _, beside = rest.partition(" < ")
        line = {"line": at[binds], "name": name, "back": at.get(f"d{binds}")} if binds else {"input": name}
        return line | ({"beside": beside.split(", ")} if beside else {})

    return list(map(placed, _CELLS[call.name]))


def _with_scale_and_mask(
    recording: Steps, call: Call, row: list[dict[str, Any]], softmax: set[int]
) -> list[dict[str, Any]]:
    """Figure 2 of the paper: between a product and the softmax, the scale and the mask. softmax: its boxes."""
    parts: list[dict[str, Any]] = []
    for part in row:
        if parts and part.get("box") in softmax:
            masks = [{"line": step.index, "name": "Mask (opt.)"} for step in recording.steps_of(call) if _masks(step)]
            parts += masks[:1]
        parts.append(part)
        if "product" in part and part is not row[-1] and _is_scaled(recording.steps[part["product"]]):
            parts.append({"line": part["product"], "name": "Scale"})
    return parts


def _is_scaled(step: Step) -> bool:
    value = ex.read(step.source).value
    return ex.is_joined(value, "*") and ex.is_joined(ex.inner(value)[0], "@") if value is not None else False


def _masks(step: Step) -> bool:
    """Whether the line is `visible = where(allowed, scores, -inf)`, even if nothing is masked here."""
    return any(
        isinstance(part, ex.Applied) and part.name == "where" and part.parts[-1].text in ("-xp.inf", "-np.inf")
        for part in ex.read(step.source).everything
    )
