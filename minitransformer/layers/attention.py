"""Multi-head attention. Vaswani et al. 2017, section 3.2.2.

    head_h = attention(x W_Q[h], source W_K[h], source W_V[h])
    y      = concat(head_1, ..., head_H) W_O

where `source` is x itself (self-attention) or the encoder's output, the memory (cross-attention). The H projections
are side by side in one matrix, so each is a single product: W_Q, W_K: (D, H·d_k), W_V: (D, H·d_v), W_O: (H·d_v, D).

What later models added, each an op of its own: heads of queries that share keys and values (ops/heads.py), positions by
rotation (ops/rotary.py) or by a learned score for each distance (ops/relative_bias.py), and a window to the left.
"""

from __future__ import annotations

import numpy as np

from ..arrays.backend import Array, Pullback, device_of
from ..arrays.boundary import check_array, check_floats, check_last, check_rate, check_sizes
from ..arrays.masks import local_mask
from .cache import KeyValueCache, no_backward
from .linear import Linear
from .module import Module, Parameter, generator


class RelativeBias(Module):
    """A learned score for each head and distance, to be added to the scores; see ops/relative_bias.py.

    table: (buckets, H), drawn from N(0, std²). Several layers may hold the same one: its gradients add up. A call
    returns (bias, backward), bias: (H, T_q, T_k); backward(dbias) returns None.
    """

    def __init__(
        self,
        n_heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        both_ways: bool = True,
        std: float = 0.02,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes("RelativeBias", n_heads=n_heads, buckets=buckets, max_distance=max_distance)
        self.table = Parameter(generator(rng).normal(0.0, std, (buckets, n_heads)).astype(np.float32, copy=False))
        self.max_distance, self.both_ways = max_distance, both_ways

    def __call__(self, t_q: int, t_k: int) -> tuple[Array, Pullback]:
        """Return (bias, backward)."""
        bias, bias_backward = self.ops.relative_bias(self.table.value, t_q, t_k, self.both_ways, self.max_distance)

        def backward(dbias: Array) -> None:
            self.table.grad += bias_backward(dbias)

        return bias, backward


class MultiHeadAttention(Module):
    """H attentions side by side, each on its own projection of width d_k = d_v = d_model / H unless given.

    x: (..., T_q, D); memory: (..., T_k, D); y: (..., T_q, D).

    n_key_heads: how many heads of keys and values the H heads of queries share; H unless given. output_bias: whether
    the output projection has a bias; as `bias` unless given. scale: of the scores; 1/√d_k unless given.
    rotary_base: the base of rotary positions; None for none. relative: a learned score for each distance.
    window: how many keys a query sees, itself and those before it; None for all.
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
        *,
        n_key_heads: int | None = None,
        output_bias: bool | None = None,
        scale: float | None = None,
        rotary_base: float | None = None,
        relative: RelativeBias | None = None,
        window: int | None = None,
    ) -> None:
        n_key_heads = n_heads if n_key_heads is None else n_key_heads
        check_sizes("MultiHeadAttention", d_model=d_model, n_heads=n_heads, n_key_heads=n_key_heads)
        check_rate("MultiHeadAttention", dropout)
        if (d_k is None or d_v is None) and d_model % n_heads:
            raise ValueError(
                f"MultiHeadAttention: d_model {d_model} cannot be divided into {n_heads} equal heads; "
                "choose another n_heads, or give d_k and d_v"
            )
        if n_heads % n_key_heads:
            raise ValueError(
                f"MultiHeadAttention: {n_heads} heads of queries cannot share {n_key_heads} of keys equally"
            )
        if window is not None:
            check_sizes("MultiHeadAttention", window=window)
        rng = generator(rng)
        d_k = d_model // n_heads if d_k is None else d_k
        d_v = d_model // n_heads if d_v is None else d_v
        self.query = Linear(d_model, n_heads * d_k, bias, rng)
        self.key = Linear(d_model, n_key_heads * d_k, bias, rng)
        self.value = Linear(d_model, n_key_heads * d_v, bias, rng)
        self.output = Linear(n_heads * d_v, d_model, bias if output_bias is None else output_bias, rng)
        self.relative = relative
        self.d_model, self.n_heads, self.n_key_heads, self.dropout = d_model, n_heads, n_key_heads, dropout
        self.scale, self.rotary_base, self.window = scale, rotary_base, window

    def __call__(
        self,
        x: Array,
        memory: Array | None = None,
        mask: Array | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        rng: np.random.Generator | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx, or (dx, dmemory) where a memory was given.

        mask: boolean, broadcasts to (..., T_q, T_k) for all heads alike, or has an axis for the heads before T_q. With
        a cache, x holds only the new tokens: their keys and values join those in the cache (of a memory they are
        computed once), and there is no backward. positions: integers (..., T_q) for the rotation, where they do not
        count from 0, or from the cache's length.
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
            return self._cached(x, memory, mask, causal, cache, positions), no_backward

        source = x if memory is None else memory
        q, q_backward = self._heads(self.query, x, self.n_heads, 0, positions)
        k, k_backward = self._heads(self.key, source, self.n_key_heads, 0, positions)
        v, v_backward = self._heads(self.value, source, self.n_key_heads)
        heads, attend_backward = self._attend(q, k, v, mask, causal, rng)
        merged, merge_backward = self.ops.merge_heads(heads)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> Array | tuple[Array, Array]:
            dmerged = output_backward(dy)
            dheads = merge_backward(dmerged)
            dq, dk, dv = attend_backward(dheads)
            if memory is None:  # x was used three times, so three gradients meet in it
                dx = q_backward(dq) + k_backward(dk) + v_backward(dv)
                return dx
            dx = q_backward(dq)
            dmemory = k_backward(dk) + v_backward(dv)
            return dx, dmemory

        return y, backward

    def _heads(
        self, projection: Linear, x: Array, n_heads: int, start: int | None = None, positions: Array | None = None
    ) -> tuple[Array, Pullback]:
        """Project x and split it into heads: (..., T, D) to (..., H, T, d); rotated, if need be, from `start` on."""
        projected, projection_backward = projection(x)
        heads, split_backward = self.ops.split_heads(projected, n_heads)
        if self.rotary_base is None or start is None:
            rotated, rotary_backward = heads, _unchanged
        else:
            each = None if positions is None else positions[..., None, :]  # the same for every head
            rotated, rotary_backward = self.ops.rotary(heads, start, self.rotary_base, positions=each)

        def backward(drotated: Array) -> Array:
            dheads = rotary_backward(drotated)
            dprojected = split_backward(dheads)
            dx = projection_backward(dprojected)
            return dx

        return rotated, backward

    def _attend(
        self, q: Array, k: Array, v: Array, mask: Array | None, causal: bool, rng: np.random.Generator | None
    ) -> tuple[Array, Pullback]:
        """Attention of all heads, each group of queries to the keys and values that it shares."""
        times, t_q, t_k = self.n_heads // self.n_key_heads, q.shape[-2], k.shape[-2]
        if self.window is not None:
            near = local_mask(t_q, self.window - 1, t_k, device_of(q).name)
            mask, causal = near if mask is None else mask & near, True
        all_k, k_backward = (k, _unchanged) if times == 1 else self.ops.repeat_heads(k, times)
        all_v, v_backward = (v, _unchanged) if times == 1 else self.ops.repeat_heads(v, times)
        bias, bias_backward = (None, _unchanged) if self.relative is None else self.relative(t_q, t_k)
        heads, attention_backward = self.ops.attention(
            q, all_k, all_v, mask, causal, self.scale, self.dropout, rng, bias=bias
        )

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dq, dall_k, dall_v, *dbias = attention_backward(dheads)
            if dbias:
                bias_backward(dbias[0])
            dk = k_backward(dall_k)
            dv = v_backward(dall_v)
            return dq, dk, dv

        return heads, backward

    def _cached(
        self,
        x: Array,
        memory: Array | None,
        mask: Array | None,
        causal: bool,
        cache: KeyValueCache,
        positions: Array | None,
    ) -> Array:
        if cache.memory is not None and cache.memory is not memory:
            raise ValueError("MultiHeadAttention: the cache holds another memory; start a new cache for a new source")
        start = cache.length if memory is None else 0
        if memory is None or cache.length == 0:
            cache.memory = memory
            source = x if memory is None else memory
            new_k = self._heads(self.key, source, self.n_key_heads, start, positions)[0]
            k, v = cache.extend(new_k, self._heads(self.value, source, self.n_key_heads)[0])
        else:
            k, v = cache.read()  # the memory does not change while its translation is written
        q = self._heads(self.query, x, self.n_heads, start, positions)[0]
        heads = self._attend(q, k, v, mask, causal, None)[0]
        return self.output(self.ops.merge_heads(heads)[0])[0]


def _unchanged(dy: Array) -> Array:
    """The pullback of what was left out."""
    return dy
