"""Restricted attention in blocks, as a part that mixes. Vaswani et al. 2017, section 4. Op: ops/local_attention.py."""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback, device_of
from ..arrays.boundary import check_sizes
from ..arrays.masks import local_mask
from ..layers import Cost, ScaledDotProduct


class Local(ScaledDotProduct):
    """Each position sees itself and at most `radius` on either side; only the scores of neighbours are computed.

    For self-attention, with a mask that is the same for every query, (..., 1, T).
    """

    def __init__(self, radius: int, scale: float | None = None, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        check_sizes("Local", radius=radius)
        self.radius = radius

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
        t_q, t_k = q.shape[-2], k.shape[-2]
        if t_q != t_k:  # new tokens on a cache: a row of scores for each
            close = local_mask(t_q, self.radius, t_k, device_of(q).name)
            return super().__call__(q, k, v, close if mask is None else mask & close, causal, rng)
        return self.ops.local_attention(q, k, v, self.radius, _of_keys(mask), causal, self.scale, self.dropout, rng)

    def cost(self, batch: int, length: int, n_heads: int = 1, d_k: int = 1, d_v: int = 1) -> Cost:
        """In blocks of `radius` tokens; each sees itself, the one before it and the one after it."""
        blocks = -(-length // self.radius)
        asked, near = n_heads * blocks * self.radius, 3 * self.radius
        weights = (3 if self.dropout else 1) * asked * near
        kept = n_heads * length * d_k + asked * d_k + 3 * asked * (d_k + d_v) + weights
        return Cost(flops=batch * 2 * asked * near * (d_k + d_v), kept=batch * kept)


def _of_keys(mask: Array | None) -> Array | None:
    """A mask (..., 1, T) of keys without its axis of queries."""
    if mask is not None and mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError(
            "Local: the mask must be the same for every query, (..., 1, T), such as padding_mask; "
            f"got shape {mask.shape}"
        )
    return mask if mask is None or mask.ndim < 2 else mask[..., 0, :]
