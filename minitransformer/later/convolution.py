"""Convolution over the sequence, as a layer: the W and b of ops/convolution.py."""

from __future__ import annotations

import math

import numpy as np

from ..arrays.backend import Array, Pullback, array_module
from ..arrays.boundary import check_floats, check_last, check_mask, check_sizes
from ..layers.cache import StateCache, no_backward
from ..layers.cost import Cost
from ..layers.module import Module, Parameter, generator


class Convolution(Module):
    """y_t is a linear map of the inputs around t, or behind it. x: (..., T, d_in); y: (..., T, d_out).

    kernel: how many positions a window has; dilation: how far apart they lie. weight: (kernel, d_in, d_out), drawn from
    U(-a, a) with a = √(6 / (kernel·d_in + d_out)); the bias starts at zero. It can take the place of the
    self-attention in a layer, so a call has the same options.
    """

    def __init__(
        self, d_in: int, d_out: int, kernel: int = 3, dilation: int = 1, rng: np.random.Generator | None = None
    ) -> None:
        check_sizes("Convolution", d_in=d_in, d_out=d_out, kernel=kernel, dilation=dilation)
        limit = math.sqrt(6.0 / (kernel * d_in + d_out))
        drawn = generator(rng).uniform(-limit, limit, (kernel, d_in, d_out))
        self.weight = Parameter(drawn.astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(d_out, np.float32))
        self.dilation = dilation

    def new_cache(self) -> StateCache:
        """An empty cache for this layer."""
        return StateCache()

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        causal: bool = False,
        cache: StateCache | None = None,
        rng: np.random.Generator | None = None,
        positions: Array | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx.

        mask: boolean, broadcasts to (..., 1, T), True where a token is real; padding counts as 0. causal: a window ends
        at its own position; else it is centred. With a cache, which needs causal, x holds only the new tokens, and
        there is no backward. rng and positions change nothing.
        """
        kernel, d_in, _ = self.weight.value.shape
        check_floats("Convolution", weight=self.weight.value, x=x)
        check_last("Convolution", "x", x, d_in, "d_in")
        if x.ndim < 2:
            raise ValueError(f"Convolution: x must be (..., T, {d_in}), got shape {x.shape}")
        if cache is not None:
            return self._cached(x, causal, cache, (kernel - 1) * self.dilation), no_backward
        xp = array_module(x)
        everywhere = xp.ones((*x.shape[:-2], 1, x.shape[-2]), dtype=bool)
        if mask is not None:
            check_mask("Convolution", mask, everywhere.shape, like=x)
        real = everywhere if mask is None else everywhere & mask
        kept = xp.where(real.swapaxes(-1, -2), x, 0.0)
        y, convolution_backward = self.ops.convolution(kept, self.weight.value, self.bias.value, self.dilation, causal)

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
        """The cache keeps the last inputs, as many as a window reaches back."""
        if not causal:
            raise ValueError("Convolution: a cache is for a layer that looks back only; call with causal=True")
        xp = array_module(x)
        behind = xp.zeros((*x.shape[:-2], reach, x.shape[-1]), x.dtype) if cache.state is None else cache.state
        seen = xp.concatenate([behind, x], axis=-2)
        cache.keep(seen[..., x.shape[-2] :, :], x.shape[-2])
        y = self.ops.convolution(seen, self.weight.value, self.bias.value, self.dilation, True)[0]
        return y[..., reach:, :]
