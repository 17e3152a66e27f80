"""A sink: a head may look at nothing, by a learned score. gpt-oss (OpenAI 2025); the op is ops/sink_attention.py."""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_sizes
from ..layers import Cost, Module, Parameter, ScaledDotProduct


class Sink(Module):
    """Attention whose weights sum to less than one. sink: (H,), a score for each head, which starts at zero."""

    alike = False

    def __init__(self, n_heads: int, scale: float | None = None) -> None:
        check_sizes("Sink", n_heads=n_heads)
        self.sink = Parameter(np.zeros(n_heads, np.float32))
        self.scale = scale

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        causal: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv). There is no dropout, so rng is not used."""
        heads, attention_backward = self.ops.sink_attention(q, k, v, self.sink.value, mask, causal, self.scale)

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dq, dk, dv, dsink = attention_backward(dheads)
            self.sink.grad += dsink
            return dq, dk, dv

        return heads, backward

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """As scaled dot products, and the sink's weight for each query."""
        sinks = Cost(kept=batch * n_heads * length)
        return ScaledDotProduct().cost(batch, length, n_heads, d_k, d_v) + sinks

    def head(self, i: int) -> Sink:
        """What mixes head i alone."""
        alone = Sink(1, self.scale)
        alone.sink = self.sink.part(np.s_[i : i + 1])
        return alone
