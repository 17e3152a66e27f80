"""A layer in pre-norm order, as ViT, CLIP and Whisper have it: the paper's parts, with the options of their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    Linear,
    Module,
    MultiHeadAttention,
    Residual,
    ScaledDotProduct,
)


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
    rng: np.random.Generator | None = None,
) -> Callable[[], EncoderLayer | DecoderLayer]:
    """A function that makes such layers. biases: whether the maps of queries, keys and values have one."""

    def residual(sublayer: Module) -> Residual:
        return Residual(sublayer, LayerNorm(d, eps), "pre", dropout)

    def attention() -> Residual:
        if d % n_heads:
            raise ValueError(f"a width of {d} cannot be divided into {n_heads} equal heads")
        maps = [Linear(d, d, bias, rng) for bias in (*biases, True)]
        return residual(MultiHeadAttention.of(n_heads, *maps, mix=ScaledDotProduct(dropout=attention_dropout)))

    def layer() -> EncoderLayer | DecoderLayer:
        attentions = [attention() for _ in range(2 if kind.reads_memory else 1)]
        return kind.of(*attentions, residual(FeedForward(d, d_ff, activation, rng=rng)))

    return layer
