"""The position-wise feed-forward network. Vaswani et al. 2017, section 3.3.

    y = f(x W_1 + b_1) W_2 + b_2         with f = ReLU

It treats each position separately: two linear maps with a non-linearity between them.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback
from .cost import Cost
from .linear import Linear
from .module import Module, generator

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
# How many numbers stay for each unit, the output among them: of GELU input, output, cumulative and density.
KEPT = {"relu": 1, "gelu": 4, "gelu_tanh": 4, "silu": 2}


class FeedForward(Module):
    """x, y: (..., d_model); between them d_ff units. activation: "relu", "gelu", "gelu_tanh" or "silu"."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        bias: bool = True,
        rng: np.random.Generator | None = None,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"FeedForward: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        rng = generator(rng)
        self.inner = Linear(d_model, d_ff, bias, rng)
        self.output = Linear(d_ff, d_model, bias, rng)
        self.activation = activation

    def __call__(self, x: Array, rng: np.random.Generator | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. Every sub-layer accepts rng; this one does not use it."""
        hidden, inner_backward = self.inner(x)
        active, activation_backward = self._activate(hidden)
        y, output_backward = self.output(active)

        def backward(dy: Array) -> Array:
            dactive = output_backward(dy)
            dhidden = activation_backward(dactive)
            dx = inner_backward(dhidden)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Kept: the input, and what the activation needs."""
        d_model, d_ff = self.inner.weight.value.shape
        return super().cost(batch, length) + Cost(kept=batch * length * (d_model + KEPT[self.activation] * d_ff))

    def _activate(self, hidden: Array) -> tuple[Array, Pullback]:
        if self.activation == "gelu_tanh":
            return self.ops.gelu(hidden, approximate="tanh")
        return getattr(self.ops, self.activation)(hidden)
