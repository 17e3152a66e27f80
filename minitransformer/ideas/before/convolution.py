"""Convolution over the sequence. Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.2.

Each output is a linear map of k inputs that lie `dilation` positions apart:

    y_t = b + sum_j x_{t + j·dilation - before} W_j      j from 0 to k - 1

where an x outside the sequence is 0. In a centred window, before = (k - 1)/2 · dilation: as many inputs to the left as
to the right. In a causal one, before = (k - 1) · dilation: the last input is x_t itself, and none lies ahead.

This is the map of linear.py on windows. A window puts k inputs side by side, w_t = (x_{t - before},
x_{t - before + dilation}, ...) of width k·D_in, and the W_j are stacked into one matrix W of k·D_in rows:

    y = w W + b

Backward: dw = dy Wᵀ, dW = wᵀ dy and db as in linear.py. Each x_s lies in up to k windows, at a different place in each,
so its gradient is a sum over them:

    dx_s = sum_j dw_{s + before - j·dilation, j}        dw_tj: the part of dw_t at place j

One layer sees k positions; n layers of kernel k with dilations 1, k, k², ... see kⁿ (van den Oord et al. 2016,
"WaveNet", section 2.1), so log_k(T) layers connect any two of T positions.
"""

from __future__ import annotations

import math

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.arrays.boundary import check_mask
from ...core.arrays.declared import declared, op
from ...core.arrays.float16 import in_float32_on_host
from ...core.layers.cache import no_backward
from ...core.layers.module import Module, Parameter, generator
from ...core.layers.part_cost import Cost
from ...core.ops.linear import linear
from .state_cache import StateCache


@op("x: (..., T, D_in); weight: (k, D_in, D_out); bias: (D_out,); y: (..., T, D_out); dilation > 0")
@in_float32_on_host
def convolution(
    x: Array, weight: Array, bias: Array, dilation: int = 1, causal: bool = False
) -> tuple[Array, Pullback]:
    """A linear map of the k inputs around each position, or up to it.

    dilation: the distance between the positions of a window. causal: a window ends at its own position; otherwise it is
    centred, and k must be odd. backward(dy) returns (dx, dweight, dbias).
    """
    kernel, d_in, d_out = weight.shape
    if not causal and kernel % 2 == 0:
        raise ValueError(f"convolution: a centred window needs an odd kernel, got {kernel}; or set causal=True")
    reach = (kernel - 1) * dilation
    before = reach if causal else reach // 2

    windows = _windows(x, kernel, dilation, before)
    y, linear_backward = linear(windows, weight.reshape(kernel * d_in, d_out), bias)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dwindows, dflat, dbias = linear_backward(dy)
        dx = _collected(dwindows, kernel, dilation, before)
        dweight = dflat.reshape(weight.shape)
        return dx, dweight, dbias

    return y, backward


def _windows(x: Array, kernel: int, dilation: int, before: int) -> Array:
    """The k inputs of each position side by side: (..., T, D) to (..., T, k·D). Outside the sequence they are 0."""
    *leading, t, d = x.shape
    xp = array_module(x)
    padded = xp.zeros((*leading, t + (kernel - 1) * dilation, d), x.dtype)
    padded[..., before : before + t, :] = x
    places = xp.zeros((*leading, t, kernel, d), x.dtype)
    for j in range(kernel):
        places[..., j, :] = padded[..., j * dilation : j * dilation + t, :]
    return places.reshape(*leading, t, kernel * d)


def _collected(dwindows: Array, kernel: int, dilation: int, before: int) -> Array:
    """The adjoint of _windows: each position adds up the gradients of its places in the windows."""
    *leading, t, width = dwindows.shape
    of_places = dwindows.reshape(*leading, t, kernel, width // kernel)
    total = array_module(dwindows).zeros((*leading, t + (kernel - 1) * dilation, width // kernel), dwindows.dtype)
    for j in range(kernel):
        total[..., j * dilation : j * dilation + t, :] += of_places[..., j, :]
    return total[..., before : before + t, :]


class Convolution(Module):
    """y_t is a linear map of the inputs around t, or up to t. x: (..., T, d_in); y: (..., T, d_out).

    kernel: how many positions a window has; dilation: how far apart they lie. weight: (kernel, d_in, d_out), drawn from
    U(-a, a) with a = √(6 / (kernel·d_in + d_out)); the bias starts at zero. It can replace the
    self-attention in a layer, so a call has the same options.
    """

    @declared("d_in, d_out, kernel, dilation > 0")
    def __init__(self, d_in: int, d_out: int, kernel: int = 3, dilation: int = 1, rng: Rng | None = None) -> None:
        limit = math.sqrt(6.0 / (kernel * d_in + d_out))
        drawn = generator(rng).uniform(-limit, limit, (kernel, d_in, d_out))
        self.weight = Parameter(drawn.astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(d_out, np.float32))
        self.dilation = dilation

    new_cache = StateCache

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = False,
        cache: StateCache | None = None,
        rng: Rng | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx.

        mask: boolean, broadcasts to (..., 1, T), True where a token is real; padding counts as 0. causal: a window ends
        at its own position; otherwise it is centred. With a cache, which needs causal, x holds only the new tokens, and
        there is no backward. rng and positions have no effect.
        """
        kernel, d_in, _ = self.weight.value.shape
        self.takes_sequences(d_in, "d_in", x=x)
        if cache is not None:
            return self._cached(x, causal, cache, (kernel - 1) * self.dilation), no_backward
        xp = array_module(x)
        shape = (*x.shape[:-2], 1, x.shape[-2])
        if mask is not None:
            check_mask("Convolution", mask, shape, like=x)
        real = xp.broadcast_to(xp.array(True) if mask is None else mask, shape)
        kept = xp.where(real.swapaxes(-1, -2), x, 0.0)
        y, convolution_backward = convolution(kept, self.weight.value, self.bias.value, self.dilation, causal)

        def backward(dy: Array) -> Array:
            dkept, dweight, dbias = convolution_backward(dy)
            self.weight.grad += dweight
            self.bias.grad += dbias
            dx = xp.where(real.swapaxes(-1, -2), dkept, 0.0)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """One product of windows, which are kept."""
        kernel, d_in, _ = self.weight.value.shape
        rows = batch * length
        return Cost(flops=2 * rows * self.weight.value.size, kept=rows * kernel * d_in)

    def _cached(self, x: Array, causal: bool, cache: StateCache, reach: int) -> Array:
        """The cache keeps as many of the last inputs as a window reaches back."""
        if not causal:
            raise ValueError("Convolution: only a causal layer can use a cache; call with causal=True")
        xp = array_module(x)
        behind = xp.zeros((*x.shape[:-2], reach, x.shape[-1]), x.dtype) if cache.state is None else cache.state
        seen = xp.concatenate([behind, x], axis=-2)
        cache.keep(seen[..., x.shape[-2] :, :], x.shape[-2])
        y = convolution(seen, self.weight.value, self.bias.value, self.dilation, True)[0]
        return y[..., reach:, :]
