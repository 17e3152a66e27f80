"""Pooling: one vector for a whole sequence.

    y = sum_t m_t x_t / N,      N = sum_t m_t

This is the mean over the real positions (m_t = 1), without the padding (m_t = 0). All real positions have the same
share, so dx_t = m_t dy / N. Reimers and Gurevych 2019, "Sentence-BERT", section 3, call it the MEAN strategy.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, library
from ..arrays.declared import op
from ..arrays.float16 import in_float32


@op("x: (..., T, D); mask: booleans that broadcast to (..., T); y: (..., D)")
@in_float32
def mean_pool(x: Array, mask: Array | None = None) -> tuple[Array, Pullback]:
    """The mean over the sequence. mask: True where a token is real.

    A sequence with no real token gives zeros. backward(dy) returns dx.
    """
    xp = library(type(x))
    real = xp.ones(x.shape[:-1], dtype=bool)
    if mask is not None:
        real = real & mask
    counts = real.astype(x.dtype)[..., None]  # (..., T, 1): 1 for a token, 0 for padding
    share = counts / xp.maximum(counts.sum(axis=-2, keepdims=True), 1.0)
    y = (x * share).sum(axis=-2)

    def backward(dy: Array) -> Array:
        dx = dy[..., None, :] * share
        return dx

    return y, backward
