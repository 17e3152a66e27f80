"""A norm before and a norm after each sub-layer, inside the residual connection, as in Gemma 2 (Gemma Team 2024, 2).

    y = x + norm_2(f(norm_1(x)))

norm_1 is that of `layers.Residual` in pre-norm order; `Normed` is f with norm_2 after it. So every update enters the
sum with a learned size. Gemma's norms multiply by 1 + γ, so weight decay pulls the gain towards 1, not towards 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback
from ..layers import Cost, LayerNorm, Module, RMSNorm


class OffsetRMSNorm(RMSNorm):
    """(1 + γ) * x / √(mean(x²) + ε) over the last axis. x, y: (..., width). γ starts at zero."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__(width, eps)
        self.gamma.value = self.gamma.value * 0.0

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        y, norm_backward = self.ops.rms_norm(x, 1.0 + self.gamma.value, self.eps)

        def backward(dy: Array) -> Array:
            dx, dgain = norm_backward(dy)
            self.gamma.grad += dgain  # the gain is 1 + γ, so they have one gradient
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """As RMSNorm, and the gain."""
        return super().cost(batch, length) + Cost(kept=self.gamma.value.size)


class Normed(Module):
    """y = norm(f(x)). f is called as in `layers.Residual`. x, y: (..., D)."""

    def __init__(self, sublayer: Module, norm: LayerNorm | RMSNorm) -> None:
        self.sublayer, self.norm = sublayer, norm

    def __call__(self, x: Array, rng: np.random.Generator | None = None, **how: Any) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        update, sublayer_backward = self.sublayer(x, rng=rng, **how)
        y, norm_backward = self.norm(update)

        def backward(dy: Array) -> Array:
            dupdate = norm_backward(dy)
            dx = sublayer_backward(dupdate)
            return dx

        return y, backward

    def new_cache(self) -> Any:
        """An empty cache for the part that mixes the positions."""
        mixing: Any = self.sublayer
        return mixing.new_cache()
