"""Pictures and texts in one space. Radford et al. 2021, "Learning Transferable Visual Models From Natural ...".

    x_i:  (norm(encoder(embed(picture_i))_0)) W_image           from the class token
    z_j:  (norm(encoder(embed(text_j)))_end) W_text             from the token that ends the text; causal attention
    logits_ij = e^log_scale · cosine(x_i, z_j)

Which text fits a picture is the largest logit of its row. ideas/after/contrastive has the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import layers
from ...core.arrays.backend import Array, Pullback, Rng, array_module, to_device, to_numpy
from ...core.layers.module import generator
from ...core.layers.part_cost import Costs
from ...core.models.checks import check_batch, check_config, padding_keys
from ..after.contrastive import contrastive_loss, scaled_cosines
from ..after.patches import PatchEmbedding
from ..after.quick_gelu import quick_gelu
from .pre_norm import pre_norm

_OPS: dict[str, Any] = {"quick_gelu": quick_gelu}  # by their names in a config; the others are the core's


@dataclass(frozen=True)
class ImageTextConfig:
    """Sizes of a CLIP. The defaults are those of CLIP-ViT-B/32. Sizes without "image" are those of the text's side."""

    vocabulary: int
    max_length: int = 77
    end: int | None = None  # the token that ends a text; None: that with the largest id in it
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    n_layers: int = 12
    activation: str = "quick_gelu"
    norm_eps: float = 1e-5
    attention_dropout: float = 0.0
    image_size: int = 224
    patch_size: int = 32
    channels: int = 3
    image_d_model: int = 768
    image_n_heads: int = 12
    image_d_ff: int = 3072
    n_image_layers: int = 12
    image_activation: str = "quick_gelu"
    image_norm_eps: float = 1e-5
    image_attention_dropout: float = 0.0
    d_shared: int = 512  # of the space in which pictures and texts meet
    log_scale: float = math.log(1 / 0.07)  # at the start

    def build(self, rng: Rng | None = None) -> ImageTextModel:
        """The model of these sizes, untrained."""
        return ImageTextModel(self, rng)


class _TextSide(layers.Module):
    """ids: (B, T) to vectors (B, d_shared)."""

    def __init__(self, c: ImageTextConfig, rng: Rng) -> None:
        activation = _OPS.get(c.activation, c.activation)
        sizes = (c.d_model, c.n_heads, c.d_ff, activation, c.norm_eps)
        layer = pre_norm(layers.EncoderLayer, *sizes, attention_dropout=c.attention_dropout, rng=rng)
        tokens = layers.Embedding(c.vocabulary, c.d_model, std=0.02, rng=rng)
        self.embed = layers.InputEmbedding(tokens, layers.LearnedPositions(c.max_length, c.d_model, rng=rng))
        self.encoder = layers.Encoder.of([layer() for _ in range(c.n_layers)], layers.LayerNorm(c.d_model, c.norm_eps))
        self.projection = layers.Linear(c.d_model, c.d_shared, False, rng)
        self.end = c.end

    def __call__(self, ids: Array, mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (vectors, backward); backward(dvectors) returns None."""
        check_batch("ImageTextModel", "ids", ids)
        visible = padding_keys("ImageTextModel", "mask", mask, ids.shape)
        places = self.places(ids)
        embedded, embed_backward = self.embed(ids)
        hidden, encoder_backward = self.encoder(embedded, mask=visible, causal=True, rng=rng)
        rows = array_module(ids).arange(len(ids))
        shape, last = hidden.shape, hidden[rows, places]
        vectors, projection_backward = self.projection(last)

        def backward(dvectors: Array) -> None:
            dlast = projection_backward(dvectors)
            dhidden = array_module(dlast).zeros(shape, dlast.dtype)
            dhidden[rows, places] = dlast
            dembedded = encoder_backward(dhidden)
            embed_backward(dembedded)

        return vectors, backward

    def places(self, ids: Array) -> Array:
        """Where each text ends, (B,)."""
        if self.end is None:
            return ids.argmax(axis=-1)
        ends = ids == self.end
        if not to_numpy(ends.any(axis=-1)).all():
            raise ValueError(f"ImageTextModel: every text must end with the token {self.end}; add it to the ids")
        return ends.argmax(axis=-1)  # the first of them


class _ImageSide(layers.Module):
    """pixels: (B, C, H, W) to vectors (B, d_shared)."""

    def __init__(self, c: ImageTextConfig, rng: Rng) -> None:
        activation, d = _OPS.get(c.image_activation, c.image_activation), c.image_d_model
        sizes = (d, c.image_n_heads, c.image_d_ff, activation, c.image_norm_eps)
        layer = pre_norm(layers.EncoderLayer, *sizes, attention_dropout=c.image_attention_dropout, rng=rng)
        image, patch, norm = (c.image_size,) * 2, (c.patch_size,) * 2, layers.LayerNorm(d, c.image_norm_eps)
        self.embed = PatchEmbedding(image, patch, c.channels, d, bias=False, norm=norm, rng=rng)
        self.encoder = layers.Encoder.of([layer() for _ in range(c.n_image_layers)])
        self.norm = layers.LayerNorm(d, c.image_norm_eps)
        self.projection = layers.Linear(d, c.d_shared, False, rng)

    def __call__(self, pixels: Array, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (vectors, backward); backward(dvectors) returns dpixels."""
        embedded, embed_backward = self.embed(pixels, rng)
        hidden, encoder_backward = self.encoder(embedded, rng=rng)
        shape, first = hidden.shape, hidden[:, 0]
        normalized, norm_backward = self.norm(first)
        vectors, projection_backward = self.projection(normalized)

        def backward(dvectors: Array) -> Array:
            dnormalized = projection_backward(dvectors)
            dfirst = norm_backward(dnormalized)
            dhidden = array_module(dfirst).zeros(shape, dfirst.dtype)
            dhidden[:, 0] = dfirst
            dembedded = encoder_backward(dhidden)
            dpixels = embed_backward(dembedded)
            return dpixels

        return vectors, backward


class ImageTextModel(layers.Module):
    """Which text fits which picture. pixels: (B, C, H, W); ids: (N, T); logits: (B, N).

    mask: boolean (N, T), True where a token is real. `images(pixels)` and `texts(ids, mask)` make the vectors alone.
    """

    config: Any
    does = "compares pictures with texts"
    reads = "pictures and texts"

    def __init__(self, config: ImageTextConfig, rng: Rng | None = None) -> None:
        check_config("ImageTextModel", config, ImageTextConfig)
        rng = generator(rng)
        self.config = config
        self.images, self.texts = _ImageSide(config, rng), _TextSide(config, rng)
        self.log_scale = layers.Parameter(np.array(config.log_scale, np.float32))

    def __call__(
        self, pixels: Array, ids: Array, mask: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dpixels."""
        return self._compared(scaled_cosines, pixels, ids, mask, rng)

    def loss(
        self, pixels: Array, ids: Array, mask: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """The contrastive loss of pairs: text i belongs to picture i. backward(dloss=1.0) returns dpixels."""
        return self._compared(contrastive_loss, pixels, ids, mask, rng)

    def _compared(
        self, how: Any, pixels: Array, ids: Array, mask: Array | None, rng: Rng | None
    ) -> tuple[Array, Pullback]:
        x, images_backward = self.images(pixels, rng)
        z, texts_backward = self.texts(ids, mask, rng)
        y, how_backward = how(x, z, self.log_scale.value)

        def backward(dy: Array | float = 1.0) -> Array:
            dx, dz, dlog_scale = how_backward(dy)
            self.log_scale.grad += dlog_scale
            texts_backward(dz)
            dpixels = images_backward(dx)
            return dpixels

        return y, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training on batch pairs, with texts of length tokens."""
        d, image, n = self.config.d_shared, self.images, 1 + self.images.embed.n_patches
        wide, narrow = self.config.image_d_model, self.config.d_model
        yield "images.embed", (batch, n, wide), image.embed.cost(batch, n)
        yield from image.encoder.costs("images.encoder", batch, n)
        yield "images.norm", (batch, wide), image.norm.cost(batch, 1)
        yield "images.projection", (batch, d), image.projection.cost(batch, 1) + layers.Cost(kept=batch * wide)
        yield "texts.embed", (batch, length, narrow), self.texts.embed.cost(batch, length)
        yield from self.texts.encoder.costs("texts.encoder", batch, length)
        yield "texts.projection", (batch, d), self.texts.projection.cost(batch, 1) + layers.Cost(kept=batch * narrow)
        products = layers.Cost(flops=2 * batch * batch * d, kept=2 * batch * d + 2 * batch + 4 * batch * batch)
        yield "log_scale", (), products

    def drawn(self, rng: Rng) -> Callable[[], tuple[Array, Pullback]]:
        """A function that computes the loss of two random pairs, in float64."""
        c = self.config
        pixels = to_device(rng.normal(size=(2, c.channels, c.image_size, c.image_size)), self.device)
        ids = rng.integers(0, c.vocabulary, (2, min(4, c.max_length)))
        ids[:, -1] = c.vocabulary - 1 if c.end is None else c.end
        texts = to_device(ids, self.device)
        return lambda: self.loss(pixels, texts)
