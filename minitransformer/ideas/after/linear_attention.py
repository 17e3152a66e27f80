"""Linear attention. Katharopoulos et al. 2020, "Transformers are RNNs", sections 3.2 to 3.4.

Softmax attention weights a value by exp(q·k). If the weight is instead a product of features, φ(q)·φ(k), the sum over
the keys can be computed before any query is known:

    φ(x) = max(x, 0) + exp(min(x, 0))                 elu(x) + 1
    S_i = S_{i-1} + φ(k_i) v_iᵀ,     z_i = z_{i-1} + φ(k_i)

    output_i = (sum_{j≤i} (φ(q_i)·φ(k_j)) v_j) / (sum_{j≤i} φ(q_i)·φ(k_j)) = (φ(q_i)ᵀ S_i) / (φ(q_i)ᵀ z_i)

S has the size d_k × d_v for any length of sequence, like a recurrent layer's state. If a 1 is appended to each v, z is
the last column of S. So only C(a, b, c)_i = sum_{j≤i} (a_i·b_j) c_j must be computed, with a = φ(q), b = φ(k),
c = (v, 1). This is done in blocks: terms within a block by a product under a causal mask, terms from before it by the
state. Blocks of one position give the recurrence, one block of the whole sequence gives the product. All sizes of
blocks give the same result, in time O(T · d²).

Backward (their equations 13 to 15). C is linear in each argument, and each gradient has the same form:

    da_i = sum_{j≤i} (dy_i·c_j) b_j         which is C(dy, c, b)
    db_j = sum_{i≥j} (c_j·dy_i) a_i         a sum over later positions: C(c, dy, a) of the reversed sequence
    dc_j = sum_{i≥j} (b_j·a_i) dy_i         likewise, C(b, a, dy)

The quotient output = y / t has dy = doutput / t and dt = -doutput·output / t; and φ'(x) = min(φ(x), 1).

A layer splits x into heads, head_h = linear_attention(x W_Q[h], x W_K[h], x W_V[h]). For one more token it needs only
the sums S and z of each head, d_k × d_v and d_k numbers, but no earlier key or value.
"""

from __future__ import annotations

from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32
from ...core.layers.attention import MultiHeadAttention
from ...core.layers.cache import no_backward
from ...core.layers.linear import Linear
from ...core.layers.module import Module, generator
from ...core.layers.part_cost import Cost
from ..before.state_cache import StateCache


@op("q, k: (..., T, d_k); v, output: (..., T, d_v); mask: booleans that broadcast to (..., T); block > 0")
@in_float32
def linear_attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, block: int = 64
) -> tuple[Array, Pullback]:
    """Causal attention in linear time: the weights of the values are φ(q_i)·φ(k_j), normalised over j ≤ i.

    mask: True where a key is real. block: positions in a block. backward(doutput) returns (dq, dk, dv).
    """
    xp = array_module(q)
    queries, values = features(q), with_one(v)
    keys = features(k) if mask is None else xp.where(mask[..., None], features(k), 0.0)
    sums, _ = causal_sums(queries, keys, values, block)
    totals = xp.where(sums[..., -1:] > 0.0, sums[..., -1:], 1.0)  # 0 where no key is real
    output = sums[..., :-1] / totals

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dtotals = -(doutput * output).sum(axis=-1, keepdims=True) / totals
        dsums = xp.concatenate([doutput / totals, dtotals], axis=-1)
        dqueries, _ = causal_sums(dsums, values, keys, block)
        # Not named dkeys, which would be checked: a row without a real key has total 1, and no finite difference.
        of_keys = _later_sums(values, dsums, queries, block)
        dvalues = _later_sums(keys, queries, dsums, block)
        dq = dqueries * xp.minimum(queries, 1.0)
        dk = of_keys * xp.minimum(keys, 1.0)
        dv = dvalues[..., :-1]
        return dq, dk, dv

    return output, backward


def features(x: Array) -> Array:
    """φ(x) = elu(x) + 1, which is positive."""
    xp = array_module(x)
    return xp.where(x > 0.0, x + 1.0, xp.exp(xp.minimum(x, 0.0)))


def with_one(v: Array) -> Array:
    """(..., T, d) to (..., T, d + 1): a 1 after each row."""
    xp = array_module(v)
    return xp.concatenate([v, xp.ones_like(v[..., :1])], axis=-1)


def causal_sums(a: Array, b: Array, c: Array, block: int, state: Array | None = None) -> tuple[Array, Array]:
    """sum_{j≤i} (a_i·b_j) c_j for each i, and the state sum_j b_j c_jᵀ. state: of the positions before, if any."""
    xp = array_module(a)
    if state is None:
        state = xp.zeros((*a.shape[:-2], b.shape[-1], c.shape[-1]), a.dtype)
    sums = xp.zeros((*a.shape[:-1], c.shape[-1]), a.dtype)
    for start in range(0, a.shape[-2], block):
        rows = slice(start, start + block)
        near = xp.tril(a[..., rows, :] @ b[..., rows, :].swapaxes(-1, -2))
        sums[..., rows, :] = a[..., rows, :] @ state + near @ c[..., rows, :]
        state = state + b[..., rows, :].swapaxes(-1, -2) @ c[..., rows, :]
    return sums, state


def _later_sums(a: Array, b: Array, c: Array, block: int) -> Array:
    """sum_{j≥i} (a_i·b_j) c_j for each i."""
    sums, _ = causal_sums(a[..., ::-1, :], b[..., ::-1, :], c[..., ::-1, :], block)
    return sums[..., ::-1, :]


class LinearAttention(Module):
    """H causal linear attentions side by side. x, y: (..., T, D)."""

    @declared("d_model, n_heads, block > 0")
    def __init__(self, d_model: int, n_heads: int, bias: bool = True, block: int = 64, rng: Rng | None = None) -> None:
        if d_model % n_heads:
            raise ValueError(f"LinearAttention: d_model {d_model} cannot be divided into {n_heads} equal heads")
        rng = generator(rng)
        self.query, self.key, self.value, self.output = (Linear(d_model, d_model, bias, rng) for _ in range(4))
        self.d_model, self.n_heads, self.block = d_model, n_heads, block

    new_cache = StateCache
    project: Any = MultiHeadAttention.project

    def __call__(self, x: Array, mask: Array | None = None, cache: StateCache | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. mask: boolean, broadcasts to (..., T), True for real tokens.

        With a cache, x holds only the new tokens, none of them padding, and there is no backward.
        """
        self.takes_sequences(self.d_model, x=x)
        if cache is not None:
            return self._cached(x, mask, cache), no_backward
        width = self.d_model // self.n_heads
        q, q_backward = self.project(self.query, x, width)
        k, k_backward = self.project(self.key, x, width)
        v, v_backward = self.project(self.value, x, width)
        of_heads = None if mask is None else mask[..., None, :]
        heads, attention_backward = linear_attention(q, k, v, of_heads, self.block)
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

    def _cached(self, x: Array, mask: Array | None, cache: StateCache) -> Array:
        if not isinstance(cache, StateCache):
            raise TypeError(f"LinearAttention: cache must be a StateCache, got {type(cache).__name__}")
        if mask is not None:
            raise ValueError("LinearAttention: a call with a cache takes no mask; give it only real tokens")
        width = self.d_model // self.n_heads
        q, k, v = (self.project(projection, x, width)[0] for projection in (self.query, self.key, self.value))
        sums, state = causal_sums(features(q), features(k), with_one(v), self.block, cache.state)
        cache.keep(state, x.shape[-2])
        return self.output(self.ops.merge_heads(sums[..., :-1] / sums[..., -1:])[0])[0]
