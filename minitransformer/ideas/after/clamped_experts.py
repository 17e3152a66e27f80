"""Experts with a clamped gate. gpt-oss (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.2).

    gate' = min(gate, limit),   up' = max(-limit, min(up, limit))
    share = σ(alpha · gate'),   s = gate' ∘ share,   h = s ∘ (up' + 1)
    y     = h W_2 + b_2

where gate and up are the entries of x W_1 + b_1 in turn. Backward, by the product rule,

    ds    = dh ∘ (up' + 1),     dup' = dh ∘ s,     dgate' = ds ∘ (share + alpha · gate' ∘ share ∘ (1 - share))

A small change of a number beyond its limit has no effect on the clamped number, so its gradient is 0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.layers import Cost, Linear, Parameter
from ...core.layers.module import generator
from ...core.ops.activations import logistic
from .experts import MixtureOfExperts, TopK


@op("x: (..., 2·F); y: (..., F); alpha > 0; limit > 0")
@in_float32
def clamped_swiglu(x: Array, alpha: float = 1.702, limit: float = 7.0) -> tuple[Array, Pullback]:
    """From gates and inputs, alternating, to their gated products. backward(dy) returns dx."""
    xp = array_module(x)
    gate, up = xp.minimum(x[..., ::2], limit), xp.clip(x[..., 1::2], -limit, limit)
    sigmoid = logistic(alpha * gate)
    opening = gate * sigmoid
    y = opening * (up + 1.0)

    def backward(dy: Array) -> Array:
        dopening = dy * (up + 1.0)
        dgate, dup = dopening * (sigmoid + alpha * opening * (1.0 - sigmoid)), dy * opening
        moves = x[..., ::2] <= limit, abs(x[..., 1::2]) <= limit  # clamped numbers have no gradient
        dx = xp.stack((dgate * moves[0], dup * moves[1]), axis=-1).reshape(x.shape)
        return dx

    return y, backward


class ClampedExperts(MixtureOfExperts):
    """Each position uses k of n_experts, with clamped gates and biases everywhere. x, y: (..., d_model).

    The parameters of all experts: into: (E, D, 2·F); into_bias: (E, 2·F); out: (E, F, D); out_bias: (E, D).
    """

    @declared("d_model, d_ff, n_experts, k > 0")
    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        k: int = 4,
        alpha: float = 1.702,
        limit: float = 7.0,
        rng: Rng | None = None,
    ) -> None:
        if k > n_experts:
            raise ValueError(f"ClampedExperts: k must be at most n_experts, got {k} of {n_experts}")
        rng = generator(rng)
        self.route, self.alpha, self.limit = TopK(k), alpha, limit
        self.router = Linear(d_model, n_experts, True, rng)
        self.into = Parameter(rng.normal(0.0, d_model**-0.5, (n_experts, d_model, 2 * d_ff)).astype(np.float32))
        self.into_bias = Parameter(np.zeros((n_experts, 2 * d_ff), np.float32))
        self.out = Parameter(rng.normal(0.0, d_ff**-0.5, (n_experts, d_ff, d_model)).astype(np.float32))
        self.out_bias = Parameter(np.zeros((n_experts, d_model), np.float32))

    def each(self) -> list[Any]:
        """The experts as functions."""
        return [partial(self._expert, i) for i in range(len(self.into.value))]

    def cost(self, batch: int, length: int) -> Cost:
        """The router, and k experts for each position. Kept: the input, the gates; of an expert input and output, its
        2·F sums, and of each unit gate, input, sigmoid, opening and output.
        """
        rows, (n_experts, d_model, two) = batch * length, self.into.value.shape
        d_ff = two // 2
        router = self.router.cost(batch, length) + Cost(kept=rows * (d_model + n_experts))
        chosen = self.route.k * rows
        return router + Cost(flops=chosen * 2 * d_model * 3 * d_ff, kept=chosen * (2 * d_model + 6 * d_ff))

    def _expert(self, i: int, x: Array) -> tuple[Array, Pullback]:
        hidden, inner_backward = self.ops.linear(x, self.into.value[i], self.into_bias.value[i])
        active, gate_backward = clamped_swiglu(hidden, self.alpha, self.limit)
        y, output_backward = self.ops.linear(active, self.out.value[i], self.out_bias.value[i])

        def backward(dy: Array) -> Array:
            dactive, dweight, dbias = output_backward(dy)
            self.out.grad[i] += dweight
            self.out_bias.grad[i] += dbias
            dhidden = gate_backward(dactive)
            dx, dweight, dbias = inner_backward(dhidden)
            self.into.grad[i] += dweight
            self.into_bias.grad[i] += dbias
            return dx

        return y, backward
