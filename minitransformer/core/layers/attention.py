"""Multi-head attention. Vaswani et al. 2017, section 3.2.2.

    head_h = attention(x W_Q[h], source W_K[h], source W_V[h])
    y      = concat(head_1, ..., head_H) W_O

where `source` is x itself (self-attention) or the encoder's output, the memory (cross-attention). The H projections
are side by side in one matrix, so each is a single product: W_Q, W_K: (D, H·d_k), W_V: (D, H·d_v), W_O: (H·d_v, D).

    project · split · [turn q and k] · mix q, k, v · merge · project

The paper turns nothing and mixes by scaled dot products; sockets.py says what else fits: a Mix, a pair of Turns, Maps.
"""

from __future__ import annotations

import copy
from typing import Any

from ..arrays.backend import Array, Pullback, Rng
from ..arrays.boundary import check_index, lacks_heads
from ..arrays.declared import declared
from .cache import KeyValueCache, attend, check_layer_cache, no_backward
from .linear import Linear
from .module import Module, generator
from .part_cost import Cost
from .scaled_dot_product import ScaledDotProduct
from .sockets import Map, Mix, Turn, fitting, fitting_maps


class MultiHeadAttention(Module):
    """H attentions side by side, each on its own projection of width d_k = d_v = d_model / H unless given.

    x: (..., T_q, D); memory: (..., T_k, D); y: (..., T_q, D). dropout: on the weights, unless `mix` is given.
    """

    @declared("d_model, n_heads, d_k, d_v > 0")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rng: Rng | None = None,
        mix: Mix | None = None,
        turn: tuple[Turn | None, Turn | None] = (None, None),
    ) -> None:
        if (d_k is None or d_v is None) and d_model % n_heads:
            reason = f"d_model {d_model} cannot be divided into {n_heads} equal heads"
            raise ValueError(f"MultiHeadAttention: {reason}; choose another n_heads, or give d_k and d_v")
        if mix is not None and dropout:
            raise ValueError("MultiHeadAttention: the dropout of the weights belongs to `mix`, which is given")
        rng = generator(rng)
        d_k, d_v = (d_model // n_heads if width is None else width for width in (d_k, d_v))
        maps = [Linear(d_model, n_heads * width, bias, rng) for width in (d_k, d_k, d_v)]
        output = Linear(n_heads * d_v, d_model, bias, rng)
        mix = ScaledDotProduct(dropout=dropout) if mix is None else mix
        self._hold(n_heads, (*maps, output), mix, turn)

    @classmethod
    def of(cls, n_heads: int, *maps: Map, mix: Mix, turn: Any = (None, None)) -> MultiHeadAttention:
        """Attention of four maps: query, key, value, output. There may be fewer heads of keys, if `mix` takes that."""
        attention = cls.__new__(cls)
        attention._hold(n_heads, maps, mix, turn)
        return attention

    def _hold(self, n_heads: int, maps: tuple[Map, ...], mix: Mix, turn: tuple[Turn | None, Turn | None]) -> None:
        self.query, self.key, self.value, self.output = fitting_maps(n_heads, *maps)
        self.d_model, self.n_heads = self.query.d_in, n_heads
        self.d_k, self.d_v = self.query.d_out // n_heads, self.output.d_in // n_heads
        self.mix: Mix = fitting("mix", Mix, mix)[0]
        self.turn_query, self.turn_key = fitting("turn", Turn, *turn)

    def __call__(
        self,
        x: Array,
        memory: Array | None = None,
        mask: Array | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        rng: Rng | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx, or (dx, dmemory) where a memory was given.

        mask: boolean, broadcasts to (..., T_q, T_k), or has an axis for the heads before T_q. positions: integers
        (..., T_q), for what turns, unless they count from 0. With a cache, x holds new tokens; there is no backward.
        """
        source = x if memory is None else memory
        self.takes_sequences(self.d_model, x=x, memory=source)
        if mask is not None and lacks_heads("MultiHeadAttention", mask, x):
            mask = mask[..., None, :, :]  # the same for every head
        if cache is not None:
            check_layer_cache("MultiHeadAttention", cache, rng)
            heads = attend(self, cache, x, memory, mask, causal, positions)
            return self.output(self.ops.merge_heads(heads)[0])[0], no_backward

        q, q_backward = self.project(self.query, x, self.d_k, self.turn_query, 0, positions)
        k, k_backward = self.project(self.key, source, self.d_k, self.turn_key, 0, positions)
        v, v_backward = self.project(self.value, source, self.d_v)
        heads, mix_backward = self.mix(q, k, v, mask, causal, rng)
        merged, merge_backward = self.ops.merge_heads(heads)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> Array | tuple[Array, Array]:
            dmerged = output_backward(dy)
            dheads = merge_backward(dmerged)
            dq, dk, dv = mix_backward(dheads)
            if memory is None:  # x was used three times, so three gradients meet in it
                dx = q_backward(dq) + k_backward(dk) + v_backward(dv)
                return dx
            dx = q_backward(dq)
            dmemory = k_backward(dk) + v_backward(dv)
            return dx, dmemory

        return y, backward

    def project(
        self, projection: Map, x: Array, width: int, turn: Turn | None = None, start: int = 0, positions: Any = None
    ) -> tuple[Array, Pullback]:
        """Project x, split it into heads, and turn them: (..., T, D) to (..., H, T, width)."""
        projected, projection_backward = projection(x)
        heads, split_backward = self.ops.split_heads(projected, projected.shape[-1] // width)
        turned, turn_backward = (heads, None) if turn is None else turn(heads, start, positions)

        def backward(dturned: Array) -> Array:
            dheads = dturned if turn_backward is None else turn_backward(dturned)
            dprojected = split_backward(dheads)
            dx = projection_backward(dprojected)
            return dx

        return turned, backward

    def cost(self, batch: int, length: int) -> Cost:
        """What the parts cost. Kept besides: the input and the merged heads."""
        maps = [part.cost(batch, length) for part in (self.query, self.key, self.value, self.output)]
        turns = [(self.turn_query, self.query), (self.turn_key, self.key)]
        turned = [turn.cost(batch * part.d_out // self.d_k, length) for turn, part in turns if turn is not None]
        mixed = self.mix.cost(batch, length, self.n_heads, self.d_k, self.d_v)
        return sum((*maps, *turned, mixed), Cost(kept=batch * length * (self.d_model + self.n_heads * self.d_v)))

    def new_cache(self) -> KeyValueCache:
        """An empty cache for the keys and values of this layer: the one that `mix` makes, if it does."""
        return getattr(self.mix, "new_cache", KeyValueCache)()

    def head(self, i: int) -> MultiHeadAttention:
        """Head i alone, from 0 on, with copies of its part of each matrix. y = sum_i head(i)(x) + b_O."""
        check_index("MultiHeadAttention.head", i, self.n_heads)
        shared = i * (self.key.d_out // self.d_k) // self.n_heads  # the keys and values that it reads
        k, v = (slice(shared * d, (shared + 1) * d) for d in (self.d_k, self.d_v))
        alone = copy.copy(self)
        alone.n_heads, alone.mix = 1, self.mix.head(i)
        alone.query = self.query.part(columns=slice(i * self.d_k, (i + 1) * self.d_k))
        alone.key, alone.value = self.key.part(columns=k), self.value.part(columns=v)
        alone.output = self.output.part(rows=slice(i * self.d_v, (i + 1) * self.d_v))
        alone.turn_query, alone.turn_key = copy.deepcopy((self.turn_query, self.turn_key))
        alone.zero_grad()
        return alone
