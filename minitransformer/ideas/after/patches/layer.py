"""The embedding of an image: a vector for each patch, a class token before them, learned positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, Pullback, Rng, array_module
from ....core.arrays.boundary import check_array
from ....core.arrays.declared import declared
from ....core.arrays.float16 import sum_over
from ....core.layers import Cost, LearnedPositions, Module, Parameter
from ....core.layers.module import generator
from .op import patches


class PatchEmbedding(Module):
    """y = dropout(norm((class_token, patches(pixels) E + b) + positions)). Dosovitskiy et al. 2020, equation 1.

    pixels: (..., C, H, W), of the size (H, W) = image; y: (..., 1 + N, d_model). weight: (q, p, C, d_model), the matrix
    E with its first axis in three; it starts as that of Linear. class_token: (d_model,), a learned vector in front,
    from which the answer is read. norm: none, or a norm as CLIP has it (Radford et al. 2021).
    """

    @declared("channels, d_model > 0; 0 <= dropout < 1")
    def __init__(
        self,
        image: tuple[int, int],
        patch: tuple[int, int],
        channels: int,
        d_model: int,
        bias: bool = True,
        dropout: float = 0.0,
        norm: Any = None,
        rng: Rng | None = None,
    ) -> None:
        rng = generator(rng)
        (p, q), self.image, self.dropout = patch, tuple(image), dropout
        self.n_patches = (image[0] // p) * (image[1] // q)
        if not self.n_patches:
            raise ValueError(f"PatchEmbedding: a patch of {p} × {q} must fit into an image of {image[0]} × {image[1]}")
        limit = math.sqrt(6.0 / (q * p * channels + d_model))
        drawn = rng.uniform(-limit, limit, (q, p, channels, d_model))
        self.weight = Parameter(drawn.astype(np.float32, copy=False))
        self.bias = Parameter(np.zeros(d_model, np.float32)) if bias else None
        self.class_token = Parameter(rng.normal(0.0, 0.02, (d_model,)).astype(np.float32, copy=False))
        self.positions = LearnedPositions(1 + self.n_patches, d_model, rng=rng)
        self.norm = norm

    def __call__(self, pixels: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dpixels."""
        q, p, channels, d_model = shape = self.weight.value.shape
        check_array("PatchEmbedding", "pixels", pixels)
        if pixels.shape[-3:] != (channels, *self.image):
            raise ValueError(f"PatchEmbedding: pixels must be (..., {channels}, {self.image[0]}, {self.image[1]}), "
                             f"got shape {pixels.shape}")  # fmt: skip
        cut, patches_backward = patches(pixels, p, q)
        matrix = self.weight.value.reshape(-1, d_model)
        self.takes(cut, matrix, len(matrix), "the numbers of a patch")
        vectors, linear_backward = self.ops.linear(cut, matrix, None if self.bias is None else self.bias.value)
        xp = array_module(vectors)
        first = xp.broadcast_to(self.class_token.value, (*vectors.shape[:-2], 1, d_model))
        sequence = xp.concatenate([first, vectors], axis=-2)
        placed, positions_backward = self.positions(sequence)
        normalized, norm_backward = (placed, None) if self.norm is None else self.norm(placed)
        y, dropout_backward = self.ops.dropout(normalized, self.dropout, rng)

        def backward(dy: Array) -> Array:
            dnormalized = dropout_backward(dy)
            dplaced = dnormalized if norm_backward is None else norm_backward(dnormalized)
            dsequence = positions_backward(dplaced)
            dfirst = dsequence[..., :1, :]
            self.class_token.grad += sum_over(dfirst, axis=tuple(range(dfirst.ndim - 1)))  # every image has the same
            dvectors = dsequence[..., 1:, :]
            dcut, dmatrix, *dbias = linear_backward(dvectors)
            self.weight.grad += dmatrix.reshape(shape)
            if self.bias is not None:
                self.bias.grad += dbias[0]
            dpixels = patches_backward(dcut)
            return dpixels

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Its product, of whose input the patches are kept; the factor of the dropout; the norm."""
        numbers = self.weight.value.size // self.weight.value.shape[-1]
        dropped = batch * length * self.weight.value.shape[-1] if self.dropout else 0
        product = Cost(flops=2 * batch * self.n_patches * self.weight.value.size, kept=batch * self.n_patches * numbers)
        return product + super().cost(batch, length) + Cost(kept=dropped)
