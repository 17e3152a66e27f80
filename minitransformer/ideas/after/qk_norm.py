"""Norms of queries and keys, in the socket `turn`. Henry et al. 2020, "Query-Key Normalization ..."; with RMSNorm and a
learned gain as in Qwen3 (Yang et al. 2025).

    turn: norm(heads), or rotary(norm(heads))
"""

from __future__ import annotations

from typing import Any

from ...core.arrays.backend import Array, Pullback
from ...core.layers import Module, RMSNorm
from ...core.layers.sockets import Turn
from .rotary import rotary_turn


class HeadNorm(Module):
    """RMSNorm of each head's vectors, followed by a rotation if one is given. heads, turned: (..., H, T, width).

    kind: the class of the norm, such as OffsetRMSNorm.
    """

    def __init__(self, width: int, eps: float = 1e-6, then: Turn | None = None, kind: type[RMSNorm] = RMSNorm) -> None:
        self.norm, self.then = kind(width, eps), then

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (turned, backward); backward(dturned) returns dheads. start, positions: of the rotation."""
        normalized, norm_backward = self.norm(heads)
        if self.then is None:
            return normalized, norm_backward
        turned, then_backward = self.then(normalized, start, positions)

        def backward(dturned: Array) -> Array:
            dnormalized = then_backward(dturned)
            dheads = norm_backward(dnormalized)
            return dheads

        return turned, backward


def qk_norm(
    width: int,
    eps: float = 1e-6,
    rotary_base: float | None = None,
    then: tuple[Any, Any] | None = None,
    kind: type[RMSNorm] = RMSNorm,
) -> tuple[HeadNorm, HeadNorm]:
    """A `turn` with one norm for queries and one for keys, each followed by a rotation if a base is given.

    then: a pair of Turn that follows instead. kind: the class of the norms.
    """
    if then is None:
        then = (None, None) if rotary_base is None else rotary_turn(rotary_base)
    return HeadNorm(width, eps, then[0], kind), HeadNorm(width, eps, then[1], kind)
