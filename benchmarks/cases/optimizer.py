"""AdamW alone: one step on parameters whose gradients are there already. Memory traffic rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitransformer.layers import Parameter
from minitransformer.training import AdamW

from .. import ours

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Sizes:
    matrices: int
    width: int  # each matrix is (width, width), and beside it stands a bias of that width


def values_and_gradients(sizes: Sizes) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes = [(sizes.width, sizes.width), (sizes.width,)] * sizes.matrices
    return [tuple(rng.standard_normal((2, *shape), dtype=np.float32) * 0.02) for shape in shapes]


def traffic(s: Sizes) -> float:
    """Bytes that must move in one step: value, gradient, mean and square are read, all but the gradient written."""
    return 7.0 * 4.0 * s.matrices * (s.width**2 + s.width)


class Ours(ours.Program):
    def __init__(self, sizes: Sizes) -> None:
        self.parameters = {}
        for i, (value, gradient) in enumerate(values_and_gradients(sizes)):
            self.parameters[f"p{i}"] = Parameter(value.copy())
            self.parameters[f"p{i}"].grad[...] = gradient
        self.optimizer = AdamW(self.parameters.items(), LEARNING_RATE)

    def run(self) -> None:
        self.optimizer.step()

    def prove(self) -> dict[str, np.ndarray]:
        for _ in range(10):
            self.run()
        return {name: p.value for name, p in self.parameters.items()}
