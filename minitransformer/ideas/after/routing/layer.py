"""Routes for a mixture of experts, and experts that every token uses beside those that a route chooses."""

from __future__ import annotations

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.declared import declared
from ....core.layers import Cost, FeedForward, Module, Parameter
from ....core.ops.activations import logistic
from ..experts import MixtureOfExperts, TopK
from .op import best_in_groups, sigmoid_gates, softmax_gates


class SoftmaxRouting(TopK):
    """Chooses the k largest scores; the gates are `factor` times their shares of a softmax over all E.

    groups, kept: only the `kept` best of so many groups of experts take part, each counted by its largest score.
    logits, gates: (..., E). Fedus et al. 2021; DeepSeek-V2, section 2.2.
    """

    counted = 1

    @declared("k, groups, kept > 0; factor > 0")
    def __init__(self, k: int, groups: int = 1, kept: int = 1, factor: float = 1.0) -> None:
        self.k, self.groups, self.kept, self.factor = k, groups, kept, factor

    def chosen(self, logits: Array) -> Array:
        """True at the chosen experts: boolean, (..., E). Equal to the choice by the softmax, which keeps the order."""
        return best_in_groups(logits, self.k, self.groups, self.kept, self.counted)

    def __call__(self, logits: Array) -> tuple[Array, Pullback]:
        """Return (gates, backward); backward(dgates) returns dlogits."""
        return softmax_gates(logits, self.chosen(logits), self.factor)

    def numbers_kept(self, n_experts: int) -> int:
        """The shares, or the scores."""
        return n_experts


class SigmoidRouting(SoftmaxRouting):
    """Chooses the k largest σ(logits) + bias; the gates are made of σ(logits) alone. DeepSeek-V3, section 2.1.2.

    bias: (E,), a parameter whose gradient is always 0: `adjust` moves it. A group counts by its two largest.
    normalized: whether the gates sum to `factor`.
    """

    counted = 2

    @declared("n_experts, k, groups, kept > 0; factor > 0")
    def __init__(
        self, n_experts: int, k: int, groups: int = 1, kept: int = 1, factor: float = 1.0, normalized: bool = True
    ) -> None:
        super().__init__(k, groups, kept, factor)
        self.normalized = normalized
        self.bias = Parameter(np.zeros(n_experts, np.float32))

    def chosen(self, logits: Array) -> Array:
        """True at the chosen experts: boolean, (..., E)."""
        return best_in_groups(logistic(logits) + self.bias.value, self.k, self.groups, self.kept, self.counted)

    def __call__(self, logits: Array) -> tuple[Array, Pullback]:
        """Return (gates, backward); backward(dgates) returns dlogits. Nothing flows into the bias."""
        return sigmoid_gates(logits, self.chosen(logits), self.factor, self.normalized)

    def numbers_kept(self, n_experts: int) -> int:
        """The scores, and their sum."""
        return n_experts + self.normalized

    def adjust(self, logits: Array, step: float = 0.001) -> None:
        """Raise the bias of each expert that these logits chose less often than the mean, and lower the others'."""
        xp = array_module(logits)
        loads = self.chosen(logits).reshape(-1, logits.shape[-1]).sum(axis=0)
        self.bias.value += (step * xp.sign(loads.mean() - loads)).astype(self.bias.value.dtype)


class SharedExperts(Module):
    """y = shared(x) + routed(x): one network that every token uses, beside experts that a route chooses.

    What all tokens need is learned once, so that the others can differ. Dai et al. 2024, "DeepSeekMoE", section 3.2.
    x, y: (..., d_model).
    """

    def __init__(self, shared: FeedForward, routed: MixtureOfExperts) -> None:
        self.shared, self.routed = shared, routed

    def __call__(self, x: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        common, shared_backward = self.shared(x, rng)
        special, routed_backward = self.routed(x, rng)
        y = common + special

        def backward(dy: Array) -> Array:
            dcommon = dspecial = dy
            dx = shared_backward(dcommon) + routed_backward(dspecial)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """What both parts cost. Both keep the input, which is one array."""
        twice = batch * length * self.shared.inner.weight.value.shape[0]
        return super().cost(batch, length) + Cost(kept=-twice)
