"""A window on both sides, around a part that mixes: the restricted attention of Vaswani et al. 2017, section 4.

    query i sees keys i - radius, ..., i + radius

It is for encoders; `Window` looks back only. Every score is computed and those outside are hidden, so `inspect` finds
the whole weights; `Local` gives the same numbers in blocks, and never computes the others. There is no new backward
pass: a hidden score gets no gradient, as behind any mask.
"""

from __future__ import annotations

from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng, device_of
from ....core.arrays.declared import declared
from ....core.arrays.masks import local_mask
from ....core.layers import Module, ScaledDotProduct
from ..around import Around


class BothSides(Around):
    """Each query sees itself and `radius` keys on each side. inner: a part that mixes, by default scaled products."""

    @declared("radius >= 0")
    def __init__(self, radius: int, inner: Module | None = None) -> None:
        self.radius = radius
        self.inner = ScaledDotProduct() if inner is None else inner

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        near = local_mask(q.shape[-2], self.radius, k.shape[-2], device_of(q).name)
        return self.inner(q, k, v, near if mask is None else mask & near, causal, rng)

    def head(self, i: int) -> BothSides:
        """The part that mixes only head i."""
        return BothSides(self.radius, self.inner.head(i))


def near(radius: int | None, mix: Any) -> Any:
    """The mix within `radius` keys on each side, or itself without a radius."""
    return mix if radius is None else BothSides(radius, mix)
