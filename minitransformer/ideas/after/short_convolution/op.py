"""A short causal convolution, one filter for each channel. Gu and Dao 2023, "Mamba", section 3.4.

Each number of a vector is mixed with the same number of the K - 1 vectors before it, and with no other:

    y_tc = bias_c + sum_j weight_jc · x_{t-K+1+j, c}          j from 0 to K - 1

so weight_{K-1} belongs to the position itself, and weight_0 to the earliest that it sees. (The convolution of
ideas/before/convolution.py maps whole vectors, with K·D² weights; this one has K·D.) With K = 4 a layer costs next to
nothing, and tells each token what came right before it, which a memory of sums cannot tell.

The K - 1 vectors before the first one are `before`; zeros at the start of a text. Put them in front, so that place i
of `seen` is position i - (K - 1):

    y_t = bias + sum_j weight_j ∘ seen_{t+j}

A window holds the K vectors that one output reads, one under the other:

    windows_tj = seen_{t+j}                         (T, K, D)
    y_t        = bias + sum_j weight_j ∘ windows_tj

Backward. A vector lies in up to K windows, at another place in each, so its gradient is a sum over them:

    dwindows_tj = weight_j ∘ dy_t
    dweight_j   = sum_t dy_t ∘ windows_tj
    dbias       = sum_t dy_t
    dseen_i     = sum_j dwindows_{i-j, j}           over the windows i - j that exist

dseen holds dbefore and, after it, dx. The last K - 1 vectors of `seen` are all that the next tokens need.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.boundary import check_shape
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32


@op("x, y: (..., T, D); weight: (K, D); bias: (D,); before: (..., B, D)")
@in_float32
def short_convolution(
    x: Array, weight: Array, bias: Array | None = None, before: Array | None = None
) -> tuple[Array, Pullback]:
    """Each number becomes a weighted sum of itself and of its K - 1 predecessors in time.

    before: the B = K - 1 vectors in front of x, which need a bias beside them; zeros unless given. backward(dy) returns
    (dx, dweight), with a bias (dx, dweight, dbias), and with both (dx, dweight, dbias, dbefore).
    Gu and Dao 2023, "Mamba", section 3.4.
    """
    xp = array_module(x)
    kernel = weight.shape[0]
    reach = kernel - 1
    start = (*x.shape[:-2], reach, x.shape[-1])
    if before is not None:
        if bias is None:
            raise ValueError("short_convolution: before needs a bias; give zeros for none")
        check_shape("short_convolution", "before", before, start)
    front = xp.zeros(start, x.dtype) if before is None else before
    seen = xp.concatenate([front, x], axis=-2)
    windows = _windows(seen, kernel)
    sums = (windows * weight).sum(axis=-2)
    y = sums if bias is None else sums + bias

    def backward(dy: Array) -> tuple[Array, ...]:
        dwindows = dy[..., None, :] * weight
        dseen = _collected(dwindows)
        rows = tuple(range(dy.ndim - 1))
        dweight = (dy[..., None, :] * windows).sum(axis=rows)
        dx = dseen[..., reach:, :]
        if bias is None:
            return dx, dweight
        dbias = dy.sum(axis=rows)
        if before is None:
            return dx, dweight, dbias
        dbefore = dseen[..., :reach, :]
        return dx, dweight, dbias, dbefore

    return y, backward


def _windows(seen: Array, kernel: int) -> Array:
    """Row t + j of (..., T + K - 1, D) at place j of window t: (..., T, K, D)."""
    *leading, rows, width = seen.shape
    length = rows - kernel + 1
    windows = array_module(seen).zeros((*leading, length, kernel, width), seen.dtype)
    for j in range(kernel):
        windows[..., j, :] = seen[..., j : j + length, :]
    return windows


def _collected(dwindows: Array) -> Array:
    """The adjoint of _windows: each row adds up the gradients of its places in the windows."""
    *leading, length, kernel, width = dwindows.shape
    total = array_module(dwindows).zeros((*leading, length + kernel - 1, width), dwindows.dtype)
    for j in range(kernel):
        total[..., j : j + length, :] += dwindows[..., j, :]
    return total
