"""A translator of convolutions, after Gehring et al. 2017, "Convolutional Sequence to Sequence Learning".

For comparison it is the Transformer with a convolution in place of each self-attention. Cross-attention stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.models.transformer import TransformerConfig, TransformerParts
from .convolution import Convolution


@dataclass(frozen=True)
class ConvolutionalConfig(TransformerConfig):
    """Sizes of a Transformer, and the kernel of its convolutions."""

    kernel: int = 5

    def parts(self, rng: Rng) -> TransformerParts:
        """The recipe: the paper's parts, with convolutions that mix the positions."""
        parts = super().parts(rng)
        for layer in (*parts.encoder.plain_layers, *parts.decoder.plain_layers):
            layer.self_attention.sublayer = Convolution(self.d_model, self.d_model, self.kernel, rng=rng)
        return parts
