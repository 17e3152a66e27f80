"""Softcapped scores and logits as parts of a model: one mixes heads, one makes logits."""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.arrays.declared import declared
from ....core.layers import Cost, Embedding, Module, ScaledDotProduct
from .op import softcap, softcapped_attention


class SoftCapped(ScaledDotProduct):
    """Mixes by softcapped scores. scale: 1/√d_k unless given. dropout: on the weights."""

    @declared("cap > 0")
    def __init__(self, cap: float, scale: float | None = None, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.cap = float(cap)

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        return softcapped_attention(q, k, v, self.cap, mask, causal, self.scale, self.dropout, rng)

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """As without a cap, and a share of the cap for each score."""
        return super().cost(batch, length, n_heads, d_k, d_v) + Cost(kept=batch * n_heads * length**2)


class CappedOutput(Module):
    """logits = cap · tanh(x tableᵀ / cap). x: (..., width); logits: (..., vocabulary)."""

    @declared("cap > 0")
    def __init__(self, tokens: Embedding, cap: float) -> None:
        self.tokens, self.cap = tokens, float(cap)

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dx."""
        free, table_backward = self.tokens.unembed(x)
        logits, cap_backward = softcap(free, self.cap)

        def backward(dlogits: Array) -> Array:
            dfree = cap_backward(dlogits)
            dx = table_backward(dfree)
            return dx

        return logits, backward

    def unembed_cost(self, batch: int, length: int) -> Cost:
        """That of the table, and a share of the cap for each logit."""
        logits = batch * length * self.tokens.table.value.shape[0]
        return self.tokens.unembed_cost(batch, length) + Cost(kept=logits)
