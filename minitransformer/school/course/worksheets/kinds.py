"""The function that makes a sheet of any kind."""

from __future__ import annotations

import numpy as np

from . import later_kinds, layer_kinds, softmax_kinds  # noqa: F401  they fill KINDS
from .differences import require_right
from .numbers import Draw
from .sheet import KINDS, Sheet


def make(kind: str, seed: int = 0, size: int = 3, student: str = "") -> Sheet:
    """The worksheet of this kind. The same arguments give the same sheet, on every machine.

    size: of the matrices; most have axes of size - 1, size and size + 1. student: each student gets a different sheet.
    Raises ValueError for an unknown kind or size, and RuntimeError if an answer fails its check.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no worksheet {kind!r}; there are {', '.join(KINDS)}")
    sizes = KINDS[kind].sizes
    if size not in sizes:
        raise ValueError(f"{kind}: size must be from {sizes[0]} to {sizes[-1]}, got {size}")
    draw = Draw(f"{kind}/{seed}/{size}/{student}")
    while True:
        sheet = Sheet(kind, seed, size, student, KINDS[kind].make(draw, size))
        if all(np.abs(answer).max() < 100 for answer in sheet.answers.values()):  # two digits
            require_right(sheet)
            return sheet
