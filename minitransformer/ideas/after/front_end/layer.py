"""The layers of a convolutional front end: a convolution with a stride, and what Whisper reads sound with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng
from ....core.arrays.declared import declared
from ....core.layers import Cost, Module, Parameter
from ....core.layers.module import generator
from .op import strided_convolution


class StridedConvolution(Module):
    """y_t is a linear map of the inputs around stride·t. x: (..., T, d_in); y: (..., ⌈T / stride⌉, d_out).

    weight: (kernel, d_in, d_out), drawn from U(-a, a) with a = √(6 / (kernel·d_in + d_out)); the bias starts at zero.
    """

    @declared("d_in, d_out, kernel, stride > 0")
    def __init__(self, d_in: int, d_out: int, kernel: int = 3, stride: int = 1, rng: Rng | None = None) -> None:
        limit = math.sqrt(6.0 / (kernel * d_in + d_out))
        drawn = generator(rng).uniform(-limit, limit, (kernel, d_in, d_out))
        self.weight = Parameter(drawn.astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(d_out, np.float32))
        self.stride = stride

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        self.takes_sequences(self.weight.value.shape[1], "d_in", x=x)
        self.takes(x, self.weight.value, self.weight.value.shape[1], "d_in")
        y, convolution_backward = strided_convolution(x, self.weight.value, self.bias.value, self.stride)

        def backward(dy: Array) -> Array:
            dx, dweight, dbias = convolution_backward(dy)
            self.weight.grad += dweight
            self.bias.grad += dbias
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """For length outputs: one product of the windows that are read. They are kept; of several sequences twice:
        NumPy picks them in another order than the product takes them.
        """
        kernel, d_in, _ = self.weight.value.shape
        rows = batch * length
        return Cost(flops=2 * rows * self.weight.value.size, kept=rows * kernel * d_in * min(batch, 2))


class FrontEnd(Module):
    """y = dropout(gelu(conv₂(gelu(conv₁(x)))) + positions). Radford et al. 2022, section 2.2.

    features: (..., d_in, T), of T frames with d_in numbers each; y: (..., ⌈T / 2⌉, d_model). Both convolutions have
    three inputs to a window; the second has stride 2. positions: as those of an InputEmbedding. most: of frames.
    """

    @declared("d_in, d_model, most > 0; 0 <= dropout < 1")
    def __init__(
        self, d_in: int, d_model: int, most: int, positions: Any, dropout: float = 0.0, rng: Rng | None = None
    ) -> None:
        rng = generator(rng)
        self.first = StridedConvolution(d_in, d_model, rng=rng)
        self.second = StridedConvolution(d_model, d_model, stride=2, rng=rng)
        self.positions, self.dropout, self.most = positions, dropout, most

    def __call__(self, features: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dfeatures."""
        if features.ndim < 2 or features.shape[-1] > self.most:
            wanted = f"(..., {self.first.weight.value.shape[1]}, T) with at most T = {self.most} frames"
            raise ValueError(f"FrontEnd: features must be {wanted}, got shape {features.shape}")
        frames = features.swapaxes(-1, -2)
        near, first_backward = self.first(frames)
        active, gelu_backward = self.ops.gelu(near)
        fewer, second_backward = self.second(active)
        again, gelu_again_backward = self.ops.gelu(fewer)
        placed, positions_backward = self.positions(again)
        y, dropout_backward = self.ops.dropout(placed, self.dropout, rng)

        def backward(dy: Array) -> Array:
            dplaced = dropout_backward(dy)
            dagain = positions_backward(dplaced)
            dfewer = gelu_again_backward(dagain)
            dactive = second_backward(dfewer)
            dnear = gelu_backward(dactive)
            dframes = first_backward(dnear)
            dfeatures = dframes.swapaxes(-1, -2)
            return dfeatures

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """For length outputs: both convolutions, what GELU keeps twice (three numbers each), the dropout's factor."""
        d_model = self.second.weight.value.shape[-1]
        kept = batch * length * d_model * (3 * 2 + 3 + (1 if self.dropout else 0))
        return self.first.cost(batch, 2 * length) + self.second.cost(batch, length) + Cost(kept=kept)
