"""LayerNorm and RMSNorm of several axes at once. Ba et al. 2016, section 3.1: "all the hidden units in the same layer".

`layer_norm` normalises over the last axis. Where a layer's units fill several axes, such as the heads of one position,
these axes are merged first:

    y: layer_norm(x, γ and β with their last axes merged), reshaped to x's shape

There are as many of these axes as γ has. Backward is that of the norm over one axis, and reshapes dx and dγ likewise.
"""

from __future__ import annotations

from ...core.arrays.backend import Array, Pullback
from ...core.arrays.boundary import check_shape
from ...core.arrays.declared import op
from ...core.arrays.float16 import in_float32
from ...core.ops.normalization import layer_norm, rms_norm


@op("x, y: (..., *D); gamma, beta: (*D); eps > 0")
@in_float32
def layer_norm_over_axes(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Pullback]:
    """LayerNorm over as many of the last axes as γ has. Ba et al. 2016.

    backward(dy) returns (dx, dgamma, dbeta).
    """
    rows = _rows("layer_norm_over_axes", x, gamma)
    check_shape("layer_norm_over_axes", "beta", beta, gamma.shape)
    flat, norm_backward = layer_norm(x.reshape(rows), gamma.reshape(-1), beta.reshape(-1), eps)
    y = flat.reshape(x.shape)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dx_row, dgamma_row, dbeta_row = norm_backward(dy.reshape(rows))
        dx, dgamma, dbeta = dx_row.reshape(x.shape), dgamma_row.reshape(gamma.shape), dbeta_row.reshape(gamma.shape)
        return dx, dgamma, dbeta

    return y, backward


@op("x, y: (..., *D); gamma: (*D); eps > 0")
@in_float32
def rms_norm_over_axes(x: Array, gamma: Array, eps: float = 1e-6) -> tuple[Array, Pullback]:
    """RMSNorm over as many of the last axes as γ has. Zhang and Sennrich 2019.

    backward(dy) returns (dx, dgamma).
    """
    rows = _rows("rms_norm_over_axes", x, gamma)
    flat, norm_backward = rms_norm(x.reshape(rows), gamma.reshape(-1), eps)
    y = flat.reshape(x.shape)

    def backward(dy: Array) -> tuple[Array, Array]:
        dx_row, dgamma_row = norm_backward(dy.reshape(rows))
        dx, dgamma = dx_row.reshape(x.shape), dgamma_row.reshape(gamma.shape)
        return dx, dgamma

    return y, backward


def _rows(where: str, x: Array, gamma: Array) -> tuple[int, ...]:
    """The shape of x with its last axes, those of gamma, in one."""
    leading = x.ndim - gamma.ndim
    if gamma.ndim == 0 or leading < 0 or x.shape[leading:] != gamma.shape:
        raise ValueError(f"{where}: gamma must have the shape of the last axes of x {x.shape}, got {gamma.shape}")
    return (*x.shape[:leading], gamma.size)
