"""Multi-head attention. Vaswani et al. 2017, section 3.2.2.

    head_h = attention(x W_Q[h], source W_K[h], source W_V[h])
    y      = concat(head_1, ..., head_H) W_O

where `source` is x itself (self-attention) or the encoder's output, the memory (cross-attention). The H projections
are side by side in one matrix, so each is a single product: W_Q, W_K: (D, H·d_k), W_V: (D, H·d_v), W_O: (H·d_v, D).

What later models added, each an op of its own: heads of queries that share keys and values (ops/heads.py), positions by
rotation (ops/rotary.py), by a learned score for each distance (ops/relative_bias.py) or by one that falls with the
distance (ops/alibi.py), norms of queries and keys, a sink (ops/sink_attention.py), and a window to the left. The
paper's own restricted attention (section 4) computes only the scores of neighbours (ops/local_attention.py).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..arrays.backend import Array, Pullback, array_module, device_of, to_device
from ..arrays.boundary import check_array, check_floats, check_last, check_rate, check_sizes
from ..arrays.masks import local_mask
from ..ops.alibi import paper_slopes
from .cache import KeyValueCache, RollingCache, no_backward
from .linear import Linear
from .module import Module, Parameter, Unread, generator
from .normalization import RMSNorm


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
    alibi: whether scores fall with the distance, in each head with the paper's slope.
    qk_norm: RMSNorm of each head's queries and keys, before a rotation (Henry et al. 2020; with a gain as in Qwen3).
    sink: whether a head may look at nothing, by a learned score.
    window: how many keys a query sees, itself and those before it; None for all. radius: how far away a key may be, on
    either side; of self-attention alone, and computed in blocks of that size.
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
        alibi: bool = False,
        qk_norm: bool = False,
        sink: bool = False,
        window: int | None = None,
        radius: int | None = None,
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
        if radius is not None and (window is not None or relative is not None or alibi):
            raise ValueError("MultiHeadAttention: radius goes with neither a window nor a bias of the scores")
        if relative is not None and alibi:
            raise ValueError("MultiHeadAttention: relative and alibi are two biases for the distance; choose one")
        if sink and (alibi or relative is not None or radius is not None or dropout):
            raise ValueError("MultiHeadAttention: sink goes with no bias of the scores, no radius and no dropout")
        rng = generator(rng)
        d_k = d_model // n_heads if d_k is None else d_k
        d_v = d_model // n_heads if d_v is None else d_v
        self.query = Linear(d_model, n_heads * d_k, bias, rng)
        self.key = Linear(d_model, n_key_heads * d_k, bias, rng)
        self.value = Linear(d_model, n_key_heads * d_v, bias, rng)
        self.output = Linear(n_heads * d_v, d_model, bias if output_bias is None else output_bias, rng)
        self.query_norm, self.key_norm = (RMSNorm(d_k) if qk_norm else None for _ in range(2))
        self.sink = Parameter(np.zeros(n_heads, np.float32)) if sink else None
        self.relative = relative
        self.slopes = paper_slopes(n_heads) if alibi else None  # (H,), fixed
        self.d_model, self.n_heads, self.n_key_heads, self.dropout = d_model, n_heads, n_key_heads, dropout
        self.scale, self.rotary_base, self.window, self.radius = scale, rotary_base, window, radius

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
        q, q_backward = self._heads(self.query, x, self.n_heads, self.query_norm, 0, positions)
        k, k_backward = self._heads(self.key, source, self.n_key_heads, self.key_norm, 0, positions)
        v, v_backward = self._heads(self.value, source, self.n_key_heads)
        heads, attend_backward = self._attend(q, k, v, mask, causal, rng, self.window)
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

    def head(self, i: int) -> MultiHeadAttention:
        """Head i alone, from 0 on, with copies of its columns of W_Q, W_K, W_V and its rows of W_O.

        y = sum_i head(i)(x) + b_O: each head writes a part of y, so each has the same dy.
        """
        if not 0 <= i < self.n_heads:
            raise ValueError(f"MultiHeadAttention: there are heads 0 to {self.n_heads - 1}, got {i}")
        shared = i * self.n_key_heads // self.n_heads  # the head of keys and values that it reads
        d_k, d_v = (p.weight.value.shape[1] // self.n_key_heads for p in (self.key, self.value))
        relative = None
        if self.relative is not None:
            relative = copy.copy(self.relative)
            relative.table = _part(self.relative.table, np.s_[:, i : i + 1])
        alone = MultiHeadAttention(
            self.d_model,
            1,
            d_k,
            d_v,
            self.query.bias is not None,
            self.dropout,
            Unread(),
            output_bias=False,
            scale=self.scale,
            rotary_base=self.rotary_base,
            relative=relative,
            window=self.window,
        )
        for name, at, d in (("query", i, d_k), ("key", shared, d_k), ("value", shared, d_v)):
            whole, part, columns = getattr(self, name), getattr(alone, name), slice(at * d, (at + 1) * d)
            part.weight = _part(whole.weight, np.s_[:, columns])
            part.bias = None if whole.bias is None else _part(whole.bias, columns)
        for name in ("query_norm", "key_norm"):
            norm = copy.copy(getattr(self, name))
            if norm is not None:
                norm.gamma = _part(norm.gamma, np.s_[:])
            setattr(alone, name, norm)
        alone.sink = None if self.sink is None else _part(self.sink, np.s_[i : i + 1])
        alone.slopes = None if self.slopes is None else self.slopes[i : i + 1]
        alone.output.weight = _part(self.output.weight, np.s_[i * d_v : (i + 1) * d_v])
        return alone

    def _heads(
        self,
        projection: Linear,
        x: Array,
        n_heads: int,
        norm: RMSNorm | None = None,
        start: int | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Project x and split it into heads: (..., T, D) to (..., H, T, d); rotated, if need be, from `start` on."""
        projected, projection_backward = projection(x)
        heads, split_backward = self.ops.split_heads(projected, n_heads)
        normalized, norm_backward = (heads, _unchanged) if norm is None else norm(heads)
        if self.rotary_base is None or start is None:
            rotated, rotary_backward = normalized, _unchanged
        else:
            each = None if positions is None else positions[..., None, :]  # the same for every head
            rotated, rotary_backward = self.ops.rotary(normalized, start, self.rotary_base, positions=each)

        def backward(drotated: Array) -> Array:
            dnormalized = rotary_backward(drotated)
            dheads = norm_backward(dnormalized)
            dprojected = split_backward(dheads)
            dx = projection_backward(dprojected)
            return dx

        return rotated, backward

    def _attend(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        causal: bool,
        rng: np.random.Generator | None,
        window: int | None,
        always: int = 0,
    ) -> tuple[Array, Pullback]:
        """Attention of all heads, each group of queries to the keys and values that it shares.

        always: how many keys, the first ones, every window has.
        """
        times, t_q, t_k = self.n_heads // self.n_key_heads, q.shape[-2], k.shape[-2]
        if self.radius is not None and t_q != t_k:  # new tokens on a cache: a row of scores for each
            close = local_mask(t_q, self.radius, t_k, device_of(q).name)
            mask = close if mask is None else mask & close
        if window is not None:
            near = local_mask(t_q, window - 1, t_k, device_of(q).name)
            if always:
                near = near | (array_module(q).arange(t_k) < always)
            mask, causal = near if mask is None else mask & near, True
        all_k, k_backward = (k, _unchanged) if times == 1 else self.ops.repeat_heads(k, times)
        all_v, v_backward = (v, _unchanged) if times == 1 else self.ops.repeat_heads(v, times)
        bias, bias_backward = self._bias(t_q, t_k, like=q)
        sink = self.sink
        if sink is not None:
            heads, attention_backward = self.ops.sink_attention(q, all_k, all_v, sink.value, mask, causal, self.scale)
        elif self.radius is not None and t_q == t_k:
            heads, attention_backward = self.ops.local_attention(
                q, all_k, all_v, self.radius, _of_keys(mask), causal, self.scale, self.dropout, rng
            )
        else:
            heads, attention_backward = self.ops.attention(
                q, all_k, all_v, mask, causal, self.scale, self.dropout, rng, bias=bias
            )

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dq, dall_k, dall_v, *dbias = attention_backward(dheads)
            if sink is not None:
                sink.grad += dbias[0]
            elif dbias:
                bias_backward(dbias[0])
            dk = k_backward(dall_k)
            dv = v_backward(dall_v)
            return dq, dk, dv

        return heads, backward

    def _bias(self, t_q: int, t_k: int, like: Array) -> tuple[Array | None, Pullback]:
        """What is added to the scores of each distance."""
        if self.slopes is not None:
            slopes = to_device(self.slopes.astype(like.dtype), device_of(like).name)
            bias, _ = self.ops.alibi(slopes, t_q, t_k)  # the slopes are not learned
            return bias, _unchanged
        return (None, _unchanged) if self.relative is None else self.relative(t_q, t_k)

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
        if isinstance(cache, RollingCache):
            return self._rolled(x, mask, cache)
        if memory is None or cache.length == 0:
            cache.memory = memory
            source = x if memory is None else memory
            new_k = self._heads(self.key, source, self.n_key_heads, self.key_norm, start, positions)[0]
            k, v = cache.extend(new_k, self._heads(self.value, source, self.n_key_heads)[0])
        else:
            k, v = cache.read()  # the memory does not change while its translation is written
        q = self._heads(self.query, x, self.n_heads, self.query_norm, start, positions)[0]
        heads = self._attend(q, k, v, mask, causal, None, self.window)[0]
        return self.output(self.ops.merge_heads(heads)[0])[0]

    def _rolled(self, x: Array, mask: Array | None, cache: RollingCache) -> Array:
        """Positions count within the cache (Xiao et al. 2024, section 3.2), so keys are rotated when they are read."""
        if self.window not in (None, cache.window) or self.radius is not None:
            raise ValueError(
                f"MultiHeadAttention: a rolling cache of window {cache.window} does not fit a layer of "
                f"window {self.window} and radius {self.radius}"
            )
        new_k = self._heads(self.key, x, self.n_key_heads, self.key_norm)[0]
        k, v = cache.extend(new_k, self._heads(self.value, x, self.n_key_heads)[0])
        if self.rotary_base is not None:
            k = self.ops.rotary(k, 0, self.rotary_base)[0]
        q = self._heads(self.query, x, self.n_heads, self.query_norm, k.shape[-2] - x.shape[-2])[0]
        if mask is not None:
            mask = cache.of_kept(mask, k.shape[-2])
        heads = self._attend(q, k, v, mask, True, None, cache.window, cache.sinks)[0]
        return self.output(self.ops.merge_heads(heads)[0])[0]


def _part(parameter: Parameter, at: Any) -> Parameter:
    """A copy of a part, with a gradient of zero."""
    part = copy.copy(parameter)
    part.value = parameter.value[at].copy()
    part.grad = array_module(part.value).zeros_like(part.value)
    return part


def _of_keys(mask: Array | None) -> Array | None:
    """A mask (..., 1, T) of keys without its axis of queries."""
    if mask is not None and mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError(
            "MultiHeadAttention: with a radius, the mask must be the same for every query, (..., 1, T), such as "
            f"padding_mask; got shape {mask.shape}"
        )
    return mask if mask is None or mask.ndim < 2 else mask[..., 0, :]


def _unchanged(dy: Array) -> Array:
    """The pullback of what was left out."""
    return dy
