"""AdamW alone: one step on parameters that already have gradients. Memory traffic dominates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitransformer.fast import accelerate
from minitransformer.layers import Module, Parameter
from minitransformer.run.machines.pieces import InPieces
from minitransformer.training import AdamW, Workers

from .. import ours

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Sizes:
    matrices: int
    width: int  # each matrix is (width, width) and has a bias of that width


def values_and_gradients(sizes: Sizes) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes = [(sizes.width, sizes.width), (sizes.width,)] * sizes.matrices
    return [tuple(rng.standard_normal((2, *shape), dtype=np.float32) * 0.02) for shape in shapes]


def traffic(s: Sizes) -> float:
    """Bytes moved in one step: value, gradient, mean and square are read, and all except the gradient are written."""
    return 7.0 * 4.0 * s.matrices * (s.width**2 + s.width)


class Matrices(Module):
    """Parameters and nothing else."""

    def __init__(self, values: list[np.ndarray]) -> None:
        self.values = [Parameter(value.copy()) for value in values]


class Ours(ours.Program):
    """Each worker moves a part of the parameters, as in the training loop."""

    def __init__(self, sizes: Sizes) -> None:
        arrays = values_and_gradients(sizes)
        model = Matrices([value for value, _ in arrays])
        self.parameters = dict(model.parameters())
        self.workers = Workers(model, self.n_threads)
        for p, (_, gradient) in zip(self.parameters.values(), arrays, strict=True):
            p.grad[...] = gradient
        self.optimizer = InPieces(accelerate(AdamW(self.parameters.items(), LEARNING_RATE)), self.workers.share_out)

    def run(self) -> None:
        self.optimizer.step()

    def prove(self) -> dict[str, np.ndarray]:
        for _ in range(10):
            self.run()
        return {f"p{i}": p.value for i, p in enumerate(self.parameters.values())}
