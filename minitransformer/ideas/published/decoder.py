"""The decoder of today, built from what its family hands in. A recipe says what differs, and reads top to bottom.

    x = table[ids] · scale
    then residual(attention(mix(i), turn(i))), residual(feed_forward(i)) for each layer i
    logits = norm(x) outputᵀ

Attention has shared key heads and no positions but those that its turn gives. Everything that a family does not hand in
is Llama's: RMSNorm before each sub-layer, scaled scores, perhaps within a window, rotated queries and keys, a gated
feed-forward network, no scale, the output's table alone. `decoder_of` takes any attention.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core import layers
from ...core.arrays.backend import Rng
from ...core.models.language_model import LanguageModel, LanguageModelParts
from ..after.gated import GatedFeedForward
from ..after.grouped import grouped
from ..after.mixer_layer import MixerLayer
from ..after.window import Window


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes that every such decoder has. The defaults are those of Llama 7B."""

    vocabulary: int
    max_length: int = 2048
    d_model: int = 4096
    n_heads: int = 32
    d_ff: int = 11008
    n_layers: int = 32
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: str = "silu"
    bias: bool = False
    rotary_base: float = 10000.0
    scaled_angles: dict[str, Any] | None = None  # as ScaledRotary takes them
    norm_eps: float = 1e-6
    tie_output: bool = False
    recompute: bool = False

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            if isinstance(value := getattr(self, each.name), list):  # a folder has no tuples
                object.__setattr__(self, each.name, tuple(value))

    def build(self, rng: Rng | None = None) -> LanguageModel:
        """The model of these sizes, untrained."""
        return LanguageModel(self, rng)


def decoder(
    sizes: Any,
    rng: Rng,
    *,
    mix: Callable[[int], Any] | None = None,
    turn: Callable[[int], Any] | None = None,
    other: Callable[[int], layers.Module | None] | None = None,
    ff_bias: bool | None = None,
    around_maps: Callable[[Any], Any] | None = None,
    **parts: Any,
) -> LanguageModelParts:
    """The parts of a decoder. sizes: a config with the fields of LlamaConfig.

    mix(i), turn(i): of layer i, from 0 on, turn(i) a pair of Turn, or of None; by default those of the sizes. other(i):
    what layer i has in place of attention, if it does not attend; ff_bias: of the feed-forward networks, if not that of
    the sizes; around_maps(map): see `grouped`; parts: see `decoder_of`. Raises ValueError for heads of odd width.
    """
    if (rotated := sizes.d_rotary or sizes.d_head) % 2:
        name = "d_rotary" if sizes.d_rotary else "head_dim"
        raise ValueError(f"{name} must be even, since rotary positions turn pairs of numbers; got {rotated}")
    d, heads = sizes.d_model, (sizes.n_heads, sizes.n_key_heads, sizes.d_head)
    mix, turn = mix or sizes.mix, turn or sizes.turn
    network = d, sizes.d_ff, sizes.activation, sizes.bias if ff_bias is None else ff_bias, rng

    def attention(i: int) -> layers.Module:
        instead = other(i) if other else None
        return instead or grouped(d, *heads, sizes.qkv_bias, sizes.bias, rng, mix(i), turn(i), around_maps)

    usual = {"norm": lambda: layers.RMSNorm(d, sizes.norm_eps), "feed_forward": lambda i: GatedFeedForward(*network)}
    return decoder_of(sizes, rng, attention=attention, **(usual | parts))


def decoder_of(
    sizes: Any,
    rng: Rng,
    *,
    norm: Callable[[], Any],
    attention: Callable[[int], layers.Module],
    feed_forward: Callable[[int], layers.Module] | None = None,
    residual: Callable[[Any], layers.Residual] | None = None,
    scale: float = 1.0,
    output: Callable[[layers.Embedding], Any] | None = None,
    embedding_norm: Any = None,
    layer: Any = layers.EncoderLayer,
) -> LanguageModelParts:
    """The parts of a decoder, with any sub-layers.

    norm(): of vectors of width d_model; attention(i), feed_forward(i): of layer i, from 0 on, the second if layers have
    one; residual(f): around a sub-layer that brings none; output(table): what makes the logits; embedding_norm: of the
    token vectors; layer: what is made of attention and feed-forward network.
    """
    d = sizes.d_model
    tokens = layers.Embedding(sizes.vocabulary, d, std=0.02, rng=rng)
    usual = residual or (lambda sublayer: layers.Residual(sublayer, norm(), "pre", sizes.dropout))
    kind, parts = (MixerLayer, [attention]) if feed_forward is None else (layer, [attention, feed_forward])

    def wrapped(part: layers.Module) -> layers.Residual:
        return part if isinstance(part, layers.Residual) else usual(part)

    stack = [kind.of(*(wrapped(part(i)) for part in parts)) for i in range(sizes.n_layers)]
    table = tokens if sizes.tie_output else layers.Embedding(sizes.vocabulary, d, std=0.02, rng=rng)
    return LanguageModelParts(
        embed=layers.InputEmbedding(tokens, None, scale, sizes.dropout, norm=embedding_norm),
        stack=layers.Encoder.of(stack, norm(), sizes.recompute),
        output=table if output is None else output(table),
    )


def within(window: int | None, mix: Any) -> Any:
    """The mix within a window, or itself without one."""
    return mix if window is None else Window(window, mix)
