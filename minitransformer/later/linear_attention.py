"""A layer of linear attention, and its state. Katharopoulos et al. 2020, "Transformers are RNNs", section 3.4.

    head_h = linear_attention(x W_Q[h], x W_K[h], x W_V[h]),        y = concat(head_1, ..., head_H) W_O

To write one more token it needs the sums S and z of each head, d_k × d_v and d_k numbers, and no earlier key or value.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_sequences, check_sizes
from ..layers.cache import StateCache, no_backward
from ..layers.cost import Cost
from ..layers.linear import Linear
from ..layers.module import Module, generator
from ..ops.linear_attention import causal_sums, features, with_one


class LinearAttention(Module):
    """H linear attentions side by side that look back. x, y: (..., T, D)."""

    def __init__(
        self, d_model: int, n_heads: int, bias: bool = True, block: int = 64, rng: np.random.Generator | None = None
    ) -> None:
        check_sizes("LinearAttention", d_model=d_model, n_heads=n_heads, block=block)
        if d_model % n_heads:
            raise ValueError(f"LinearAttention: d_model {d_model} cannot be divided into {n_heads} equal heads")
        rng = generator(rng)
        self.query, self.key, self.value, self.output = (Linear(d_model, d_model, bias, rng) for _ in range(4))
        self.d_model, self.n_heads, self.block = d_model, n_heads, block

    def new_cache(self) -> StateCache:
        """An empty cache for this layer."""
        return StateCache()

    def __call__(self, x: Array, mask: Array | None = None, cache: StateCache | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. mask: boolean, broadcasts to (..., T), True for real tokens.

        With a cache, x holds only the new tokens, none of them padding, and there is no backward.
        """
        check_sequences("LinearAttention", self.d_model, x=x)
        if cache is not None:
            return self._cached(x, mask, cache), no_backward
        q, q_backward = self._heads(self.query, x)
        k, k_backward = self._heads(self.key, x)
        v, v_backward = self._heads(self.value, x)
        of_heads = None if mask is None else mask[..., None, :]
        heads, attention_backward = self.ops.linear_attention(q, k, v, of_heads, self.block)
        merged, merge_backward = self.ops.merge_heads(heads)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> Array:
            dmerged = output_backward(dy)
            dheads = merge_backward(dmerged)
            dq, dk, dv = attention_backward(dheads)
            dx = q_backward(dq) + k_backward(dk) + v_backward(dv)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Four maps; in each block of t tokens two products with t × t scores, and two with the sums of earlier ones.

        Kept: the input, φ of queries and keys, the values with their 1, the totals, the output and its merged copy.
        """
        rows, d, h = batch * length, self.d_model, self.n_heads
        d_k = d // h
        flops = 0
        for start in range(0, length, self.block):
            t = min(self.block, length - start)
            flops += 2 * batch * h * (t * t * (2 * d_k + 1) + 2 * t * d_k * (d_k + 1))
        kept = rows * (6 * d + 2 * h)
        return super().cost(batch, length) + Cost(flops, kept)

    def _heads(self, projection: Linear, x: Array) -> tuple[Array, Pullback]:
        projected, projection_backward = projection(x)
        heads, split_backward = self.ops.split_heads(projected, self.n_heads)

        def backward(dheads: Array) -> Array:
            dprojected = split_backward(dheads)
            dx = projection_backward(dprojected)
            return dx

        return heads, backward

    def _cached(self, x: Array, mask: Array | None, cache: StateCache) -> Array:
        if not isinstance(cache, StateCache):
            raise TypeError(f"LinearAttention: cache must be a StateCache, got {type(cache).__name__}")
        if mask is not None:
            raise ValueError("LinearAttention: a call with a cache takes no mask; give it real tokens alone")
        q, k, v = (self._heads(projection, x)[0] for projection in (self.query, self.key, self.value))
        sums, state = causal_sums(features(q), features(k), with_one(v), self.block, cache.state)
        cache.keep(state, x.shape[-2])
        return self.output(self.ops.merge_heads(sums[..., :-1] / sums[..., -1:])[0])[0]
