"""Attention with a bias of the scores by distance: learned as in T5, or falling with the distance (ALiBi).

    heads = softmax(q kᵀ · scale + bias) v

relative_bias.py and alibi.py have the biases.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback, Rng
from ...core.arrays.boundary import check_broadcasts, check_visible
from ...core.layers import Cost, ScaledDotProduct
from .alibi import LinearBias
from .relative_bias import RelativeBias


class Biased(ScaledDotProduct):
    """Scaled dot products with a bias of the scores, a RelativeBias or a LinearBias. Several layers may share it."""

    alike = False

    def __init__(self, bias: RelativeBias | LinearBias, scale: float | None = None, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.bias = bias

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        check_visible("Biased", mask, causal, q, k)
        bias, bias_backward = self.bias(q.shape[-2], k.shape[-2], like=q)
        check_broadcasts("Biased", "the bias", bias, (*q.shape[:-1], k.shape[-2]))
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
        """The part that mixes only head i."""
        return Biased(self.bias.head(i), self.scale, self.dropout)
