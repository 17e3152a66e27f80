"""LayerNorm and RMSNorm: the layers that own γ and β."""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.declared import declared
from .module import Module, Parameter
from .part_cost import Cost


class LayerNorm(Module):
    """γ * (x - mean) / √(variance + ε) + β over the last axis; see core/ops/normalization.py. x, y: (..., width).

    γ starts at one and β at zero. backward(dy) returns dx.
    """

    @declared("width > 0; eps > 0")
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        self.gamma = Parameter(np.ones(width, np.float32))
        self.beta = Parameter(np.zeros(width, np.float32))
        self.eps = eps

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        self.takes(x, self.gamma.value, self.gamma.value.size, "its width")
        y, norm_backward = self.ops.layer_norm(x, self.gamma.value, self.beta.value, self.eps)
        shape = y.shape

        def backward(dy: Array) -> Array:
            self.returns(dy, shape, self.gamma.value)
            dx, dgamma, dbeta = norm_backward(dy)
            self.gamma.grad += dgamma
            self.beta.grad += dbeta
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """It keeps what it normalised, and a factor for each row."""
        return Cost(kept=batch * length * (self.gamma.value.size + 1))


class RMSNorm(Module):
    """γ * x / √(mean(x²) + ε) over the last axis; see core/ops/normalization.py. x, y: (..., width).

    γ starts at one. backward(dy) returns dx.
    """

    @declared("width > 0; eps > 0")
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        self.gamma = Parameter(np.ones(width, np.float32))
        self.eps = eps

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward)."""
        self.takes(x, self.gamma.value, self.gamma.value.size, "its width")
        y, norm_backward = self.ops.rms_norm(x, self.gamma.value, self.eps)
        shape = y.shape

        def backward(dy: Array) -> Array:
            self.returns(dy, shape, self.gamma.value)
            dx, dgamma = norm_backward(dy)
            self.gamma.grad += dgamma
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """It keeps what it normalised, and a factor for each row."""
        return Cost(kept=batch * length * (self.gamma.value.size + 1))
