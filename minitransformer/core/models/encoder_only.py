"""What all encoders of a whole text share: a vector for each token, which sees the tokens on both sides.

    hidden = encoder(embed(ids))
    pooled = pool(hidden)             one vector for the whole text

A head turns one of them into logits. Devlin et al. 2019, "BERT".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arrays.backend import Array, Pullback, Rng
from ..layers import Cost, Encoder, InputEmbedding, Module
from ..layers.part_cost import Costs
from .checks import check_batch, padding_keys


@dataclass(frozen=True)
class EncoderOnlyParts:
    """The parts of an encoder. pool: a part called as pool(hidden, mask, rng)."""

    embed: InputEmbedding
    encoder: Encoder
    pool: Module


class EncoderOnly(Module):
    """ids: (B, T); mask: boolean (B, T), True where a token is real; hidden: (B, T, D); pooled: (B, D).

    types: integers (B, T), 0 for the first of two texts and 1 for the second, for a model whose embedding has types.
    """

    does = "makes vectors of texts"

    def __init__(self, config: Any, parts: EncoderOnlyParts) -> None:
        self.config = config
        self.embed, self.encoder, self.pool = parts.embed, parts.encoder, parts.pool

    def hidden(
        self, ids: Array, mask: Array | None = None, types: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (hidden, backward); backward(dhidden) returns None, because ids have no gradient."""
        where = type(self).__name__
        check_batch(where, "ids", ids)
        padding_keys(where, "mask", mask, ids.shape)  # refuses a wrong mask, before `places` reads it
        real, positions = self.embed.places(ids, mask)
        visible = padding_keys(where, "mask", real, ids.shape)
        embedded, embed_backward = self.embed(ids, rng=rng, positions=positions, types=types)
        hidden, encoder_backward = self.encoder(embedded, mask=visible, rng=rng)

        def backward(dhidden: Array) -> None:
            dembedded = encoder_backward(dhidden)
            embed_backward(dembedded)

        return hidden, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        d = self.config.d_model
        yield "embed", (batch, length, d), self.embed.cost(batch, length)
        yield from self.encoder.costs("encoder", batch, length)
        yield "pool", (batch, d), self.pool.cost(batch, length)


class MeanPool(Module):
    """The mean over the real tokens. It learns nothing."""

    def __call__(self, hidden: Array, mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (pooled, backward); backward(dpooled) returns dhidden."""
        return self.ops.mean_pool(hidden, mask)

    def cost(self, batch: int, length: int) -> Cost:
        """Kept: the share of each token."""
        return Cost(kept=batch * length)
