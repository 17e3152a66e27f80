"""The pipeline: each rank holds some of the layers, and the batch flows through them in pieces.

Rank r receives the hidden vectors of a piece from rank r - 1, runs its layers, and sends the result to rank r + 1. A
forward pass returns a pullback, which waits in a queue until the gradient comes back from rank r + 1:

    rank 0    F0 F1 F2       B0 F3 B1    B2    B3
    rank 1       F0 F1    B0 F2 B1 F3 B2    B3
    rank 2          F0 B0 F1 B1 F2 B2 F3 B3

This is "one forward, one backward" (Narayanan et al. 2019, "PipeDream"). Rank r of n first runs n - 1 - r pieces
forward, then one forward and one backward in turn, and finally the remaining backward passes. So the queue is the whole
schedule, and at most n - r pullbacks wait in it, however many pieces there are. If all turns take the same time, m
pieces take as long as m + n - 1 pieces on one rank, and each rank is idle for n - 1 of them.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, Pullback
from ....core.models import LanguageModel
from .collectives import receive, send
from .group import Group, lengths, stretch

Stage = Callable[[int, Any], tuple[Array, Pullback]]


@dataclass(frozen=True)
class Turn:
    """One turn of a rank: "F" or "B" of a piece, when it began and ended, and how many pullbacks wait after it."""

    kind: str
    piece: int
    begin: float
    end: float
    waiting: int


def one_forward_one_backward(stage: Stage, pieces: int, like: Callable[[int], Array], group: Group) -> list[Turn]:
    """Run all pieces through this rank's stage, forward and backward, and return the list of turns.

    stage(piece, x) returns (y, backward) of this rank's layers. On the first rank x is None, and backward(dy) returns
    None; on the last, y is the piece's share of the loss, and backward gets 1.0. like(piece): any array of the shape
    and dtype of the hidden vectors of a piece.
    """
    first, last = group.rank == 0, group.rank == group.size - 1
    waiting: deque[tuple[Pullback, Pullback, Pullback]] = deque()
    turns: list[Turn] = []

    def go_forward(piece: int) -> None:
        x, receive_backward = (None, _nothing) if first else receive(like(piece), group, group.rank - 1)
        begin = time.perf_counter()
        y, stage_backward = stage(piece, x)
        end = time.perf_counter()
        send_backward = _one if last else send(y, group, group.rank + 1)[1]
        waiting.append((receive_backward, stage_backward, send_backward))
        turns.append(Turn("F", piece, begin, end, len(waiting)))

    def go_back(piece: int) -> None:
        receive_backward, stage_backward, send_backward = waiting.popleft()
        dy = send_backward()
        begin = time.perf_counter()
        dx = stage_backward(dy)
        end = time.perf_counter()
        receive_backward(dx)
        turns.append(Turn("B", piece, begin, end, len(waiting)))

    ahead = min(pieces, group.size - 1 - group.rank)
    for piece in range(ahead):
        go_forward(piece)
    for piece in range(pieces):
        if ahead + piece < pieces:
            go_forward(ahead + piece)
        go_back(piece)
    return turns


def idle_share(ranks: Sequence[Sequence[Turn]]) -> float:
    """The share of all ranks' time spent waiting, from the start of the first turn to the end of the last."""
    turns = [turn for rank in ranks for turn in rank]
    span = max(turn.end for turn in turns) - min(turn.begin for turn in turns)
    return 1.0 - sum(turn.end - turn.begin for turn in turns) / (len(ranks) * span)


def stage_of(
    model: LanguageModel, ids: Array, wanted: Array, pieces: int, group: Group
) -> tuple[Stage, Callable[[int], Array]]:
    """The stage and the `like` for this rank's layers of a model. The batch is cut into pieces.

    ids, wanted: (B, T). The first rank also embeds, and the last one computes the mean loss over the batch. Raises
    ValueError for a tied output.
    """
    if model.output is model.tokens:
        raise ValueError("stage_of: first and last rank would share the tied table; give a model with tie_output=False")
    output, layers = model.output, model.stack.layers[stretch(len(model.stack.layers), group)]
    ends = np.cumsum([0, *lengths(len(ids), pieces)]).tolist()
    rows_of = [slice(*pair) for pair in itertools.pairwise(ends)]

    def stage(piece: int, x: Any) -> tuple[Array, Pullback]:
        pullbacks = []

        def through(f: Callable[..., Any], *inputs: Any, **options: Any) -> Array:
            y, pullback = f(*inputs, **options)
            pullbacks.append(pullback)
            return y

        rows = rows_of[piece]
        last = group.rank == group.size - 1
        share = (rows.stop - rows.start) / len(ids) if last else 1.0  # of the mean over all pieces
        if group.rank == 0:
            x = through(model.embed, ids[rows])
        for layer in layers:
            x = through(layer, x, causal=True)
        if last:
            if model.stack.final_norm is not None:
                x = through(model.stack.final_norm, x)
            x = share * through(model.ops.cross_entropy, through(output.unembed, x), wanted[rows])

        def backward(dx: Array) -> Array:
            dx = share * dx
            for pullback in reversed(pullbacks):
                dx = pullback(dx)
            return dx

        return x, backward

    def like(piece: int) -> Array:
        return np.empty((*ids[rows_of[piece]].shape, model.config.d_model), model.tokens.table.value.dtype)

    return stage, like


def _nothing(dx: Any) -> None:
    """The first rank's input has no gradient."""


def _one() -> float:
    """The gradient of the loss."""
    return 1.0
