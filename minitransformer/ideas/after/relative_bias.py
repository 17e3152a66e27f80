"""Relative position bias. Raffel et al. 2020, "Exploring the Limits of Transfer Learning with ... (T5)", section 2.1.

    bias[h, i, j] = table[bucket(j - i), h]

is added to the score of query i and key j in head h. Distances share buckets. Half of the buckets hold one distance
each, up to `exact`. The others grow logarithmically up to max_distance, and the last holds all distances beyond it:

    bucket(n):  n                                                                   for n < exact
                exact + ⌊ln(n / exact) / ln(max_distance / exact) · (B - exact)⌋    else, and B - 1 at most

In an encoder, keys before and after the query each have half of the buckets. In a decoder, a key after the query counts
as distance 0.

Backward. This is an embedding whose ids are the buckets. An entry of the table sums the gradients of all pairs (i, j)
whose distance falls into its bucket: dtable[b, h] = sum over (i, j) with bucket(j - i) = b of dbias[h, i, j].
"""

from __future__ import annotations

import copy
import math

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module, scatter_add
from ...core.arrays.declared import declared, op
from ...core.layers import Module, Parameter
from ...core.layers.module import generator


@op("table: (buckets, H); t_q: T_q; t_k: T_k; bias: (H, T_q, T_k); max_distance > 0")
def relative_bias(
    table: Array, t_q: int, t_k: int, both_ways: bool = True, max_distance: int = 128
) -> tuple[Array, Pullback]:
    """A learned score for each distance and head. backward(dbias) returns dtable.

    Where T_q differs from T_k the queries are the last T_q of the T_k positions, as with a cache. both_ways: whether
    keys after the query have their own buckets, as in an encoder.
    """
    per_side = table.shape[0] // (2 if both_ways else 1)
    if per_side < 2 or max_distance <= per_side // 2:
        raise ValueError(
            f"relative_bias: {table.shape[0]} buckets up to distance {max_distance} do not fit; there must be at least "
            f"{4 if both_ways else 2} buckets, and max_distance must exceed {per_side // 2}"
        )
    xp = array_module(table)
    buckets = xp.asarray(_buckets(t_q, t_k, table.shape[0], both_ways, max_distance))  # (T_q, T_k)
    rows = table[buckets]  # (T_q, T_k, H)
    bias = xp.ascontiguousarray(xp.moveaxis(rows, -1, 0))

    def backward(dbias: Array) -> Array:
        drows = xp.moveaxis(dbias, 0, -1)
        dtable = xp.zeros_like(table)
        scatter_add(dtable, buckets.reshape(-1), xp.ascontiguousarray(drows.reshape(-1, table.shape[1])))
        return dtable

    return bias, backward


def _buckets(t_q: int, t_k: int, n_buckets: int, both_ways: bool, max_distance: int) -> np.ndarray:
    ahead = np.arange(t_k)[None, :] - (np.arange(t_q) + t_k - t_q)[:, None]  # j - i
    first, n = np.zeros_like(ahead), np.maximum(-ahead, 0)
    if both_ways:
        n_buckets //= 2
        first, n = np.where(ahead > 0, n_buckets, 0), abs(ahead)
    exact = n_buckets // 2
    # in float32, like the published models: at a bucket's border float64 may round to the other side
    return first + np.where(
        n < exact,
        n,
        np.minimum(
            exact
            + (
                np.log(np.maximum(n, 1).astype(np.float32) / exact)
                / math.log(max_distance / exact)
                * (n_buckets - exact)
            ).astype(np.int64),
            n_buckets - 1,
        ),
    )


class RelativeBias(Module):
    """A learned bias of the scores, for each head and distance.

    table: (buckets, H), drawn from N(0, std²). Several layers may share one bias: its gradients add up. A call
    returns (bias, backward), bias: (H, T_q, T_k); backward(dbias) returns None.
    """

    @declared("n_heads, buckets, max_distance > 0; std >= 0")
    def __init__(
        self,
        n_heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        both_ways: bool = True,
        std: float = 0.02,
        rng: Rng | None = None,
    ) -> None:
        self.table = Parameter(generator(rng).normal(0.0, std, (buckets, n_heads)).astype(np.float32, copy=False))
        self.max_distance, self.both_ways = max_distance, both_ways

    def __call__(self, t_q: int, t_k: int, like: Array | None = None) -> tuple[Array, Pullback]:
        """Return (bias, backward)."""
        bias, bias_backward = relative_bias(self.table.value, t_q, t_k, self.both_ways, self.max_distance)

        def backward(dbias: Array) -> None:
            self.table.grad += bias_backward(dbias)

        return bias, backward

    def head(self, i: int) -> RelativeBias:
        """The bias of head i alone."""
        alone = copy.copy(self)
        alone.table = self.table.part(np.s_[:, i : i + 1])
        return alone
