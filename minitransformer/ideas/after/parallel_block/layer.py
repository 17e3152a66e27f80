"""Attention and feed-forward network side by side. Wang and Komatsuzaki 2021, "GPT-J-6B"; Black et al. 2022,
"GPT-NeoX-20B: An Open-Source Autoregressive Language Model", section 2.1.2.

    one after the other:   h = x + attention(norm_1(x)),  y = h + ffn(norm_2(h))
    side by side:          y = x + attention(norm_1(x)) + ffn(norm_2(x))

Both read x, so their matrix products can run at the same time, and y has one sum in place of two. norm_1 and norm_2 may
be one norm. With r_1(x) = x + attention(norm_1(x)) and r_2(x) = x + ffn(norm_2(x)), the residual connections of a usual
layer in pre-norm order, y = r_1(x) + r_2(x) - x.

Backward. x is used three times:

    dx = dr_1 + dr_2 - dy       dr_1 and dr_2: what the backward passes of r_1 and r_2 give for dy

so dy comes back once along the residual path, and once through each sub-layer.
"""

from __future__ import annotations

from typing import Any

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.layers import EncoderLayer


class ParallelLayer(EncoderLayer):
    """Self-attention and feed-forward network, both of x. x, y: (..., T, D). The sub-layers are in pre-norm order."""

    named_by = "self_attention"  # a norm that both share has its name

    def __call__(
        self, x: Array, mask: Array | None = None, rng: Rng | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. how: causal, cache, positions, as of MultiHeadAttention."""
        attended, attention_backward = self.self_attention(x, mask=mask, rng=rng, **how)
        mapped, feed_forward_backward = self.feed_forward(x, rng=rng)
        y = attended + mapped - x

        def backward(dy: Array) -> Array:
            dattended, dmapped = dy, dy
            dx = attention_backward(dattended) + feed_forward_backward(dmapped) - dy
            return dx

        return y, backward
