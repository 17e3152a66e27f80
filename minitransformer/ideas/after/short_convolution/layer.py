"""The short convolution as a layer: it owns its filters, and its cache keeps the last vectors."""

from __future__ import annotations

import functools

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.declared import declared
from ....core.layers import Cost, Module, Parameter
from ....core.layers.cache import no_backward
from ....core.layers.feed_forward import ACTIVATIONS, kept_by
from ....core.layers.module import generator
from ...before.state_cache import StateCache
from .op import short_convolution


class ShortConvolution(Module):
    """f(short_convolution(x)). x, y: (..., T, width).

    activation: f, by its name in ACTIVATIONS of core/layers/feed_forward.py; None for none. weight: (kernel, width),
    drawn from U(-a, a) with a = 1/√kernel; the bias starts at zero.
    """

    @declared("width, kernel > 0")
    def __init__(
        self, width: int, kernel: int = 4, bias: bool = True, activation: str | None = None, rng: Rng | None = None
    ) -> None:
        if activation is not None and activation not in ACTIVATIONS:
            raise ValueError(f"ShortConvolution: activation must be None or one of {', '.join(ACTIVATIONS)}")
        drawn = generator(rng).uniform(-(kernel**-0.5), kernel**-0.5, (kernel, width))
        self.weight = Parameter(drawn.astype(np.float32))
        self.bias = Parameter(np.zeros(width, np.float32)) if bias else None
        self.activation = activation

    new_cache = StateCache

    def __call__(self, x: Array, cache: StateCache | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx.

        With a cache, x holds only the new tokens, and there is no backward.
        """
        weight = self.filters()
        kernel, width = weight.shape
        self.takes_sequences(width, "width", x=x)
        self.takes(x, weight, width, "its width")
        bias = None if self.bias is None else self.bias.value
        if cache is not None:
            front = cache.state
            if front is None:
                front = array_module(x).zeros((*x.shape[:-2], kernel - 1, width), x.dtype)
            seen = array_module(x).concatenate([front, x], axis=-2)
            cache.keep(seen[..., x.shape[-2] :, :], x.shape[-2])
            mixed = short_convolution(seen, weight, bias)[0][..., kernel - 1 :, :]
            return self._activated(mixed)[0], no_backward
        mixed, mix_backward = short_convolution(x, weight, bias)
        y, activation_backward = self._activated(mixed)

        def backward(dy: Array) -> Array:
            dmixed = activation_backward(dy)
            dx, dweight, *dbias = mix_backward(dmixed)
            self.learn(dweight)
            if self.bias is not None:
                self.bias.grad += dbias[0]
            return dx

        return y, backward

    def filters(self) -> Array:
        """The weight, (kernel, width)."""
        return self.weight.value

    def learn(self, dweight: Array) -> None:
        """Add to the gradient of the weight."""
        self.weight.grad += dweight

    def cost(self, batch: int, length: int) -> Cost:
        """No matrix product. Kept: the input in windows, and what f needs."""
        kernel, width = self.filters().shape
        for_f = 0 if self.activation is None else kept_by(self.activation)
        return Cost(kept=batch * length * width * (kernel + for_f))

    def _activated(self, mixed: Array) -> tuple[Array, Pullback]:
        if self.activation is None:
            return mixed, lambda dmixed: dmixed
        name, options, _ = ACTIVATIONS[self.activation]
        return functools.partial(getattr(self.ops, name), **options)(mixed)
