"""A bias of the scores by distance, as a part that mixes: learned as in T5, or falling with the distance (ALiBi).

    heads = softmax(q kᵀ · scale + bias) v

relative_bias.py and alibi.py have the biases.
"""

from __future__ import annotations

import numpy as np

<<<<<<< HEAD
from ..arrays.backend import Array, Pullback, device_of, to_device
from ..arrays.boundary import check_flags, check_sizes
from ..layers import Cost, Module, Parameter, ScaledDotProduct
from ..layers.module import generator
from ..ops.alibi import paper_slopes


class RelativeBias(Module):
    """A learned score for each head and distance, to be added to the scores; see ops/relative_bias.py.

    table: (buckets, H), drawn from N(0, std²). Several layers may hold the same one: its gradients add up. A call
    returns (bias, backward), bias: (H, T_q, T_k); backward(dbias) returns None.
    """

    def __init__(
        self,
        n_heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        both_ways: bool = True,
        std: float = 0.02,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes("RelativeBias", n_heads=n_heads, buckets=buckets, max_distance=max_distance)
        check_flags("RelativeBias", both_ways=both_ways)
        self.table = Parameter(generator(rng).normal(0.0, std, (buckets, n_heads)).astype(np.float32, copy=False))
        self.max_distance, self.both_ways = max_distance, both_ways

    def __call__(self, t_q: int, t_k: int, like: Array | None = None) -> tuple[Array, Pullback]:
        """Return (bias, backward)."""
        bias, bias_backward = self.ops.relative_bias(self.table.value, t_q, t_k, self.both_ways, self.max_distance)

        def backward(dbias: Array) -> None:
            self.table.grad += bias_backward(dbias)

        return bias, backward

    def head(self, i: int) -> RelativeBias:
        """The bias of head i alone."""
        alone = copy.copy(self)
        alone.table = self.table.part(np.s_[:, i : i + 1])
        return alone


class LinearBias(Module):
    """A score that falls with the distance, in each head with the paper's slope (ALiBi). Nothing is learned."""

    def __init__(self, n_heads: int) -> None:
        self.slopes = paper_slopes(n_heads)  # (H,)

    def __call__(self, t_q: int, t_k: int, like: Array) -> tuple[Array, Pullback]:
        """Return (bias, backward); bias: (H, T_q, T_k), in the dtype and on the device of `like`."""
        slopes = to_device(self.slopes.astype(like.dtype), device_of(like).name)
        bias, _ = self.ops.alibi(slopes, t_q, t_k)  # the slopes are not learned
        return bias, lambda dbias: None

    def head(self, i: int) -> LinearBias:
        """The bias of head i alone."""
        alone = copy.copy(self)
        alone.slopes = self.slopes[i : i + 1]
        return alone
=======
from ..arrays.backend import Array, Pullback
from ..layers import ScaledDotProduct
from .alibi import LinearBias
from .relative_bias import RelativeBias
>>>>>>> main


class Biased(ScaledDotProduct):
    """Scaled dot products with a bias of the scores, a RelativeBias or a LinearBias. Several layers may share it."""

    alike = False

    def __init__(self, bias: RelativeBias | LinearBias, scale: float | None = None, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.bias = bias

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        causal: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        bias, bias_backward = self.bias(q.shape[-2], k.shape[-2], like=q)
        heads, attention_backward = self.ops.attention(q, k, v, mask, causal, self.scale, self.dropout, rng, bias=bias)

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dq, dk, dv, dbias = attention_backward(dheads)
            bias_backward(dbias)
            return dq, dk, dv

        return heads, backward

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """As without a bias, and the bias, which all sequences share."""
        return super().cost(batch, length, n_heads, d_k, d_v) + Cost(kept=n_heads * length**2)

    def head(self, i: int) -> Biased:
        """What mixes head i alone."""
        return Biased(self.bias.head(i), self.scale, self.dropout)
