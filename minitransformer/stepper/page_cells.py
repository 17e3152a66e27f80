"""How each cell of an array was computed, as a text with places to put numbers in.

The page fills in whatever numbers it shows: the recorded ones, those that a mistake leads to, or those that follow from
inputs that were edited. So what is written down is not `2·0 + 2·4` but `_·_ + _·_` and which cell goes where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .expansion import Index, _filled_in_place, _prettily, _right_hand_side, _trim, _Walk
from .recording import Bound, Recording, Step

PLACE = "\x01"  # where a number goes; no source of ours has this letter


@dataclass(frozen=True)
class Template:
    """The text of one cell, and for each PLACE in it the title of an array and the flat index of a cell of it."""

    text: str
    cells: tuple[tuple[str, int], ...]


def templates(recording: Recording, step: Step, bound: Bound) -> list[Template] | tuple[Step, Bound]:
    """One template for each cell of what the step bound, in order; or, where an inner call computed it, that place.

    Raises NotExpandable as expansion.expand does.
    """
    shape = bound.value.shape
    if math.prod(shape) and _filled_in_place(recording, step, bound, (0,) * len(shape)) is not None:
        filled = [_filled_in_place(recording, step, bound, index) for index in np.ndindex(shape)]
        return [Template(expansion.pretty, ()) for expansion in filled if expansion is not None]
    node, inner = _right_hand_side(recording, step, bound.name)
    if inner is not None:
        return inner
    assert node is not None
    walk = _Walk(recording, step)
    shapes = {b.title: b.value.shape for s in recording.steps[: step.index + 1] for b in s.bound}
    found = []
    for index in np.ndindex(shape):
        walk.cells.clear()
        text = walk.cell(node, index, _Places(walk.cells))
        cells = tuple((title, _flat(shapes[title], place)) for title, place in walk.cells)
        found.append(Template(_trim(text).replace(" * ", "·"), cells))
    return found


class _Places:
    """In place of writing a number: leaves a PLACE for that of a cell, which the walk has just noted, if it is one."""

    def __init__(self, cells: list[tuple[str, Index]]) -> None:
        self._cells, self._seen = cells, 0

    def __call__(self, number: Any) -> str:
        if len(self._cells) > self._seen:
            self._seen = len(self._cells)
            return PLACE
        return _prettily(number)


def _flat(shape: tuple[int, ...], place: Index) -> int:
    return int(np.ravel_multi_index(place, shape)) if shape else 0
