"""Fused AdamW of PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from .. import twins
from .optimizer import LEARNING_RATE, Sizes, values_and_gradients


class Eager(twins.Program):
    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        self.parameters = []
        for value, gradient in values_and_gradients(sizes):
            self.parameters.append(nn.Parameter(torch.from_numpy(value.copy())))
            self.parameters[-1].grad = torch.from_numpy(gradient.copy())
        self.optimizer = twins.adamw(self.parameters, LEARNING_RATE)

    def run(self) -> None:
        self.optimizer.step()

    def prove(self) -> dict[str, np.ndarray]:
        for _ in range(10):
            self.run()
        return {f"p{i}": p.detach().numpy() for i, p in enumerate(self.parameters)}
