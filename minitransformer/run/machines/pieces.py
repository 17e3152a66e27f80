"""An optimiser's step in pieces that workers share.

An optimiser moves one parameter after the other. Where all values are one flat buffer, and so are all gradients
(flat.py), pieces of a fixed size are better: a large parameter is shared by several threads, and many small ones take
one call. A piece is a `Parameter` that is a view of a stretch of these buffers, so the optimiser moves it like any
other, and to the same bits.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...core.arrays.backend import Array
from ...core.layers import Parameter
from ...core.training.optimizers import Optimizer
from .flat import as_one, in_order, side_by_side

PIECE = 1 << 18  # numbers: a few pieces per thread in a model of ten million, one piece in a small model

ShareOut: TypeAlias = Callable[[Callable[[str], None], Mapping[str, int]], None]
Piece: TypeAlias = tuple[Parameter, dict[str, Array]]  # and its state by kind, in its shape


def in_turn(work: Callable[[str], None], sizes: Mapping[str, int]) -> None:
    """One after the other."""
    for name in sizes:
        work(name)


class InPieces:
    """An optimiser that moves its parameters in pieces. Its state is that of the optimiser.

    share_out(move, sizes): calls move(name) once for each piece, in any order or at the same time, such as
    `Workers.share_out`. sizes: how many numbers each piece has, by name. If the buffers are not flat, each parameter
    is a piece.
    """

    def __init__(self, optimizer: Optimizer, share_out: ShareOut = in_turn) -> None:
        self.optimizer, self._share_out = optimizer, share_out
        self._pieces: dict[str, Piece] = {}
        self._cut: list[Array] = []  # the arrays that the pieces were made from

    def __getstate__(self) -> dict[str, Any]:
        """The attributes that a copy takes over; it cuts its own arrays into pieces."""
        return self.__dict__ | {"_pieces": {}, "_cut": []}

    def step(self, learning_rate: float | None = None) -> None:
        """Move every parameter once, as `Optimizer.step` does."""
        now = [array for p in self.optimizer.parameters.values() for array in (p.value, p.grad)]
        if len(now) != len(self._cut) or any(a is not b for a, b in zip(now, self._cut, strict=True)):
            self.optimizer._check()  # for example, Module.to replaces the arrays
            self._pieces, self._cut = pieces(self.optimizer), now
        rate = self.optimizer._begin(learning_rate)
        self._share_out(
            lambda name: self.optimizer._move(*self._pieces[name], rate),
            {name: p.value.size for name, (p, _) in self._pieces.items()},
        )

    def state(self) -> dict[str, np.ndarray]:
        """The optimiser's state."""
        return self.optimizer.state()

    def load_state(self, mapping: Mapping[str, np.ndarray]) -> None:
        """Continue from a state; see Optimizer.load_state."""
        self.optimizer.load_state(mapping)


def pieces(optimizer: Optimizer) -> dict[str, Piece]:
    """The pieces of all parameters by name: matrices and vectors apart, because AdamW decays only the matrices."""
    memory = optimizer._memory
    found = {name: (p, memory[name]) for name, p in optimizer.parameters.items()}
    free = [(name, p) for name, p in in_order(optimizer.parameters.items()) if not optimizer._moves_whole(name)]
    for is_matrix, group in itertools.groupby(free, lambda pair: pair[1].value.ndim > 1):
        names, ordered = zip(*group, strict=True)
        value, grad = as_one([p.value for p in ordered]), as_one([p.grad for p in ordered])
        if value is None or grad is None:
            continue
        state = {kind: _laid_flat([memory[name] for name in names], kind) for kind in memory[names[0]]}
        for name in names:
            del found[name]
        step = PIECE if type(value) is np.ndarray else value.size  # a GPU needs no sharing out
        for start in range(0, value.size, step):
            some = slice(start, start + step)
            shape = (1, -1) if is_matrix else (-1,)
            own = {kind: flat[some].reshape(shape) for kind, flat in state.items()}
            piece = view(value[some].reshape(shape), grad[some].reshape(shape))
            found[f"{start} of {names[0]} and others"] = piece, own
    return found


def view(value: Array, grad: Array) -> Parameter:
    """A parameter of these very arrays."""
    parameter = Parameter(np.zeros(1))
    parameter.value, parameter.grad = value, grad
    return parameter


def _laid_flat(memory: list[dict[str, Array]], kind: str) -> Array:
    """One array of the states of a kind; from here on, those of the parameters are views of it."""
    arrays = [known[kind] for known in memory]
    if (flat := as_one(arrays)) is None:
        flat, views = side_by_side(arrays)
        for known, array, piece in zip(memory, arrays, views, strict=True):
            piece[...] = array
            known[kind] = piece
    return flat
