"""Convolution over time with a stride. Radford et al. 2022, "Robust Speech Recognition ... Supervision", section 2.2.

Sound has a hundred frames a second, far more than it has words. A convolution that computes only every `stride`-th of
its outputs shortens the sequence from T to ⌈T / stride⌉ vectors, each of which still saw all k inputs around it:

    w_tj = x_{stride·t + j - before}
    y_t  = b + Σ_j w_tj W_j      j from 0 to k - 1

where before is (k - 1)/2, w_t is a window, and an x outside the sequence is 0. It is the convolution of
ideas/before/convolution.py, of whose windows only every stride-th is read; cutting an image into patches is the same in
two directions, with a stride as wide as the window.

Backward: a window that was not read gets the gradient 0. So dy is spread, with stride - 1 zeros after each of its rows,
and then everything is as without a stride:

    dw_tj = dy_t W_jᵀ
    dx_s  = Σ_tj 1[stride·t + j - before = s] dw_tj
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32_on_host
from ....core.ops.linear import linear
from ...before.convolution import _collected, _windows


@op("x: (..., T, D_in); weight: (k, D_in, D_out); bias: (D_out,); y: (..., N, D_out); stride > 0")
@in_float32_on_host
def strided_convolution(x: Array, weight: Array, bias: Array, stride: int = 1) -> tuple[Array, Pullback]:
    """A linear map of the k inputs around every stride-th position: N = ⌈T / stride⌉ outputs. k must be odd.

    backward(dy) returns (dx, dweight, dbias).
    """
    kernel, d_in, d_out = weight.shape
    if kernel % 2 == 0:
        raise ValueError(f"strided_convolution: a centred window needs an odd kernel, got {kernel}")
    xp, before = array_module(x), (kernel - 1) // 2

    windows = _windows(x, kernel, 1, before)
    at = xp.arange(0, x.shape[-2], stride)
    read = windows[..., at, :]
    shape = windows.shape  # what backward needs of them
    y, linear_backward = linear(read, weight.reshape(kernel * d_in, d_out), bias)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dread, dflat, dbias = linear_backward(dy)
        dwindows = xp.zeros(shape, dread.dtype)
        dwindows[..., at, :] = dread
        dx = _collected(dwindows, kernel, 1, before)
        dweight = dflat.reshape(weight.shape)
        return dx, dweight, dbias

    return y, backward
