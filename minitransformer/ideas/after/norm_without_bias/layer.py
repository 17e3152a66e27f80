"""Norms with less in them, as in ModernBERT (Warner et al. 2024, "Smarter, Better, Faster, Longer ...", section 2.1).

    without β:   y = γ * (x - mean) / √(variance + ε)         dx and dγ are those of LayerNorm
    none:        y = x                                        dx = dy

The linear maps around a norm have room for a shift, so β adds little; ModernBERT has no biases except in its last map.
Where a norm stands after the embedding, the first layer would norm what is normed already: it has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....core.arrays.backend import Array, Pullback
from ....core.arrays.declared import declared
from ....core.layers import Cost, Module, Parameter


class LayerNormWithoutBias(Module):
    """γ * (x - mean) / √(variance + ε) over the last axis. x, y: (..., width). γ starts at one."""

    @declared("width > 0; eps > 0")
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        self.gamma = Parameter(np.ones(width, np.float32))
        self.eps = eps

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        self.takes(x, self.gamma.value, self.gamma.value.size, "its width")
        y, norm_backward = self.ops.layer_norm(x, self.gamma.value, self.gamma.value * 0.0, self.eps)
        shape = y.shape

        def backward(dy: Array) -> Array:
            self.returns(dy, shape, self.gamma.value)
            dx, dgamma, _ = norm_backward(dy)
            self.gamma.grad += dgamma
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """It keeps what it normalised, and a factor for each row."""
        return Cost(kept=batch * length * (self.gamma.value.size + 1))


@dataclass(frozen=True)
class _Fixed:
    """A gain that is not learned, so it is no Parameter."""

    value: np.ndarray


class NoNorm(Module):
    """y = x, where others have a norm. x, y: (..., width)."""

    @declared("width > 0")
    def __init__(self, width: int) -> None:
        self.gamma = _Fixed(np.ones(width, np.float32))  # whoever asks a norm for its width asks its gain

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        y = x

        def backward(dy: Array) -> Array:
            dx = dy
            return dx

        return y, backward
