"""A training step of the encoder-decoder on pairs of sentences: post-norm, ReLU, one table for source, target and
output, label smoothing, padding, AdamW.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitransformer.models import Transformer, TransformerConfig

from .. import ours
from .counting import causal_pairs, layer_products, zipf

LEARNING_RATE = 1e-3
LABEL_SMOOTHING = 0.1
PADDING, START = 0, 1


@dataclass(frozen=True)
class Sizes:
    n_layers: int  # layers of the encoder; the decoder has as many
    n_heads: int
    width: int
    d_ff: int
    length: int
    batch: int
    vocabulary: int
    dropout: float = 0.0


def batches(sizes: Sizes) -> list[dict[str, np.ndarray]]:
    """Sentences with at least a third of the length, padded. A target is at most one token longer or shorter.

    Targets need no mask: their padding comes last, where the causal mask hides it, and does not count in the loss.
    """
    rng = np.random.default_rng(0)
    made = []
    for _ in range(10):
        lengths = rng.integers(sizes.length // 3, sizes.length + 1, sizes.batch)
        lengths[0] = sizes.length
        off = np.clip(lengths + rng.integers(-1, 2, sizes.batch), 1, sizes.length)
        mask = np.arange(sizes.length) < lengths[:, None]
        source = zipf(rng, sizes.vocabulary, mask.shape, first=2) * mask
        wanted = zipf(rng, sizes.vocabulary, mask.shape, first=2) * (np.arange(sizes.length) < off[:, None])
        target = np.concatenate([np.full((sizes.batch, 1), START), wanted[:, :-1]], axis=1)
        made.append({"source": source, "target": target, "wanted": wanted, "source_mask": mask})
    return made


def operations(s: Sizes) -> float:
    """Floating-point operations of the matrix products in one step, including padding."""
    tokens = s.batch * s.length
    encoder = layer_products(tokens, s.width, s.d_ff, s.batch * s.length**2)
    decoder = layer_products(tokens, s.width, s.d_ff, s.batch * causal_pairs(s.length))
    cross = layer_products(tokens, s.width, 0, s.batch * s.length**2)
    return 3.0 * (s.n_layers * (encoder + decoder + cross) + 2.0 * tokens * s.width * s.vocabulary)


class Ours(ours.Training):
    def __init__(self, sizes: Sizes) -> None:
        config = TransformerConfig(
            sizes.vocabulary,
            sizes.vocabulary,
            d_model=sizes.width,
            n_heads=sizes.n_heads,
            d_ff=sizes.d_ff,
            n_encoder_layers=sizes.n_layers,
            n_decoder_layers=sizes.n_layers,
            dropout=sizes.dropout,
        )
        model = Transformer(config, np.random.default_rng(1))
        options = {"ignore_index": PADDING, "label_smoothing": LABEL_SMOOTHING}
        super().__init__(model, batches(sizes), LEARNING_RATE, **options)
