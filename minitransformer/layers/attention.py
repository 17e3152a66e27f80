"""Multi-head attention. Vaswani et al. 2017, section 3.2.2.

    head_h = attention(x W_Q[h], source W_K[h], source W_V[h])
    y      = concat(head_1, ..., head_H) W_O

where `source` is x itself (self-attention) or the encoder's output, the memory (cross-attention). The H projections
stand side by side in one matrix, so each is a single product: W_Q, W_K: (D, H·d_k), W_V: (D, H·d_v), W_O: (H·d_v, D).
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_array, check_floats, check_last, check_rate, check_sizes
from .cache import KeyValueCache, no_backward
from .linear import Linear
from .module import Module, generator


class MultiHeadAttention(Module):
    """H attentions side by side, each on its own projection of width d_k = d_v = d_model / H unless given.

    x: (..., T_q, D); memory: (..., T_k, D); y: (..., T_q, D).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes("MultiHeadAttention", d_model=d_model, n_heads=n_heads)
        check_rate("MultiHeadAttention", dropout)
        if (d_k is None or d_v is None) and d_model % n_heads:
            raise ValueError(
                f"MultiHeadAttention: d_model {d_model} cannot be divided into {n_heads} equal heads; "
                "choose another n_heads, or give d_k and d_v"
            )
        rng = generator(rng)
        d_k = d_model // n_heads if d_k is None else d_k
        d_v = d_model // n_heads if d_v is None else d_v
        self.query = Linear(d_model, n_heads * d_k, bias, rng)
        self.key = Linear(d_model, n_heads * d_k, bias, rng)
        self.value = Linear(d_model, n_heads * d_v, bias, rng)
        self.output = Linear(n_heads * d_v, d_model, bias, rng)
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, dropout

    def __call__(
        self,
        x: Array,
        memory: Array | None = None,
        mask: Array | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx, or (dx, dmemory) where a memory was given.

        mask: boolean, broadcasts to (..., T_q, T_k) for all heads alike, or has an axis for the heads before T_q. With
        a cache, x holds only the new tokens: their keys and values join those in the cache (of a memory they are
        computed once), and there is no backward.
        """
        sequences = {"x": x} if memory is None else {"x": x, "memory": memory}
        check_floats("MultiHeadAttention", **sequences)
        for name, sequence in sequences.items():
            check_last("MultiHeadAttention", name, sequence, self.d_model, "d_model")
            if sequence.ndim < 2:
                raise ValueError(f"MultiHeadAttention: {name} must be (..., T, D), got shape {sequence.shape}")
        if mask is not None:
            check_array("MultiHeadAttention", "mask", mask)
            if 2 < mask.ndim <= x.ndim:
                mask = mask[..., None, :, :]  # the same for every head

        if cache is not None:
            if not isinstance(cache, KeyValueCache):
                raise TypeError(f"MultiHeadAttention: cache must be a KeyValueCache, got {type(cache).__name__}")
            if rng is not None:
                raise ValueError("MultiHeadAttention: a cache is for inference, so there is no dropout: leave out rng")
            return self._cached(x, memory, mask, causal, cache), no_backward

        q, q_backward = self._heads(self.query, x)
        k, k_backward = self._heads(self.key, x if memory is None else memory)
        v, v_backward = self._heads(self.value, x if memory is None else memory)
        heads, attention_backward = self.ops.attention(q, k, v, mask, causal, dropout=self.dropout, rng=rng)
        merged, merge_backward = self.ops.merge_heads(heads)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> Array | tuple[Array, Array]:
            dmerged = output_backward(dy)
            dheads = merge_backward(dmerged)
            dq, dk, dv = attention_backward(dheads)
            if memory is None:  # x was used three times, so three gradients meet in it
                dx = q_backward(dq) + k_backward(dk) + v_backward(dv)
                return dx
            dx = q_backward(dq)
            dmemory = k_backward(dk) + v_backward(dv)
            return dx, dmemory

        return y, backward

    def _heads(self, projection: Linear, x: Array) -> tuple[Array, Pullback]:
        """Project x and split it into heads: (..., T, D) to (..., H, T, d)."""
        projected, projection_backward = projection(x)
        heads, split_backward = self.ops.split_heads(projected, self.n_heads)

        def backward(dheads: Array) -> Array:
            dprojected = split_backward(dheads)
            dx = projection_backward(dprojected)
            return dx

        return heads, backward

    def _cached(self, x: Array, memory: Array | None, mask: Array | None, causal: bool, cache: KeyValueCache) -> Array:
        if cache.memory is not None and cache.memory is not memory:
            raise ValueError("MultiHeadAttention: the cache holds another memory; start a new cache for a new source")
        if memory is None or cache.length == 0:
            cache.memory = memory
            source = x if memory is None else memory
            k, v = cache.extend(self._heads(self.key, source)[0], self._heads(self.value, source)[0])
        else:
            k, v = cache.read()  # the memory does not change while its translation is written
        heads = self.ops.attention(self._heads(self.query, x)[0], k, v, mask, causal)[0]
        return self.output(self.ops.merge_heads(heads)[0])[0]
