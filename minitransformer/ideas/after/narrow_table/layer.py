"""A narrow table of tokens. Baevski and Auli 2019, "Adaptive Input Representations ...", section 3; Zhang et al. 2022,
"OPT: Open Pre-trained Transformer Language Models", whose model of 350 million has one.

    into the stack:   y = table[ids] P_in              dtable[ids] += dy P_inᵀ,   dP_in = table[ids]ᵀ dy
    out of it:        n = norm(x),    y = n P_out      dn = dy P_outᵀ,    dP_out = nᵀ dy
    logits:           y tableᵀ

The table is (vocabulary, width) and the layers have width D > width; P_in: (width, D), P_out: (D, width). So the table,
the largest matrix of a small model, has width / D of its parameters, and still makes both vectors and logits.
"""

from __future__ import annotations

from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.arrays.declared import declared
from ....core.layers import Cost, Embedding, Linear, Module
from ....core.layers.module import generator


class ProjectedEmbedding(Embedding):
    """y = table[ids] P. ids: (...); y: (..., d_model). `unembed` uses the table alone, for x of its width."""

    @declared("vocabulary, width, d_model > 0")
    def __init__(self, vocabulary: int, width: int, d_model: int, rng: Rng | None = None) -> None:
        rng = generator(rng)
        super().__init__(vocabulary, width, rng=rng)
        self.projection = Linear(width, d_model, bias=False, rng=rng)

    def __call__(self, ids: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns None."""
        rows, table_backward = super().__call__(ids)
        y, projection_backward = self.projection(rows)

        def backward(dy: Array) -> None:
            drows = projection_backward(dy)
            table_backward(drows)

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """That of the projection, which keeps its input."""
        return super().cost(batch, length) + Cost(kept=batch * length * self.table.value.shape[1])


class ThenProjected(Module):
    """y = norm(x) P, at the end of a stack. x: (..., d_model); y: (..., width). norm: None for no norm."""

    @declared("d_model, width > 0")
    def __init__(self, norm: Any, d_model: int, width: int, rng: Rng | None = None) -> None:
        self.norm, self.projection = norm, Linear(d_model, width, bias=False, rng=rng)

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        normalized, norm_backward = (x, None) if self.norm is None else self.norm(x)
        y, projection_backward = self.projection(normalized)

        def backward(dy: Array) -> Array:
            dnormalized = projection_backward(dy)
            dx = dnormalized if norm_backward is None else norm_backward(dnormalized)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """What is inside, and the input of the projection."""
        return super().cost(batch, length) + Cost(kept=batch * length * self.projection.weight.value.shape[0])
