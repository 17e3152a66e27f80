"""Flash attention. Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention ...", and Dao 2023.

The result is that of attention.py, but the T_q × T_k scores never exist all at once. They are computed tile by tile:
a tile of queries meets one tile of keys after the other, and keeps for each query, of its scores s so far,

    m = max_j s_j,    l = sum_j e^(s_j - m),    o = sum_j e^(s_j - m) v_j

Online softmax (2022, section 3.1). If the next tile holds a larger score, m becomes m'. The sums so far used m, so they
are too large by a known factor. They are corrected, and the new tile is added, with scores t and values u:

    m' = max(m, max_j t_j),    l' = e^(m - m') l + sum_j e^(t_j - m'),    o' = e^(m - m') o + sum_j e^(t_j - m') u_j

After the last tile the output is o / l, and L = m + log l is kept: one number for each query (2023, section 3.1).

Backward (2022, section 3.1 and appendix B). Nothing of size T_q × T_k was kept, so each tile is computed again. With L
a weight needs no second pass over its row: weights_ij = exp(scores_ij - L_i). The rest is attention.py, tile by tile:

    dv_j += sum_i weights_ij doutput_i               dscores_ij = weights_ij (doutput_i · v_j - D_i)
    dq_i += scale · sum_j dscores_ij k_j             dk_j += scale · sum_i dscores_ij q_i

The softmax needs D_i = sum_j weights_ij (doutput_i · v_j), a sum over the whole row. It equals doutput_i · output_i,
because output_i = sum_j weights_ij v_j. So D costs T_q · d_v operations, and memory is O(T · d) forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...core.arrays.backend import Array, Pullback, array_module
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32


@op(
    "q: (..., T_q, d_k); k: (..., T_k, d_k); v: (..., T_k, d_v); output: (..., T_q, d_v); "
    "mask: booleans that broadcast to (..., T_k); tile > 0"
)
@in_float32
def flash_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    tile: int = 64,
) -> tuple[Array, Pullback]:
    """Attention in tiles of at most `tile` queries and keys: softmax(q kᵀ · scale) v in O(T · d) memory.

    mask: True where a key is real. causal, scale: as in attention. backward(doutput) returns (dq, dk, dv).
    """
    xp = array_module(q)
    t_q, t_k = q.shape[-2], k.shape[-2]
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    real = xp.ones((t_k,), dtype=bool) if mask is None else mask & xp.ones((t_k,), dtype=bool)
    ahead = t_k - t_q  # query i is at position i + ahead

    def tiles_of_keys(rows: slice) -> Iterator[slice]:
        stop = min(t_k, min(rows.stop, t_q) + ahead) if causal else t_k  # tiles ahead of every query are left out
        return _tiles(stop, tile)

    def scores_of(rows: slice, keys: slice) -> Array:
        products = (q[..., rows, :] @ k[..., keys, :].swapaxes(-1, -2)) * factor
        seen = real[..., None, keys]
        if causal:
            seen = seen & ((xp.arange(t_q)[rows] + ahead)[:, None] >= xp.arange(t_k)[keys])
        kept = xp.where(seen, products, -xp.inf)
        return kept

    def attend(rows: slice) -> tuple[Array, Array]:
        """The output and L of one tile of queries. L is infinite for a query that may attend to nothing."""
        largest = xp.full_like(q[..., rows, :1], -xp.inf)
        total = xp.zeros_like(largest)
        found = total * v[..., :1, :]
        for keys in tiles_of_keys(rows):
            visible = scores_of(rows, keys)
            larger = xp.maximum(largest, visible.max(axis=-1, keepdims=True))
            shift = xp.where(larger == -xp.inf, 0.0, larger)
            exponentials, correction = xp.exp(visible - shift), xp.exp(largest - shift)
            total = total * correction + exponentials.sum(axis=-1, keepdims=True)
            found = found * correction + exponentials @ v[..., keys, :]
            largest = larger
        divisor = xp.where(total > 0.0, total, 1.0)
        return found / divisor, xp.where(total > 0.0, largest + xp.log(divisor), xp.inf)

    def joined() -> tuple[Array, Array]:
        found, logs = xp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype), xp.zeros_like(q[..., :1])
        for rows in _tiles(t_q, tile):
            tile_found, tile_logs = attend(rows)
            found[..., rows, :] = tile_found
            logs[..., rows, :] = tile_logs
        return found, logs

    output, log_sums = joined()

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dq, dk, dv = xp.zeros_like(q), xp.zeros_like(k), xp.zeros_like(v)
        inner = (doutput * output).sum(axis=-1, keepdims=True)
        for rows in _tiles(t_q, tile):
            for keys in tiles_of_keys(rows):
                weights = xp.exp(scores_of(rows, keys) - log_sums[..., rows, :])
                dweights = doutput[..., rows, :] @ v[..., keys, :].swapaxes(-1, -2)
                dscores = weights * (dweights - inner[..., rows, :])
                dq[..., rows, :] += (dscores @ k[..., keys, :]) * factor
                dk[..., keys, :] += (dscores.swapaxes(-1, -2) @ q[..., rows, :]) * factor
                dv[..., keys, :] += weights.swapaxes(-1, -2) @ doutput[..., rows, :]
        return dq, dk, dv

    return output, backward


def _tiles(stop: int, tile: int) -> Iterator[slice]:
    return (slice(start, min(start + tile, stop)) for start in range(0, stop, tile))
