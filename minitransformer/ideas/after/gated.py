"""The gated feed-forward network. Shazeer 2020, "GLU Variants Improve Transformer"; section 2.

y = (f(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng
from ...core.arrays.boundary import check_shape
from ...core.arrays.declared import op
from ...core.layers import Cost, FeedForward, Linear
from ...core.layers.feed_forward import Activation
from ...core.layers.module import generator
from ...core.ops import silu


@op("gate, x, y: (...)")
def gated(gate: Array, x: Array, activation: Callable[..., Any] = silu) -> tuple[Array, Pullback]:
    """activation(gate) * x: the gate controls how much of each x passes.

    With silu this is the core of SwiGLU, with gelu of GEGLU: Shazeer 2020, "GLU Variants Improve Transformer".
    backward(dy) returns (dgate, dx): by the product rule, the gradient of each factor is dy times the other factor.
    """
    opening, activation_backward = activation(gate)
    check_shape("gated", "activation(gate)", opening, gate.shape)
    y = opening * x

    def backward(dy: Array) -> tuple[Array, Array]:
        dopening = dy * x
        dgate = activation_backward(dopening)
        dx = dy * opening
        return dgate, dx

    return y, backward


class GatedFeedForward(FeedForward):
    """x, y: (..., d_model); between them d_ff units, and as many gates. activation: f, as in FeedForward."""

    def __init__(
        self, d_model: int, d_ff: int, activation: str | Activation = "silu", bias: bool = True, rng: Rng | None = None
    ) -> None:
        rng = generator(rng)
        self.gate = Linear(d_model, d_ff, bias, rng)
        super().__init__(d_model, d_ff, activation, bias, rng)

    def __call__(self, x: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        gate, gate_backward = self.gate(x)
        hidden, inner_backward = self.inner(x)
        active, gated_backward = gated(gate, hidden, self._activation())
        y, output_backward = self.output(active)

        def backward(dy: Array) -> Array:
            dactive = output_backward(dy)
            dgate, dhidden = gated_backward(dactive)
            dx = gate_backward(dgate) + inner_backward(dhidden)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """As without gates, and besides what the gates multiply, and the product."""
        return super().cost(batch, length) + Cost(kept=2 * batch * length * self.inner.weight.value.shape[1])
