"""Attention with linear biases (ALiBi). Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases ...".

    bias_hij = -m_h distance_ij,     distance_ij = |i - j|

is added to the score of query i and key j in head h (section 3): the farther a key, the lower its score. No position
is added to any vector. A distance longer than any in training simply continues the line. The paper's slopes are a
geometric sequence, so some heads look far and others near:

    m_h = 2^(-8 h / H)      for h from 1 to H; where H is not a power of two, another rule: see `paper_slopes`

Backward. The paper keeps the slopes fixed, but they can be learned. m_h occurs in every score of its head, so

    dm_h = -sum_ij dbias_hij distance_ij
"""

from __future__ import annotations

import copy

import numpy as np

from ...core.arrays.backend import Array, Pullback, array_module, device_of, to_device
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32
from ...core.layers import Module


@op("slopes: (H,); t_q: T_q; t_k: T_k; bias: (H, T_q, T_k)")
@in_float32
def alibi(slopes: Array, t_q: int, t_k: int) -> tuple[Array, Pullback]:
    """A score that falls with the distance. backward(dbias): dslopes.

    Where T_q differs from T_k the queries are the last T_q of the T_k positions, as with a cache.
    """
    xp = array_module(slopes)
    behind = (xp.arange(t_q) + (t_k - t_q))[:, None] - xp.arange(t_k)[None, :]
    distance = abs(behind).astype(slopes.dtype)
    bias = -slopes[:, None, None] * distance

    def backward(dbias: Array) -> Array:
        dslopes = -(dbias * distance).sum(axis=(-2, -1))
        return dslopes

    return bias, backward


def paper_slopes(n_heads: int) -> np.ndarray:
    """(H,): 2^(-8/H), 2^(-16/H), ..., 2^(-8), if H is a power of two.

    Otherwise the slopes for P heads, the largest power of two below H, and then every second slope for 2P heads:
    2^(-4/P), 2^(-12/P), ... The paper does not cover this case; the authors' code does it this way
    (https://github.com/ofirpress/attention_with_linear_biases, get_slopes), and so does BLOOM (Le Scao et al. 2022).
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power, 2) / power)
    return np.concatenate([slopes, between[: n_heads - power]])


class LinearBias(Module):
    """A score that falls with the distance, with the paper's slope for each head (ALiBi). Nothing is learned."""

    def __init__(self, n_heads: int) -> None:
        self.slopes = paper_slopes(n_heads)  # (H,)

    def __call__(self, t_q: int, t_k: int, like: Array) -> tuple[Array, Pullback]:
        """Return (bias, backward); bias: (H, T_q, T_k), in the dtype and on the device of `like`."""
        slopes = to_device(self.slopes.astype(like.dtype), device_of(like).name)
        bias, _ = alibi(slopes, t_q, t_k)  # the slopes are not learned
        return bias, lambda dbias: None

    def head(self, i: int) -> LinearBias:
        """The bias of head i alone."""
        alone = copy.copy(self)
        alone.slopes = self.slopes[i : i + 1]
        return alone
