"""Routing in a mixture of experts: it sends each token to some experts, and a loss keeps their shares equal.

Gates. Shazeer et al. 2017, "Outrageously Large Neural Networks", equations 3 and 5, without the noise; Jiang et al.
2024, "Mixtral of Experts", section 2.1. A token has a score for each of E experts. The k with the largest scores are
chosen, and only they share the weight:

    gates_i = chosen_i exp(logits_i) / sum_j chosen_j exp(logits_j)     chosen_i: 1 for a chosen expert, else 0

This is the softmax of all E scores, rescaled so that the chosen ones sum to one. The choice itself has no gradient: a
small change of the scores does not change it. Over the chosen experts this is a softmax, so

    dlogits_i = gates_i (dgates_i - sum_j gates_j dgates_j)

and an expert that was not chosen gets 0, because its gate is 0. With k = 1 the gate is always 1 and dlogits is 0, so
only the loss below trains the router. For this reason Fedus et al. take the gate from the softmax over all E scores;
ideas/after/routing has this and other ways.

Load balance. Fedus et al. 2021, "Switch Transformers", equations 4 to 6. Of N tokens

    p = softmax(logits),     P_i = mean_n p_ni,     f_i = mean_n chosen_ni
    loss = E · sum_i f_i P_i

with the softmax over all E. The f_i sum to k. If they are all equal, the loss is k; if experts with larger f_i also
have larger P_i, the loss is larger. f is a count and has no gradient, but P has one. So the p of token n gets

    dp = (dloss · E / N) 𝟏 fᵀ          𝟏 holds N ones: all tokens get the same

which pushes tokens away from busy experts, through the softmax.

The mixture consists of many feed-forward networks, and each token uses a few of them:

    y = sum_i gates_i output_i         over the chosen i

with output_i = expert_i(x). Shazeer et al. 2017; Fedus et al. 2021; Jiang et al. 2024, whose experts are gated with
SiLU. The parameters grow with the number of experts, the work per token only with k. Backward: an expert gets gradients
only from the rows that chose it. The gate multiplies the expert's output:

    doutput_i = gates_i · dy,     dgates_i = sum_c dy_c output_ic

A row of x was read by its experts and by the router, so it gets the sum of their gradients.
"""

from __future__ import annotations

from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.boundary import check_floats, check_last
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32, in_float32_with_result
from ...core.layers.feed_forward import Activation, FeedForward
from ...core.layers.linear import Linear
from ...core.layers.module import Module, generator
from ...core.layers.part_cost import Cost
from ...core.ops.softmax import softmax
from .gated import GatedFeedForward


def chosen_experts(logits: Array, k: int) -> Array:
    """True at the k largest scores: boolean, (..., E). Of equal scores the first wins."""
    xp = array_module(logits)
    order = xp.argsort(-logits, axis=-1, kind="stable")
    rank = xp.argsort(order, axis=-1, kind="stable")
    return rank < k


@op("logits, gates: (..., E); k > 0")
@in_float32
def top_k_gates(logits: Array, k: int = 2) -> tuple[Array, Pullback]:
    """The weights of the k best experts, which sum to one, and 0 for the others.

    Of equal scores the first counts as larger. backward(dgates) returns dlogits. Shazeer et al. 2017.
    """
    _check("top_k_gates", logits, k)
    xp = array_module(logits)
    chosen = chosen_experts(logits, k)
    weights = xp.where(chosen, xp.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    gates = weights / weights.sum(axis=-1, keepdims=True)

    def backward(dgates: Array) -> Array:
        dlogits = gates * (dgates - (gates * dgates).sum(axis=-1, keepdims=True))
        return dlogits

    return gates, backward


@op("logits: (..., E); loss: (); k > 0")
@in_float32_with_result
def load_balance(logits: Array, k: int = 2) -> tuple[Array, Pullback]:
    """The load-balancing loss: k if the shares of the experts are equal, more if busy experts score higher.

    loss: at least float32. backward(dloss=1.0) returns dlogits. Fedus et al. 2021.
    """
    _check("load_balance", logits, k)
    xp = array_module(logits)
    tokens = logits.reshape(-1, logits.shape[-1])
    n, n_experts = tokens.shape
    shares = chosen_experts(tokens, k).sum(axis=0).astype(logits.dtype) / n
    p, softmax_backward = softmax(tokens)
    mean_p = p.mean(axis=0)
    loss = n_experts * (shares * mean_p).sum()

    def backward(dloss: Array | float = 1.0) -> Array:
        dmean_p = dloss * n_experts * shares
        dp = xp.broadcast_to(dmean_p / n, p.shape)
        dtokens = softmax_backward(dp)
        dlogits = dtokens.reshape(logits.shape)
        return dlogits

    return loss, backward


def _check(where: str, logits: Array, k: int) -> None:
    if logits.shape[-1] < k:
        raise ValueError(f"{where}: logits must have a last axis of at least k = {k} experts, got shape {logits.shape}")


class TopK(Module):
    """Chooses the k experts with the largest scores, with gates that sum to one. logits, gates: (..., E).

    Other routes have the same methods and `k`: those in ideas/after/routing.
    """

    @declared("k > 0")
    def __init__(self, k: int) -> None:
        self.k = k

    def chosen(self, logits: Array) -> Array:
        """True at the chosen experts: boolean, (..., E)."""
        return chosen_experts(logits, self.k)

    def __call__(self, logits: Array) -> tuple[Array, Pullback]:
        """Return (gates, backward); backward(dgates) returns dlogits."""
        return top_k_gates(logits, self.k)

    def numbers_kept(self, n_experts: int) -> int:
        """How many numbers of each position it keeps for backward, besides the gates."""
        return 0


class MixtureOfExperts(Module):
    """Replaces a feed-forward network. Each position uses k of n_experts. x, y: (..., d_model).

    activation, gated, bias: of the experts, as in FeedForward. The router has no bias. route: what chooses experts by
    their scores and gives them gates; TopK(k) unless given. An expert that no position chose is not called, and its
    gradients stay unchanged.
    """

    @declared("d_model, d_ff, n_experts, k > 0")
    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        k: int = 2,
        activation: str | Activation = "silu",
        gated: bool = True,
        bias: bool = False,
        rng: Rng | None = None,
        route: TopK | None = None,
    ) -> None:
        self.route = TopK(k) if route is None else route
        if self.route.k > n_experts:
            raise ValueError(f"MixtureOfExperts: k must be at most n_experts, got {self.route.k} of {n_experts}")
        rng = generator(rng)
        self.router = Linear(d_model, n_experts, False, rng)
        kind = GatedFeedForward if gated else FeedForward
        self.experts = [kind(d_model, d_ff, activation, bias, rng) for _ in range(n_experts)]

    def __call__(self, x: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. Every sub-layer accepts rng; this one does not use it."""
        where = type(self).__name__
        check_floats(where, weight=self.router.weight.value, x=x)
        check_last(where, "x", x, self.router.weight.value.shape[0], "d_model")
        xp = array_module(x)
        rows = x.reshape(-1, x.shape[-1])
        logits, router_backward = self.router(rows)
        gates, gates_backward = self.route(logits)
        chosen = self.route.chosen(logits)
        total = xp.zeros_like(rows)
        calls = []
        for i, expert in enumerate(self.each()):
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

    def each(self) -> list[Any]:
        """The experts: each takes rows, (n, d_model), and returns (output, backward)."""
        return self.experts

    def cost(self, batch: int, length: int) -> Cost:
        """The router, and k experts for each position. Kept besides: the input, the gates, the outputs."""
        rows, (d_model, n_experts) = batch * length, self.router.weight.value.shape
        each = self.experts[0].cost(1, self.route.k * rows)
        kept = (1 + self.route.k) * d_model + n_experts + self.route.numbers_kept(n_experts)
        return self.router.cost(batch, length) + each + Cost(kept=rows * kept)

    def balance(self, x: Array) -> tuple[Array, Pullback]:
        """The load-balancing loss of the router at x: (loss, backward); backward(dloss=1.0) returns dx.

        Add a small multiple of it, such as 0.01, to the loss of the model, and its dx to the dx of the layer.
        """
        logits, router_backward = self.router(x)
        loss, loss_backward = load_balance(logits, self.route.k)

        def backward(dloss: Array | float = 1.0) -> Array:
            dlogits = loss_backward(dloss)
            return router_backward(dlogits)

        return loss, backward
