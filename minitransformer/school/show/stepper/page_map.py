"""The data of the map: the boxes, and for each box what lies in it and what reads what."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .boxes import Boxes
from .figures import cell_of, with_scale_and_mask
from .flow import graph_of
from .graph import Graph, Place
from .series import Branches, Ranks, Row, row_of
from .steps import Steps


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
        call = recording.calls[box]
        return cell_of(recording, call) or with_scale_and_mask(
            recording, call, _Rows(graphs[box], names).row(), softmax
        )

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


class _Rows:
    """The row of one box, for JSON."""

    def __init__(self, graph: Graph, names: dict[int, str]) -> None:
        self.graph, self.names = graph, names
        self.reads: dict[Any, list[str]] = {}
        for before, after in graph.edges:
            self.reads.setdefault(after, []).append(self._name(before))

    def row(self) -> list[dict[str, Any]]:
        return self._row(row_of(self.graph.places, self.graph.edges))

    def _row(self, row: Row[Place]) -> list[dict[str, Any]]:
        parts = []
        for i, part in enumerate(row):
            if isinstance(part, Ranks):
                parts.append({"ranks": [[self._place(place, True) for place in rank] for rank in part.ranks]})
            elif isinstance(part, Branches):
                branches: dict[str, Any] = {"branches": [self._row(inner) for inner in part.rows]}
                if part.around is not None:
                    branches["around"] = self.graph.edges[part.around]
                parts.append(branches)
            else:
                parts.append(self._place(part, i > 0 and isinstance(row[i - 1], Ranks)))
        return parts

    def _place(self, place: Place, with_reads: bool) -> dict[str, Any]:
        kind, number = place
        out: dict[str, Any] = {kind: number}
        if kind == "input":
            out = {kind: self.graph.inputs[place]}
        elif kind != "box":
            out = {kind: self.graph.steps[place]}
        if place in self.graph.beside:
            out["beside"] = [self.graph.inputs[other] for other in self.graph.beside[place]]
        if with_reads and place in self.reads:
            out["reads"] = self.reads[place]
        return out

    def _name(self, place: Place) -> str:
        kind, number = place
        if kind == "box":
            return self.names[number]
        return self.graph.inputs[place] if kind == "input" else "+" if kind == "sum" else "×"
