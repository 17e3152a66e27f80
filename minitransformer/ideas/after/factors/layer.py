"""Constant factors on updates and on logits. Yang et al. 2022, "Tensor Programs V", appendix B; IBM's Granite has them.

    y      = x + factor · f(norm(x))        of a residual connection
    logits = (x tableᵀ) / divisor           of what compares vectors with the table of tokens

They are chosen once for a width and a depth, not learned. Backward multiplies by the same number: with
update = f(norm(x)), dupdate = factor · dy; and with free = x tableᵀ, dfree = dlogits / divisor.
"""

from __future__ import annotations

from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.arrays.declared import declared
from ....core.layers import Cost, Embedding, LayerNorm, Module, Residual, RMSNorm


class ScaledUpdate(Residual):
    """y = x + factor · dropout(f(norm(x))), where f reads no memory. x, y: (..., D)."""

    @declared("factor > 0; 0 <= dropout < 1")
    def __init__(self, sublayer: Module, norm: LayerNorm | RMSNorm, factor: float, dropout: float = 0.0) -> None:
        super().__init__(sublayer, norm, "pre", dropout)
        self.factor = float(factor)

    def __call__(  # type: ignore[override]  # it reads no memory
        self, x: Array, *, rng: Rng | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        normalized, norm_backward = self.norm(x)
        update, sublayer_backward = self.sublayer(normalized, rng=rng, **how)
        kept, dropout_backward = self.ops.dropout(update, self.dropout, rng)
        y = x + self.factor * kept

        def backward(dy: Array) -> Array:
            dkept = self.factor * dy
            dupdate = dropout_backward(dkept)
            dnormalized = sublayer_backward(dupdate)
            dx = dy + norm_backward(dnormalized)
            return dx

        return y, backward


class ScaledOutput(Module):
    """logits = (x tableᵀ) / divisor. x: (..., width); logits: (..., vocabulary)."""

    @declared("divisor > 0")
    def __init__(self, tokens: Embedding, divisor: float) -> None:
        self.tokens, self.divisor = tokens, float(divisor)

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dx."""
        free, table_backward = self.tokens.unembed(x)
        logits = free / self.divisor

        def backward(dlogits: Array) -> Array:
            dfree = dlogits / self.divisor
            dx = table_backward(dfree)
            return dx

        return logits, backward

    def unembed_cost(self, batch: int, length: int) -> Cost:
        """That of the table."""
        return self.tokens.unembed_cost(batch, length)
