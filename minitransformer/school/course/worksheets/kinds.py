"""The kinds of worksheets by name, and the function that makes a sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .differences import require_right
from .later_kinds import lstm_backward, rotary_scores, routing
from .layer_kinds import embedding_backward, layer_norm_backward, matmul_backward, residual_backward
from .numbers import Draw
from .sheet import Sheet, Task
from .softmax_kinds import attention_backward, attention_forward, cross_entropy_backward, softmax_backward


@dataclass(frozen=True)
class Kind:
    """A kind of worksheet, and its possible sizes."""

    make: Callable[[Draw, int], Task]
    sizes: range


KINDS = {
    "matmul-backward": Kind(matmul_backward, range(2, 6)),
    "softmax-backward": Kind(softmax_backward, range(3, 6)),
    "cross-entropy-backward": Kind(cross_entropy_backward, range(3, 6)),
    "attention-forward": Kind(attention_forward, range(3, 6)),
    "attention-backward": Kind(attention_backward, range(3, 6)),
    "layer-norm-backward": Kind(layer_norm_backward, range(3, 6)),
    "embedding-backward": Kind(embedding_backward, range(2, 6)),
    "residual-backward": Kind(residual_backward, range(2, 5)),
    "lstm-backward": Kind(lstm_backward, range(2, 5)),
    "rotary": Kind(rotary_scores, range(3, 4)),
    "routing": Kind(routing, range(3, 6)),
}


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
