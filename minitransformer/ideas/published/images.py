"""Encoders of images: they read a picture as a sequence of patches. Dosovitskiy et al. 2020, "An Image is Worth ...".

    hidden: encoder(embed(pixels))               a vector for the class token, then one for each patch
    pooled = tanh(hidden_0 W + b)                 a vector for the picture
    classifier:  logits = hidden_0 V + d

It is the encoder of a text with another embedding: ideas/after/patches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, Pullback, Rng, array_module, to_device
from ...core.layers import Cost, Encoder, EncoderLayer, LayerNorm, Linear, Module
from ...core.layers.module import generator
from ...core.layers.part_cost import Costs
from ...core.models.checks import check_config
from ..after.patches import PatchEmbedding
from .pre_norm import pre_norm
from .text_encoder import FirstToken


@dataclass(frozen=True)
class ImageEncoderConfig:
    """Sizes of an encoder of images. The defaults are those of ViT-Base with patches of 16 × 16 pixels."""

    image_height: int = 224  # in pixels
    image_width: int = 224
    patch_height: int = 16
    patch_width: int = 16
    channels: int = 3
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: str = "gelu"
    norm_eps: float = 1e-12
    bias: bool = True  # of the maps to queries, keys and values
    pooled: bool = True  # there is a pooled vector
    n_classes: int | None = None  # of a classifier

    def build(self, rng: Rng | None = None) -> ImageEncoder | ImageClassifier:
        """The model of these sizes, untrained."""
        return ImageEncoder(self, rng) if self.n_classes is None else ImageClassifier(self, rng)


class ImageEncoder(Module):
    """From pixels to a vector for the class token and each patch.

    pixels: (B, C, H, W); hidden: (B, 1 + N, D).
    """

    config: Any
    does = "describes pictures"
    reads = "pictures"

    def __init__(self, config: ImageEncoderConfig, rng: Rng | None = None) -> None:
        check_config(type(self).__name__, config, ImageEncoderConfig)
        rng, d, biases = generator(rng), config.d_model, (config.bias,) * 3
        sizes = (d, config.n_heads, config.d_ff, config.activation, config.norm_eps)
        rates = (config.dropout, config.attention_dropout)
        layer = pre_norm(EncoderLayer, *sizes, *rates, biases, rng)
        image, patch = (config.image_height, config.image_width), (config.patch_height, config.patch_width)
        self.config = config
        self.embed = PatchEmbedding(image, patch, config.channels, d, dropout=config.dropout, rng=rng)
        self.encoder = Encoder.of([layer() for _ in range(config.n_layers)], LayerNorm(d, config.norm_eps))
        self.pool = FirstToken(d, rng=rng) if config.pooled and config.n_classes is None else None

    @property
    def length(self) -> int:
        """How many vectors a picture becomes."""
        return 1 + self.embed.n_patches

    def hidden(self, pixels: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (hidden, backward); backward(dhidden) returns dpixels."""
        embedded, embed_backward = self.embed(pixels, rng)
        hidden, encoder_backward = self.encoder(embedded, rng=rng)

        def backward(dhidden: Array) -> Array:
            dembedded = encoder_backward(dhidden)
            dpixels = embed_backward(dembedded)
            return dpixels

        return hidden, backward

    __call__ = hidden

    def with_pooled(self, pixels: Array) -> tuple[Array, Pullback]:
        """Return (rows, backward): the vector for the picture, then those of `hidden`, (B, 2 + N, D)."""
        hidden, hidden_backward = self.hidden(pixels)
        if self.pool is None:
            raise ValueError("this model has no pooled vector; its first vector is hidden[:, 0]")
        pooled, pool_backward = self.pool(hidden)
        rows = array_module(hidden).concatenate([pooled[:, None], hidden], axis=1)

        def backward(drows: Array) -> Array:
            dpooled = drows[:, 0]
            dhidden = drows[:, 1:] + pool_backward(dpooled)
            dpixels = hidden_backward(dhidden)
            return dpixels

        return rows, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`. length: `self.length`, or an error of yours."""
        d = self.config.d_model
        yield "embed", (batch, length, d), self.embed.cost(batch, length)
        yield from self.encoder.costs("encoder", batch, length)
        if self.pool is not None:
            yield "pool", (batch, d), self.pool.cost(batch, length) + Cost(kept=batch * d)  # the output of tanh

    def drawn(self, rng: Rng) -> Callable[[], tuple[Array, Pullback]]:
        """A function that reads two random pictures, in float64."""
        pixels = self._pictures(rng)
        return lambda: self(pixels) if self.pool is None else self.with_pooled(pixels)

    def _pictures(self, rng: Rng) -> Array:
        return to_device(rng.normal(size=(2, self.config.channels, *self.embed.image)), self.device)


class ImageClassifier(ImageEncoder):
    """From pixels to logits, (B, n_classes), by the vector of the class token."""

    does = "names what a picture shows"

    def __init__(self, config: ImageEncoderConfig, rng: Rng | None = None) -> None:
        rng = generator(rng)
        super().__init__(config, rng)
        self.head = Linear(config.d_model, config.n_classes or 0, rng=rng)

    def __call__(self, pixels: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dpixels."""
        hidden, hidden_backward = self.hidden(pixels, rng)
        shape, first = hidden.shape, hidden[:, 0]
        logits, head_backward = self.head(first)

        def backward(dlogits: Array) -> Array:
            dfirst = head_backward(dlogits)
            dhidden = array_module(dfirst).zeros(shape, dfirst.dtype)
            dhidden[:, 0] = dfirst
            dpixels = hidden_backward(dhidden)
            return dpixels

        return logits, backward

    def loss(self, pixels: Array, labels: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Cross-entropy of the classes. labels: (B,) integers. backward(dloss=1.0) returns dpixels."""
        logits, model_backward = self(pixels, rng)
        loss, loss_backward = self.ops.cross_entropy(logits, labels)

        def backward(dloss: Array | float = 1.0) -> Array:
            dlogits = loss_backward(dloss)
            dpixels = model_backward(dlogits)
            return dpixels

        return loss, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training. The head keeps all vectors: those of the class token are a view of them."""
        d, classes = self.head.weight.value.shape
        yield from super().costs(batch, length)
        yield "head", (batch, classes), self.head.cost(batch, 1) + Cost(kept=batch * length * d)
        yield "loss", (), Cost(kept=2 * batch * classes)

    def drawn(self, rng: Rng) -> Callable[[], tuple[Array, Pullback]]:
        """A function that computes the loss of two random pictures, in float64."""
        pixels, labels = self._pictures(rng), to_device(np.array([0, self.config.n_classes - 1]), self.device)
        return lambda: self.loss(pixels, labels)


def pair(fields: Any, name: str, default: int) -> tuple[int, int]:
    """A field that is one size, or two: (height, width)."""
    value = fields.get(name)
    both = [default if value is None else value] * 2 if not isinstance(value, list) else value
    if len(both) != 2 or any(type(size) is not int or not 1 <= size <= 1 << 16 for size in both):
        raise ValueError(f"{name} must be a size in pixels, or two of them, got {str(value)[:60]}")
    return both[0], both[1]
