"""A layer in pre-norm order, as ViT, CLIP and Whisper have it: the paper's parts, with the options of their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import layers
from ...core.arrays.backend import Rng


def pre_norm(
    kind: type[Any],
    d: int,
    n_heads: int,
    d_ff: int,
    activation: Any = "gelu",
    eps: float = 1e-5,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    biases: tuple[bool, bool, bool] = (True, True, True),
    rng: Rng | None = None,
) -> Callable[[], layers.EncoderLayer | layers.DecoderLayer]:
    """A function that makes such layers. biases: whether the maps of queries, keys and values have one."""

    def residual(sublayer: layers.Module) -> layers.Residual:
        return layers.Residual(sublayer, layers.LayerNorm(d, eps), "pre", dropout)

    def attention() -> layers.Residual:
        if d % n_heads:
            raise ValueError(f"a width of {d} cannot be divided into {n_heads} equal heads")
        maps = [layers.Linear(d, d, bias, rng) for bias in (*biases, True)]
        mix = layers.ScaledDotProduct(dropout=attention_dropout)
        return residual(layers.MultiHeadAttention.of(n_heads, *maps, mix=mix))

    def layer() -> layers.EncoderLayer | layers.DecoderLayer:
        attentions = [attention() for _ in range(2 if kind.reads_memory else 1)]
        return kind.of(*attentions, residual(layers.FeedForward(d, d_ff, activation, rng=rng)))

    return layer
