"""RMSNorm without a gain: nothing is learned.

    y = x / √(mean(x²) + ε)

Its gain γ would multiply each number of y. The next thing is nearly always a linear map, and (γ ⊙ y) W is y W' with
another matrix W' = diag(γ) W. So without γ a model can compute the same. OLMo (Groeneveld et al. 2024, section 2.1) has
such LayerNorms, nanochat (Karpathy 2025) such RMSNorms.

Backward: that of RMSNorm with γ = 1 (core/ops/normalization.py), whose dγ nobody needs.

A rotation does not change the length of a vector, so this norm and a rotation may change places; with a γ they may not.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import declared
from ....core.layers import Cost, RMSNorm


class PlainRMSNorm(RMSNorm):
    """x / √(mean(x²) + ε) over the last axis. x, y: (..., width). It has no parameter."""

    @declared("width > 0; eps > 0")
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        self.gamma: Any = SimpleNamespace(
            value=np.ones(width, np.float32)
        )  # a constant: who asks for the width finds it
        self.eps = eps

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        ones = array_module(x).ones(self.gamma.value.size, x.dtype)
        self.takes(x, ones, ones.size, "its width")
        y, norm_backward = self.ops.rms_norm(x, ones, self.eps)
        shape = y.shape

        def backward(dy: Array) -> Array:
            self.returns(dy, shape, ones)
            dx, _ = norm_backward(dy)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """As RMSNorm, and the ones."""
        return super().cost(batch, length) + Cost(kept=self.gamma.value.size)
