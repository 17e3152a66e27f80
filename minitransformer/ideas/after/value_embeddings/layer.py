"""Value embeddings, a second table of tokens, for the values alone. Karpathy, github.com/karpathy/nanochat, gpt.py.

Zhou et al. 2024, "Value Residual Learning For Alleviating Attention Concentration In Transformers", give every layer
the values of the first one; a table E gives a layer values of its own that depend on the token alone. With u, the first
channels of x, and with e_t = E[id_t] and m = x W_V, both in G heads of width d:

    a_th = sum_c u_tc W_ch,    g = 2 σ(a)          one gate from 0 to 2 for each head
    v_thi = m_thi + g_th e_thi

So a token can say what it is to whoever attends to it, at any depth; x need not carry that through all layers. W starts
at zero, where every gate is 1. (nanochat of July 2026 has 3 in place of 2, and reads 12 channels.)

Backward. The sum hands dv on to x W_V, and the product gives each factor dv times the other:

    de_thi = g_th dv_thi                           row w of E: the sum of de_t over all t with the token w
    dg_th = sum_i dv_thi e_thi                     a gate is used for all d numbers of its head
    da = dg ⊙ g ⊙ (1 - g / 2)                      2 σ (1 - σ), written in g
    dW = uᵀ da,    du = da Wᵀ

x is read twice: dx is what W_V gives back, and du on top of that in the first channels.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.boundary import check_array, check_shape, lacks_heads
from ....core.arrays.declared import declared
from ....core.layers import Cost, Embedding, KeyValueCache, Linear, Module, MultiHeadAttention, Parameter
from ....core.layers.cache import attend, check_layer_cache, no_backward
from ....core.layers.module import generator
from ....core.layers.sockets import Map
from ..output_gate import sigmoid


class ValueEmbedding(Module):
    """v = x W_V + g · E[ids], a map of values. x: (..., T, D); ids: integers (..., T); v: (..., T, G·d).

    projection: W_V. n_heads: G, the heads of keys. n_channels: how many numbers of x the gates read.
    """

    @declared("n_heads, vocabulary, n_channels > 0")
    def __init__(self, projection: Map, n_heads: int, vocabulary: int, n_channels: int, rng: Rng | None = None) -> None:
        self.d_in, self.d_out = d_in, d_out = projection.d_in, projection.d_out
        if d_out % n_heads or n_channels > d_in:
            needs = f"{n_heads} equal heads, and {n_channels} channels for the gates"
            raise ValueError(f"ValueEmbedding: a map from {d_in} to {d_out} numbers must have {needs}")
        rng, self.projection = generator(rng), projection
        self.table = Embedding(vocabulary, d_out, rng=rng)
        self.gate = Linear(n_channels, n_heads, False, rng)
        self.gate.weight = Parameter(np.zeros((n_channels, n_heads), np.float32))

    def __call__(self, x: Array, ids: Array) -> tuple[Array, Pullback]:
        """Return (v, backward); backward(dv) returns dx."""
        check_array("ValueEmbedding", "ids", ids)
        check_shape("ValueEmbedding", "ids", ids, x.shape[:-1])
        xp, c = array_module(x), self.gate.d_in
        mapped, projection_backward = self.projection(x)
        rows, table_backward = self.table(ids)
        asked, gate_backward = self.gate(x[..., :c])
        share, sigmoid_backward = sigmoid(asked)
        gates = 2.0 * share[..., None]
        embedded = rows.reshape(*share.shape, -1)
        added = gates * embedded
        v = mapped + added.reshape(mapped.shape)

        def backward(dv: Array) -> Array:
            dadded = dv.reshape(embedded.shape)
            dembedded = gates * dadded
            table_backward(dembedded.reshape(rows.shape))
            dgates = (dadded * embedded).sum(axis=-1, keepdims=True)
            dshare = 2.0 * dgates[..., 0]
            dasked = sigmoid_backward(dshare)
            dfirst = gate_backward(dasked)
            dmapped = dv
            dread = projection_backward(dmapped)
            dx = xp.concatenate([dread[..., :c] + dfirst, dread[..., c:]], axis=-1)
            return dx

        return v, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Two products. Kept besides: rows of the table, sigmoids and gates. The channels are a view of x."""
        return super().cost(batch, length) + Cost(kept=batch * length * (self.d_out + 2 * self.gate.d_out))

    def part(self, rows: slice = slice(None), columns: slice = slice(None)) -> ValueEmbedding:
        """A copy that gives only these numbers of v: those of one head, or of several. It reads all of x."""
        start, stop, _ = columns.indices(self.d_out)
        d = self.d_out // self.gate.d_out
        alone = copy.copy(self)
        alone.d_out, alone.projection = stop - start, self.projection.part(columns=columns)
        alone.table, alone.gate = copy.copy(self.table), self.gate.part(columns=slice(start // d, stop // d))
        alone.table.table = self.table.table.part((slice(None), columns))
        return alone


class ValueAttention(MultiHeadAttention):
    """Self-attention that hands the ids of its tokens to a ValueEmbedding, its map of values. x, y: (..., T, D).

    With another map it ignores them.
    """

    @classmethod
    def like(cls, attention: MultiHeadAttention, value: Any = None) -> Any:
        """One of the same parts. value: in place of the map of values, unless None."""
        a = attention
        maps = a.query, a.key, value or a.value, a.output
        return cls.of(a.n_heads, *maps, mix=a.mix, turn=(a.turn_query, a.turn_key))

    def __call__(
        self,
        x: Array,
        ids: Array | None = None,
        mask: Array | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        rng: Rng | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx. ids: integers (..., T); the rest as of MultiHeadAttention."""
        if ids is None:
            raise TypeError("ValueAttention: ids are missing; the model that its config builds hands them on: .build()")
        self.takes_sequences(self.d_model, x=x)
        if mask is not None and lacks_heads("ValueAttention", mask, x):
            mask = mask[..., None, :, :]  # the same for every head
        value: Any = partial(self.value, ids=ids) if isinstance(self.value, ValueEmbedding) else self.value
        if cache is not None:
            check_layer_cache("ValueAttention", cache, rng)
            reading = copy.copy(self)  # nothing of a call is stored on the module
            reading.value = value
            heads = attend(reading, cache, x, None, mask, causal, positions)
            return self.output(self.ops.merge_heads(heads)[0])[0], no_backward
        q, q_backward = self.project(self.query, x, self.d_k, self.turn_query, 0, positions)
        k, k_backward = self.project(self.key, x, self.d_k, self.turn_key, 0, positions)
        v, v_backward = self.project(value, x, self.d_v)
        heads, mix_backward = self.mix(q, k, v, mask, causal, rng)
        merged, merge_backward = self.ops.merge_heads(heads)
        y, output_backward = self.output(merged)

        def backward(dy: Array) -> Array:
            dmerged = output_backward(dy)
            dheads = merge_backward(dmerged)
            dq, dk, dv = mix_backward(dheads)
            dx = q_backward(dq) + k_backward(dk) + v_backward(dv)
            return dx

        return y, backward
