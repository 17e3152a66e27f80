"""A layer without a feed-forward network. Gu and Dao 2023, "Mamba", section 3.4 and figure 3.

    two sub-layers:  a = x + attention(norm_1(x)),   y = a + feed_forward(norm_2(a))
    one:             y = x + mixer(norm(x))

Mamba's mixer widens each vector, and multiplies what it found by a gate of its own position: the work of a gated
feed-forward network. So one sub-layer does both, and a stack has twice as many layers.

Backward. The layer is its residual connection, so that one's dx is the layer's.
"""

from __future__ import annotations

from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.layers import EncoderLayer, Residual


class MixerLayer(EncoderLayer):
    """What mixes the positions, in its residual connection. x, y: (..., T, D)."""

    @classmethod
    def of(cls, *sublayers: Residual) -> MixerLayer:
        """A layer of this one sub-layer. It has the name that attention has in other layers."""
        layer = cls.__new__(cls)
        (layer.self_attention,) = sublayers
        return layer

    def __call__(
        self, x: Array, mask: Array | None = None, rng: Rng | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. how: causal, cache, positions, as of MultiHeadAttention."""
        y, mixer_backward = self.self_attention(x, mask=mask, rng=rng, **how)

        def backward(dy: Array) -> Array:
            dx = mixer_backward(dy)
            return dx

        return y, backward
