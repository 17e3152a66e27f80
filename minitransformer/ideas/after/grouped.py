"""Heads of queries that share keys and values. Ainslie et al. 2023, "GQA: Training Generalized Multi-Query ...".

There are fewer heads of keys and values than of queries: G shared heads, each for n = H / G consecutive query heads:

    repeat:  (..., G, T, d) -> (..., G·n, T, d)     head g·n + i of y is head g of x, for i from 0 to n - 1

A shared head is used n times, so its gradient is a sum of n terms: dx[g] = sum_i dy[g·n + i]. With one shared head,
G = 1, this is multi-query attention (Shazeer 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.layers import Linear, Module, MultiHeadAttention, ScaledDotProduct
from ...core.layers.module import generator
from ...core.layers.sockets import Mix, Turn
from .around import Around


@op("x: (..., G, T, d); y: (..., G·times, T, d); times > 0")
@in_float32
def repeat_heads(x: Array, times: int) -> tuple[Array, Pullback]:
    """Repeat each head `times` times, one copy after the other. backward(dy) returns dx."""
    xp = array_module(x)
    *batch, n_heads, t, d = x.shape
    y = xp.repeat(x, times, axis=-3)

    def backward(dy: Array) -> Array:
        dx = dy.reshape(*batch, n_heads, times, t, d).sum(axis=-3)
        return dx

    return y, backward


class Grouped(Around):
    """Mixes with shared heads: each head of keys and values serves a group of query heads. k, v: (..., G, T_k, d)."""

    def __init__(self, inner: Module) -> None:
        self.inner = inner

    def __call__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (heads, backward); backward(dheads) returns (dq, dk, dv)."""
        times = q.shape[-3] // k.shape[-3]
        all_k, k_backward = repeat_heads(k, times)
        all_v, v_backward = repeat_heads(v, times)
        heads, inner_backward = self.inner(q, all_k, all_v, mask, causal, rng)

        def backward(dheads: Array) -> tuple[Array, Array, Array]:
            dq, dall_k, dall_v = inner_backward(dheads)
            dk = k_backward(dall_k)
            dv = v_backward(dall_v)
            return dq, dk, dv

        return heads, backward

    def head(self, i: int) -> Any:
        """The part that mixes only head i: one head of queries, and its head of keys and values."""
        return self.inner.head(i)


@declared("d_model, n_heads, n_key_heads, d_head > 0")
def grouped(
    d_model: int,
    n_heads: int,
    n_key_heads: int,
    d_head: int | None = None,
    bias: bool = True,
    output_bias: bool | None = None,
    rng: Rng | None = None,
    mix: Mix | None = None,
    turn: tuple[Turn | None, Turn | None] = (None, None),
    around_maps: Callable[[Linear], Any] | None = None,
) -> MultiHeadAttention:
    """A MultiHeadAttention whose n_heads query heads share n_key_heads. output_bias: like bias unless given.

    around_maps(map): what takes the place of the maps of queries and of keys, such as a map with a norm after it.
    Raises ValueError where the heads cannot be shared equally.
    """
    if n_heads % n_key_heads:
        raise ValueError(f"grouped: {n_heads} heads of queries cannot share {n_key_heads} of keys equally")
    rng = generator(rng)
    mix = ScaledDotProduct() if mix is None else mix
    around = mix if n_heads == n_key_heads else Grouped(mix)  # type: ignore[arg-type]  # a Mix is a module
    if d_head is None and d_model % n_heads:
        raise ValueError(f"grouped: d_model {d_model} cannot be divided into {n_heads} equal heads; give d_head")
    width = d_model // n_heads if d_head is None else d_head
    query, key, value = (Linear(d_model, n * width, bias, rng) for n in (n_heads, n_key_heads, n_key_heads))
    output = Linear(n_heads * width, d_model, bias if output_bias is None else output_bias, rng)
    if around_maps is not None:
        query, key = around_maps(query), around_maps(key)
    return MultiHeadAttention.of(n_heads, query, key, value, output, mix=around, turn=turn)
