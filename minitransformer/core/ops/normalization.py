"""Normalisation of each row: LayerNorm and RMSNorm.

LayerNorm (Ba et al. 2016, "Layer Normalization") of a row x with D elements:

    mean       = (1/D) sum_i x_i
    variance   = (1/D) sum_i (x_i - mean)²          divided by D, not D - 1
    normalized = (x - mean) / √(variance + ε)        ε inside the root
    y          = γ * normalized + β

Backward. γ and β are shared by all rows, so their gradients sum over the rows: dγ = sum dy * normalized, dβ = sum dy.
For x, write n for normalized. An x_j affects n_j directly, and every n_i of its row through the mean and the variance:

    s = 1/√(variance + ε),     dn = γ * dy
    ∂n_i/∂x_j = s (δ_ij - 1/D - n_i n_j / D)

and summing dn_i over i gives three terms:

    dx_j = s (dn_j  -  mean_i(dn_i)  -  n_j mean_i(dn_i n_i))

The middle term removes the part that would shift the whole row, and the last term the part that would stretch it:
`normalized` can neither shift nor stretch (up to ε). γ belongs inside the means (in dn); to pull it out is right only
if all its entries are equal.

RMSNorm (Zhang and Sennrich 2019, "Root Mean Square Layer Normalization") leaves out the mean, and here also β:

    s = 1/√(mean(x²) + ε),     normalized = s x,     y = γ * normalized
    dx_j = s (dn_j - n_j mean_i(dn_i n_i))
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, library
from ..arrays.declared import op
from ..arrays.float16 import in_float32


@op("x, y: (..., D); gamma, beta: (D,); eps > 0")
@in_float32
def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Pullback]:
    """Give each row mean 0 and (up to ε) variance 1; then scale by γ and shift by β.

    backward(dy) returns (dx, dgamma, dbeta).
    """
    xp = library(type(x))
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    inverse_std = 1.0 / xp.sqrt(variance + eps)
    normalized = centered * inverse_std
    y = normalized * gamma + beta

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(dy.ndim - 1))
        dgamma = (dy * normalized).sum(axis=rows)
        dbeta = dy.sum(axis=rows)
        dnormalized = dy * gamma
        shift = dnormalized.mean(axis=-1, keepdims=True)
        stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
        dx = inverse_std * (dnormalized - shift - stretch)
        return dx, dgamma, dbeta

    return y, backward


@op("x, y: (..., D); gamma: (D,); eps > 0")
@in_float32
def rms_norm(x: Array, gamma: Array, eps: float = 1e-6) -> tuple[Array, Pullback]:
    """Give each row (up to ε) a mean square of 1; then scale by γ.

    backward(dy) returns (dx, dgamma).
    """
    xp = library(type(x))
    inverse_rms = 1.0 / xp.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    normalized = x * inverse_rms
    y = normalized * gamma

    def backward(dy: Array) -> tuple[Array, Array]:
        dgamma = (dy * normalized).sum(axis=tuple(range(dy.ndim - 1)))
        dnormalized = dy * gamma
        stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
        dx = inverse_rms * (dnormalized - stretch)
        return dx, dgamma

    return y, backward
