"""Muon: an optimiser whose steps are equally large in every direction of a matrix. Jordan 2024, "Muon: An optimizer for
hidden layers in neural networks"; step sizes from Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2.

For a matrix W (m, n) with gradient G:

    M' = μ M + (1 - μ) G                     momentum
    O  = orthogonal(μ M' + (1 - μ) G)        Nesterov: one step of the momentum ahead
    W' = W - η (0.2 √max(m, n) O + λ W)

If a matrix has the singular value decomposition U S Vᵀ, the nearest matrix with orthonormal rows or columns is U Vᵀ.
All its singular values are 1, so weak directions move as far as strong ones. The entries of U Vᵀ have a root mean
square of 1 / √max(m, n). The factor makes it 0.2, about that of a step of AdamW, so one learning rate fits both.

A Newton-Schulz iteration approximates U Vᵀ without a decomposition. X starts as the matrix divided by its Frobenius
norm, so no singular value is above 1, and

    X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X

keeps U and V and maps each singular value s to a s + b s³ + c s⁵. With a, b, c = 3.4445, -4.7750, 2.0315 five
rounds bring all but the smallest between about 0.7 and 1.2. This is not exactly 1, but fast: the slope at 0 is steep.

Muon updates only matrices that map vectors. AdamW updates everything else: biases, gains, and tables, whose rows are
looked up one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...core.arrays.backend import Array, array_module
from ...core.arrays.declared import declared
from ...core.layers import Parameter
from ...core.training.optimizers import AdamW

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(matrix: Array, rounds: int = 5, eps: float = 1e-7) -> Array:
    """Approximately U Vᵀ, from the singular value decomposition U S Vᵀ of the matrix (m, n). Zeros stay zeros."""
    xp = array_module(matrix)
    a, b, c = COEFFICIENTS
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix  # the smaller product X Xᵀ
    x = x / xp.maximum(xp.sqrt((x * x).sum()), eps)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(AdamW):
    """Muon for every parameter called "weight" with two axes, AdamW for the others.

    momentum is μ; the other options are AdamW's. State: M as "momentum.<name>", and AdamW's state for the others.
    """

    @declared("0 <= momentum < 1")
    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        learning_rate: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        self.momentum = float(momentum)
        super().__init__(parameters, learning_rate, betas, eps, weight_decay)

    def _remember(self, *kinds: str) -> None:
        super()._remember(*kinds)
        for name, p in self.parameters.items():
            if name.split(".")[-1] == "weight" and p.value.ndim == 2:
                self._memory[name] = {"momentum": array_module(p.value).zeros_like(p.value)}

    def _moves_whole(self, name: str) -> bool:
        return "momentum" in self._memory[name]

    def _move(self, p: Parameter, remembered: dict[str, Array], rate: float) -> None:
        if "momentum" not in remembered:
            super()._move(p, remembered, rate)
            return
        m = remembered["momentum"]
        m *= self.momentum
        m += (1.0 - self.momentum) * p.grad
        ahead = self.momentum * m + (1.0 - self.momentum) * p.grad
        size = 0.2 * math.sqrt(max(p.value.shape))
        p.value *= self._shrink(p, rate)
        p.value -= rate * size * newton_schulz(ahead)
