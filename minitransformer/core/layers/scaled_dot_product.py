"""The paper's way to mix queries, keys and values, as a part of multi-head attention. Section 3.2.1."""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_visible
from ..arrays.declared import declared
from .module import Module
from .part_cost import Cost


class ScaledDotProduct(Module):
    """heads = softmax(q kᵀ · scale) v, as in core/ops/attention.py. q: (..., H, T_q, d_k); heads: (..., H, T_q, d_v).

    scale: 1/√d_k unless given. dropout: on the weights.
    """

    alike = True  # every head is mixed in the same way, so processes may share the heads

    @declared("0 <= dropout < 1")
    def __init__(self, scale: float | None = None, dropout: float = 0.0) -> None:
        self.scale, self.dropout = scale, dropout

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        if mask is not None or type(causal) is not bool:
            check_visible("ScaledDotProduct", mask, causal, q, k)
        return self.ops.attention(q, k, v, mask, causal, self.scale, self.dropout, rng)

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """Two products with the scores. Kept: q, k, v and the weights; with dropout also those kept, and the factor."""
        rows = batch * n_heads * length
        weights = (3 if self.dropout else 1) * rows * length
        return Cost(flops=2 * rows * length * (d_k + d_v), kept=rows * (2 * d_k + d_v) + weights)

    def head(self, i: int) -> ScaledDotProduct:
        """What mixes head i alone: the same."""
        return self
