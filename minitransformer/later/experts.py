"""A mixture of experts: many feed-forward networks, of which each token uses a few. ops/experts.py chooses them.

    y = sum over chosen i of gates_i · expert_i(x)

Shazeer et al. 2017; Fedus et al. 2021; Jiang et al. 2024, whose experts are gated with SiLU. The parameters grow with
the number of experts, the work per token only with k.

Backward. An expert sees the rows that chose it, so only these have a gradient. The gate multiplies the expert's output:

    doutput_i = gates_i · dy,     dgates_i = sum over the width of dy · output_i

A row of x gets the sum of what comes from its experts and from the router, which read it too.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback, array_module
from ..arrays.boundary import check_flags, check_floats, check_last, check_sizes
from ..layers.cost import Cost
from ..layers.feed_forward import FeedForward
from ..layers.linear import Linear
from ..layers.module import Module, generator
from ..ops.experts import chosen_experts
from .gated import GatedFeedForward


class MixtureOfExperts(Module):
    """In the place of a feed-forward network: x, y: (..., d_model). k of n_experts work for each position.

    activation, gated, bias: of the experts, as in FeedForward. The router has no bias. An expert that no position chose
    is not called, and its gradients stay as they are.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        k: int = 2,
        activation: str = "silu",
        gated: bool = True,
        bias: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes("MixtureOfExperts", d_model=d_model, d_ff=d_ff, n_experts=n_experts, k=k)
        check_flags("MixtureOfExperts", gated=gated)
        if k > n_experts:
            raise ValueError(f"MixtureOfExperts: k must be at most n_experts, got {k} of {n_experts}")
        rng = generator(rng)
        self.router = Linear(d_model, n_experts, False, rng)
        kind = GatedFeedForward if gated else FeedForward
        self.experts = [kind(d_model, d_ff, activation, bias, rng) for _ in range(n_experts)]
        self.k = k

    def __call__(self, x: Array, rng: np.random.Generator | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. Every sub-layer accepts rng; this one does not use it."""
        check_floats("MixtureOfExperts", weight=self.router.weight.value, x=x)
        check_last("MixtureOfExperts", "x", x, self.router.weight.value.shape[0], "d_model")
        xp = array_module(x)
        rows = x.reshape(-1, x.shape[-1])
        logits, router_backward = self.router(rows)
        gates, gates_backward = self.ops.top_k_gates(logits, self.k)
        chosen = chosen_experts(logits, self.k)
        total = xp.zeros_like(rows)
        calls = []
        for i, expert in enumerate(self.experts):
            mine = xp.flatnonzero(chosen[:, i])
            if len(mine):
                output, expert_backward = expert(rows[mine])
                total[mine] += gates[mine, i][:, None] * output
                calls.append((i, mine, output, expert_backward))

        def backward(dy: Array) -> Array:
            upstream = dy.reshape(rows.shape)
            dgates, drows = xp.zeros_like(gates), xp.zeros_like(rows)
            for i, mine, output, expert_backward in calls:
                dgates[mine, i] = (upstream[mine] * output).sum(axis=-1)
                drows[mine] += expert_backward(gates[mine, i][:, None] * upstream[mine])
            dlogits = gates_backward(dgates)
            drows += router_backward(dlogits)
            return drows.reshape(x.shape)

        return total.reshape(x.shape), backward

    def cost(self, batch: int, length: int) -> Cost:
        """The router, and k experts for each position. Kept besides: the input, two arrays of gates, outputs."""
        rows, (d_model, n_experts) = batch * length, self.router.weight.value.shape
        each = self.experts[0].cost(1, self.k * rows)
        return self.router.cost(batch, length) + each + Cost(kept=rows * ((1 + self.k) * d_model + 2 * n_experts))

    def balance(self, x: Array) -> tuple[Array, Pullback]:
        """The load-balancing loss of the router at x: (loss, backward); backward(dloss=1.0) returns dx.

        Add a small multiple of it, such as 0.01, to the loss of the model, and its dx to the dx of the layer.
        """
        logits, router_backward = self.router(x)
        loss, loss_backward = self.ops.load_balance(logits, self.k)

        def backward(dloss: Array | float = 1.0) -> Array:
            dlogits = loss_backward(dloss)
            return router_backward(dlogits)

        return loss, backward
