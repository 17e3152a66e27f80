"""Multi-head latent attention. DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.

For each token the keys and values of all heads come from one narrow vector, the latent c (equations 9 to 11):

    c = norm(x W_DKV)                (T, d_c), with d_c far below 2·H·d
    k_h = c W_UK_h,   v_h = c W_UV_h   (T, d)

so a cache needs to hold only c. A rotation of k_h would stand between W_UK and the query, so W_UK could not be merged
into the query's map. So positions get separate numbers: a rotated key that all heads share, and a rotated part of each
query (equations 14 to 19):

    q_h = x W_Q_h,    r_h = rotary(x W_QR_h),    s = rotary(x W_KR)
    head_h = softmax(scale · (q_h k_hᵀ + r_h sᵀ)) v_h

with scores scaled by 1/√(d + d_R). The cache holds d_c + d_R numbers for each token, in place of 2·H·d.

`down` holds W_DKV and W_KR side by side; `up` holds W_UK and W_UV, head by head. Published checkpoints normalise c
(section 3.1.2) and rotate neighbouring numbers as pairs. Queries may come from a narrow vector as well (equations 12,
13), which saves memory in training, but none in the cache: `Compressed` is such a map.
"""

from __future__ import annotations

import copy
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.boundary import check_index, lacks_heads
from ...core.arrays.declared import declared
from ...core.layers.cache import KeyValueCache, check_layer_cache, no_backward
from ...core.layers.linear import Linear
from ...core.layers.module import Module, generator
from ...core.layers.normalization import RMSNorm
from ...core.layers.part_cost import Cost
from ...core.layers.scaled_dot_product import ScaledDotProduct
from ...core.layers.sockets import Mix, Turn
from .grouped import repeat_heads
from .rotary import RotaryPositions


class Compressed(Module):
    """A map through a narrow vector: y = norm(x W_down) W_up. x: (..., d_in); y: (..., d_out). Equations 12 and 13.

    bias: of W_down.
    """

    @declared("d_in, d_latent, d_out > 0")
    def __init__(self, d_in: int, d_latent: int, d_out: int, bias: bool = False, rng: Rng | None = None) -> None:
        rng = generator(rng)
        self.down, self.norm = Linear(d_in, d_latent, bias, rng), RMSNorm(d_latent)
        self.up = Linear(d_latent, d_out, False, rng)

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        narrow, down_backward = self.down(x)
        latent, norm_backward = self.norm(narrow)
        y, up_backward = self.up(latent)

        def backward(dy: Array) -> Array:
            dlatent = up_backward(dy)
            dnarrow = norm_backward(dlatent)
            dx = down_backward(dnarrow)
            return dx

        return y, backward

    @property
    def d_out(self) -> int:
        """The width of y."""
        return self.up.d_out

    def part(self, columns: slice) -> Compressed:
        """A copy that gives only these numbers of y."""
        alone = copy.copy(self)
        alone.down, alone.norm = copy.deepcopy(self.down), copy.deepcopy(self.norm)
        alone.up = self.up.part(columns=columns)
        return alone

    def cost(self, batch: int, length: int) -> Cost:
        """That of its parts. Kept besides: what `up` reads; the input is counted by the attention."""
        return super().cost(batch, length) + Cost(kept=batch * length * self.up.weight.value.shape[0])


class Unturned(Module):
    """A turn that turns nothing, for a model without positions. Its latent attention still has the shared keys."""

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns dheads."""
        return heads, lambda dheads: dheads


class LatentAttention(Module):
    """H attentions whose keys and values come from one latent vector for each token. x, y: (..., T, D).

    d_head: width of a head's keys, without their rotated part; d_latent: width of the latent; d_rotary: width of the
    rotated part, an even number; d_value: width of a head's values, d_head unless given. d_query: width of the vector
    that queries come from; they come from x unless given. bias: of `down`, of the output, and of a query's first map.
    turn: what turns the rotated parts, neighbours as pairs unless given; mix: as of MultiHeadAttention.
    """

    @declared("d_model, n_heads, d_head, d_latent, d_rotary, d_value, d_query > 0")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        d_latent: int,
        d_rotary: int,
        rotary_base: float = 10000.0,
        rng: Rng | None = None,
        d_value: int | None = None,
        d_query: int | None = None,
        bias: bool = False,
        turn: Turn | None = None,
        mix: Mix | None = None,
    ) -> None:
        rng, wide = generator(rng), n_heads * (d_head + d_rotary)
        self.d_value = d_head if d_value is None else d_value
        self.query: Any = Linear(d_model, wide, False, rng)
        if d_query is not None:
            self.query = Compressed(d_model, d_query, wide, bias, rng)
        self.down = Linear(d_model, d_latent + d_rotary, bias, rng)
        self.norm = RMSNorm(d_latent)
        self.up = Linear(d_latent, n_heads * (d_head + self.d_value), False, rng)
        self.output = Linear(n_heads * self.d_value, d_model, bias, rng)
        self.d_model, self.n_heads, self.d_head, self.d_latent = d_model, n_heads, d_head, d_latent
        self.turn = RotaryPositions(rotary_base, interleaved=True) if turn is None else turn
        self.mix = ScaledDotProduct() if mix is None else mix

    new_cache = KeyValueCache

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        rng: Rng | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. mask: boolean, broadcasts to (..., T_q, T_k).

        positions: integers (..., T), unless they count from 0. With a cache, x holds only the new tokens; their latents
        join those in the cache, and there is no backward.
        """
        self.takes_sequences(self.d_model, x=x)
        if mask is not None and lacks_heads("LatentAttention", mask, x):
            mask = mask[..., None, :, :]  # the same for every head
        if cache is not None:
            check_layer_cache("LatentAttention", cache, rng)
        start = 0 if cache is None else cache.length
        q, q_backward = self._queries(x, start, positions)
        (latent, place), compress_backward = self._compressed(x, start, positions)
        if cache is not None:
            latents, place = cache.extend(latent[..., None, :, :], place)
            latent = latents[..., 0, :, :]
        (k, v), expand_backward = self._expanded(latent, place)
        heads, mix_backward = self.mix(q, k, v, mask, causal, rng)
        merged, merge_backward = self.ops.merge_heads(heads)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> Array:
            dmerged = output_backward(dy)
            dheads = merge_backward(dmerged)
            dq, dk, dv = mix_backward(dheads)
            of_latent, of_place = expand_backward(dk, dv)
            dx = q_backward(dq) + compress_backward(of_latent, of_place)
            return dx

        return y, backward if cache is None else no_backward

    def cost(self, batch: int, length: int) -> Cost:
        """Four maps, the norm of the latent, and scaled dot products.

        Kept besides: the input, the latent, the merged heads, and what `up` made, since the values are a view of it.
        """
        h, d_k = self.n_heads, self.d_head + self.down.weight.value.shape[1] - self.d_latent
        parts = (self.query, self.down, self.norm, self.up, self.output)
        mixed = self.mix.cost(batch, length, h, d_k, self.d_value)
        kept = batch * length * (self.d_model + self.d_latent + h * (self.d_head + self.d_value))
        return sum((part.cost(batch, length) for part in parts), mixed + Cost(kept=kept))

    def head(self, i: int) -> LatentAttention:
        """Head i alone, from 0 on, with copies of the latent's maps and of its part of the others.

        y = sum_i head(i)(x) + b_O.
        """
        check_index("LatentAttention.head", i, self.n_heads)
        of_query, of_up, of_output = (
            slice(i * width, (i + 1) * width)
            for width in (self.query.d_out // self.n_heads, self.d_head + self.d_value, self.d_value)
        )
        alone = copy.copy(self)
        alone.n_heads, alone.mix, alone.turn = 1, self.mix.head(i), copy.deepcopy(self.turn)
        alone.down, alone.norm = copy.deepcopy(self.down), copy.deepcopy(self.norm)
        alone.query, alone.up = self.query.part(columns=of_query), self.up.part(columns=of_up)
        alone.output = self.output.part(rows=of_output)
        alone.zero_grad()
        return alone

    def _queries(self, x: Array, start: int, positions: Array | None) -> tuple[Array, Pullback]:
        """The queries, (..., H, T, d + d_R): an unrotated and a rotated part."""
        xp, d = array_module(x), self.d_head
        projected, projection_backward = self.query(x)
        heads, split_backward = self.ops.split_heads(projected, self.n_heads)
        turned, turn_backward = self.turn(heads[..., d:], start, positions)
        q = xp.concatenate([heads[..., :d], turned], axis=-1)

        def backward(dq: Array) -> Array:
            dheads = xp.concatenate([dq[..., :d], turn_backward(dq[..., d:])], axis=-1)
            dprojected = split_backward(dheads)
            dx = projection_backward(dprojected)
            return dx

        return q, backward

    def _compressed(self, x: Array, start: int, positions: Array | None) -> tuple[tuple[Array, Array], Pullback]:
        """What a cache keeps for each token: the latent (..., T, d_c) and the rotated key (..., 1, T, d_R)."""
        xp, d = array_module(x), self.d_latent
        compressed, down_backward = self.down(x)
        latent, norm_backward = self.norm(compressed[..., :d])
        alone = compressed[..., None, :, d:]
        place, turn_backward = self.turn(alone, start, positions)

        def backward(dlatent: Array, dplace: Array) -> Array:
            dalone = turn_backward(dplace)
            dcompressed = xp.concatenate([norm_backward(dlatent), dalone[..., 0, :, :]], axis=-1)
            dx = down_backward(dcompressed)
            return dx

        return (latent, place), backward

    def _expanded(self, latent: Array, place: Array) -> tuple[tuple[Array, Array], Pullback]:
        """Keys (..., H, T, d + d_R) and values (..., H, T, d_v) of all heads."""
        xp, d = array_module(latent), self.d_head
        projected, up_backward = self.up(latent)
        heads, split_backward = self.ops.split_heads(projected, self.n_heads)
        places, repeat_backward = repeat_heads(place, self.n_heads)
        k, v = xp.concatenate([heads[..., :d], places], axis=-1), heads[..., d:]

        def backward(dk: Array, dv: Array) -> tuple[Array, Array]:
            dheads = xp.concatenate([dk[..., :d], dv], axis=-1)
            dprojected = split_backward(dheads)
            dlatent = up_backward(dprojected)
            dplaces = dk[..., d:]
            dplace = repeat_backward(dplaces)  # all heads share it
            return dlatent, dplace

        return (k, v), backward
