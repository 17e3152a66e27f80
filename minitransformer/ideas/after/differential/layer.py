"""Differential attention as a part that mixes: its learned factor, and a norm of each head."""

from __future__ import annotations

import copy
import math

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.arrays.declared import declared
from ....core.layers import Cost, Module, Parameter, RMSNorm
from ....core.layers.module import generator
from .op import difference_factor, differential_attention


class Differential(Module):
    """heads = (1 - initial) · norm(differential attention), in heads of width 2·d. q, k: (..., H, T, 2·d).

    initial: 0.8 - 0.6 exp(-0.3 layer), of a layer that counts from 0 (section 2.1); all heads share λ and the norm.
    The four vectors a, b, c, d of λ start as N(0, 0.1²).
    """

    alike = False  # heads share parameters

    @declared("d_head > 0; layer >= 0")
    def __init__(self, d_head: int, layer: int = 0, rng: Rng | None = None) -> None:
        if d_head % 2:
            raise ValueError(f"Differential: d_head must be even, for two halves, got {d_head}")
        rng = generator(rng)
        self.a, self.b, self.c, self.d = (
            Parameter(rng.normal(0.0, 0.1, d_head // 2).astype(np.float32, copy=False)) for _ in range(4)
        )
        self.norm = RMSNorm(d_head)
        self.initial = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.scale = (d_head // 2) ** -0.5

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv). There is no dropout, so rng is not used."""
        a, b, c, d = learned = self.a, self.b, self.c, self.d
        factor, factor_backward = difference_factor(a.value, b.value, c.value, d.value, self.initial)
        difference, difference_backward = differential_attention(q, k, v, factor, mask, causal, self.scale)
        normalized, norm_backward = self.norm(difference)
        heads = normalized * (1.0 - self.initial)

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dnormalized = dheads * (1.0 - self.initial)
            ddifference = norm_backward(dnormalized)
            dq, dk, dv, dfactor = difference_backward(ddifference)
            for each, gradient in zip(learned, factor_backward(dfactor), strict=True):
                each.grad += gradient
            return dq, dk, dv

        return heads, backward

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """Kept: q, k, v, both softmaxes and their difference, and what the norm keeps."""
        rows = batch * n_heads * length
        products = Cost(flops=2 * rows * length * (d_k + d_v), kept=rows * (2 * d_k + d_v + 3 * length))
        return products + self.norm.cost(batch * n_heads, length)

    def head(self, i: int) -> Differential:
        """What mixes head i alone: the same, with copies of the parameters."""
        return copy.deepcopy(self)
