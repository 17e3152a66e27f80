"""Heads: splitting, merging, multi-head attention forward and backward, and one step with a key-value cache."""

from __future__ import annotations

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise
from .attention import attention_backward, attention_forward


def _split(draw: Draw) -> Arguments:
    batch, t, n_heads, d = draw.sizes(4, 2, 6)
    return draw.normal(batch, t, n_heads * d), n_heads


@exercise(_split)
def split_heads(x: Array, n_heads: int) -> Array:
    """Splitting into heads.

    Head h of every token is the piece h·d to (h + 1)·d of its vector: heads[b, h, t, c] = x[b, t, h·d + c].

    x: (B, T, H·d); n_heads: H; heads: (B, H, T, d).

    Hint: A reshape can only cut an axis in two, in place: (B, T, H, d). Then two axes have to change places.
    """
    batch, t, _ = x.shape
    heads = x.reshape(batch, t, n_heads, -1).swapaxes(1, 2)
    return heads


@exercise(lambda draw: draw.arrays("b h t d", 2, 6))
def merge_heads(heads: Array) -> Array:
    """Merging heads.

    The inverse: put the heads of a token side by side again, x[b, t, h·d + c] = heads[b, h, t, c]. (It is also the
    pullback of splitting: both only move numbers.)

    heads: (B, H, T, d); x: (B, T, H·d).

    Hint: Before a reshape can join two axes, they must be adjacent, with the heads before d.
    """
    batch, n_heads, t, d = heads.shape
    x = heads.swapaxes(1, 2).reshape(batch, t, n_heads * d)
    return x


def _multi_head(draw: Draw) -> Arguments:
    batch, t, n_heads, d = draw.sizes(4, 2, 5)
    width = n_heads * d + 1  # not H·d, so that W_O is not square and no wrong product fits
    scale = 3.0 if draw.extreme else 1.0
    w_q, w_k, w_v = (scale * draw.normal(width, n_heads * d) / np.sqrt(width) for _ in range(3))
    w_o = scale * draw.normal(n_heads * d, width) / np.sqrt(n_heads * d)
    return 1.5 / scale * draw.normal(batch, t, width), w_q, w_k, w_v, w_o, n_heads


@exercise(_multi_head)
def multi_head_attention_forward(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, n_heads: int) -> Array:
    """Multi-head self-attention.

    Project x to queries, keys and values, split each into H heads, let each head attend by itself (with 1/√d, d
    being the width of a head), merge the heads and project the result: y = merge(heads) w_o. There are no biases.

    x, y: (B, T, D); w_q, w_k, w_v: (D, H·d); w_o: (H·d, D); n_heads: H.

    Hint: You have written every piece: split_heads, attention_forward, merge_heads. Does your attention_forward care
    how many axes come before the last two?
    """
    q, k, v = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))
    heads, _ = attention_forward(q, k, v)
    y = merge_heads(heads) @ w_o
    return y


def _multi_head_backward(draw: Draw) -> Arguments:
    x, w_q, w_k, w_v, w_o, n_heads = _multi_head(draw)
    q, k, v = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))
    heads, weights = attention_forward(q, k, v)
    params = {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    saved = {"q": q, "k": k, "v": v, "weights": weights, "merged": merge_heads(heads)}
    return x, params, saved, draw.gradient(*x.shape)


@exercise(_multi_head_backward)
def multi_head_attention_backward(
    x: Array, params: dict[str, Array], saved: dict[str, Array], dy: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Multi-head self-attention, backward.

    y = merged w_o, where merged holds the H heads side by side, each the attention of its queries, keys and
    values, and those are the split projections x w_q, x w_k, x w_v. Given dy, return the gradients of x and of
    all four matrices, dw_q, dw_k, dw_v and dw_o, each in the shape of its matrix.

    x, dx, dy: (B, T, D). params: a dictionary with "w_q", "w_k", "w_v": (D, H·d) and "w_o": (H·d, D).
    saved: a dictionary with what the forward pass computed: "q", "k", "v": (B, H, T, d), "weights": (B, H, T, T),
    "merged": (B, T, H·d). You may call your split_heads, merge_heads and attention_backward.

    Hint: The pullback of merging is splitting, and that of splitting is merging. x is used three times, so its gradient
    is a sum of three. Each dw is (rows of the input)ᵀ (rows of the output's gradient), with batch and positions
    flattened.
    """

    def rows(x: Array) -> Array:
        return x.reshape(-1, x.shape[-1])

    n_heads = saved["q"].shape[1]
    dmerged = dy @ params["w_o"].T
    dw_o = rows(saved["merged"]).T @ rows(dy)
    dheads = split_heads(dmerged, n_heads)
    by_head = attention_backward(saved["q"], saved["k"], saved["v"], saved["weights"], dheads)
    dq, dk, dv = (merge_heads(d) for d in by_head)
    dw_q, dw_k, dw_v = (rows(x).T @ rows(d) for d in (dq, dk, dv))
    dx = dq @ params["w_q"].T + dk @ params["w_k"].T + dv @ params["w_v"].T
    return dx, dw_q, dw_k, dw_v, dw_o


def _cache(draw: Draw) -> Arguments:
    t, width, d_k, d_v = draw.sizes(4, 3 if draw.extreme else 2, 7)
    x, values, w_v = draw.normal(width), draw.normal(t, d_v), draw.normal(width, d_v)
    keys, w_q, w_k = draw.normal(t, d_k), *(draw.normal(width, d_k) / np.sqrt(width) for _ in range(2))
    if draw.extreme:  # the scores are those of the first query there
        x = np.eye(width)[0]
        w_q, keys = draw.queries_and_keys((), width, t, d_k)
        w_k = -draw.queries_and_keys((), width, t, d_k)[0]
    if draw.number == 1:  # all scores are far below 0, those of the old keys below that of the new one
        query = x @ w_q
        far = 1000.0 * np.sqrt(d_k) / (query @ query) * query
        keys, w_k = keys - 2.0 * far, w_k - np.outer(x, far) / (x @ x)
    return x, keys, values, w_q, w_k, w_v


@exercise(_cache)
def kv_cache_step(x: Array, keys: Array, values: Array, w_q: Array, w_k: Array, w_v: Array) -> tuple[Array, ...]:
    """One step with a key-value cache.

    A decoder has read T tokens; `keys` and `values` hold what it computed from them. Now one more token comes,
    with the vector x. Return what attention gives for it (one head, scaled by 1/√d_k; it may see itself and all
    before it) and the two caches with the new token's key and value at the end.

    x: (D,); keys: (T, d_k); values: (T, d_v); w_q, w_k: (D, d_k); w_v: (D, d_v); output: (d_v,);
    new_keys: (T + 1, d_k); new_values: (T + 1, d_v). Some scores are near 800, where exp overflows; at some steps
    all are far below 0.

    Hint: Compute only one query, one key and one value. np.concatenate or np.vstack makes a longer array.
    """
    query = x @ w_q
    new_keys = np.vstack([keys, x @ w_k])
    new_values = np.vstack([values, x @ w_v])
    scores = new_keys @ query / np.sqrt(len(query))
    exponentials = np.exp(scores - scores.max())
    output = exponentials / exponentials.sum() @ new_values
    return output, new_keys, new_values
