"""An encoder and a decoder that read one text, for a head on the decoder: Lewis et al. 2020, "BART", section 3.

    memory: encoder(embed(ids))
    hidden: decoder(embed(start, ids_1, ..., ids_{T-1}), memory)      place t has read ids_1 ... ids_{t-1}, and memory

The decoder gets the text one place later. A class is decided by its last real token, an answer by all; see heads.py.
In mBART the last real token names the language: it is the start, and the class is decided by the end of the text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...core import ops
from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.layers import Cost, Decoder, Encoder, InputEmbedding, Linear, Module
from ...core.layers.part_cost import Costs
from ...core.models.classifier import Classifier
from ...core.models.encoder_only import EncoderOnlyParts
from ...core.models.transformer import TransformerParts
from .family import CLASSES
from .heads import LastReal, Pooled, Prediction
from .text_encoder import TextEncoder


class TwiceEmbedded(Module):
    """A text as it stands, and one place later behind a first token. ids: (B, T); y: (2, B, T, width).

    start: that token; None: the last real one of the text.
    """

    def __init__(self, source: InputEmbedding, target: InputEmbedding, start: int | None) -> None:
        self.source, self.target, self.start = source, target, start

    @property
    def tokens(self) -> Any:
        """The table of the text as it stands."""
        return self.source.tokens

    def __call__(
        self, ids: Array, rng: Rng | None = None, positions: Array | None = None, **unused: Any
    ) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns None. positions: the first tokens, which `places` gives."""
        xp = array_module(ids)
        first = self.places(ids, None)[1] if positions is None else positions
        later = xp.concatenate([first, ids[:, :-1]], axis=1)
        read, read_backward = self.source(ids, rng=rng)
        written, written_backward = self.target(later, rng=rng)
        y = xp.stack([read, written])

        def backward(dy: Array) -> None:
            dread, dwritten = dy
            written_backward(dwritten)
            read_backward(dread)

        return y, backward

    def places(self, ids: Array, mask: Array | None) -> tuple[Array | None, Array]:
        """Which tokens are real: as given; and the token before each text, (B, 1)."""
        xp = array_module(ids)
        if self.start is not None:
            return mask, xp.full_like(ids[:, :1], self.start)
        last = LastReal().place(ids, mask)
        return mask, xp.take_along_axis(ids, last[:, None], axis=1)

    def cost(self, batch: int, length: int) -> Cost:
        """That of both."""
        return self.source.cost(batch, length) + self.target.cost(batch, length)


class EncoderThenDecoder(Module):
    """hidden = decoder(x[1], encoder(x[0])). x: (2, B, T, D); hidden: (B, T, D). mask: of the text in the encoder.

    The decoder sees all tokens before, padding too, as published models of this kind do.
    """

    names_in_tables: ClassVar[dict[str, str]] = {  # the first that fits counts
        "embed.source": "embed_source", "embed.target.tokens": "target_tokens", "embed.target": "embed_target",
        "encoder.encoder": "encoder", "encoder.decoder": "decoder",
    }  # fmt: skip

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        self.encoder, self.decoder = encoder, decoder

    @property
    def layers(self) -> list[Module]:
        """The layers of both."""
        return [*self.encoder.layers, *self.decoder.layers]

    def __call__(self, x: Array, mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (hidden, backward); backward(dhidden) returns dx."""
        xp = array_module(x)
        read, written = x
        memory, encoder_backward = self.encoder(read, mask=mask, rng=rng)
        hidden, decoder_backward = self.decoder(written, memory, memory_mask=mask, rng=rng)

        def backward(dhidden: Array) -> Array:
            dwritten, dmemory = decoder_backward(dhidden)
            dread = encoder_backward(dmemory)
            dx = xp.stack([dread, dwritten])
            return dx

        return hidden, backward

    def costs(self, name: str, batch: int, length: int) -> Costs:
        """What each part costs; the memory is kept for all layers that read it."""
        yield from self.encoder.costs(f"{name}.encoder", batch, length)
        last: Any = self.layers[-1]
        width = last.feed_forward.norm.gamma.value.shape[0]
        yield f"{name}.memory", (batch, length, width), Cost(kept=batch * length * width)
        yield from self.decoder.costs(f"{name}.decoder", batch, length)


class EndClassifier(Classifier):
    """A classifier whose vector is that of the text's last `end`, a token; of its last real token, where none is."""

    def __call__(
        self, ids: Array, mask: Array | None = None, types: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None."""
        xp = array_module(ids)
        hidden, hidden_backward = self.hidden(ids, mask, types, rng)
        real = xp.ones(ids.shape, bool) if mask is None else mask
        ends = real & (ids == self.config.end)
        pooled, pool_backward = self.pool(hidden, xp.where(ends.any(axis=1, keepdims=True), ends, real), rng)
        logits, head_backward = self.head(pooled)

        def backward(dlogits: Array) -> None:
            dpooled = head_backward(dlogits)
            dhidden = pool_backward(dpooled)
            hidden_backward(dhidden)

        return logits, backward


class ReadByBoth:
    """For the config of an encoder and decoder that read a text.

    start: the token before the decoder's text; None: its last real one. end: the token that decides a class; None: the
    last real one.
    """

    start: int | None
    end: int | None = None
    d_model: int

    @property
    def classifier(self) -> type[Classifier]:
        """The model with a head for classes."""
        return Classifier if self.end is None else EndClassifier

    @property
    def vocabulary(self) -> int:
        """Of the text."""
        return self.source_vocabulary  # type: ignore[attr-defined]

    def build(self, rng: Rng | None = None) -> Any:
        """The body without a head, untrained."""
        return TextEncoder(self, rng)

    def parts(self, rng: Rng) -> Any:
        """The parts of both sides as one body: EncoderOnlyParts."""
        parts: TransformerParts = super().parts(rng)  # type: ignore[misc]
        embed: Any = TwiceEmbedded(parts.embed_source, parts.embed_target, self.start)
        both: Any = EncoderThenDecoder(parts.encoder, parts.decoder)
        return EncoderOnlyParts(embed, both, LastReal())

    def before_head(self, head: str, rng: Rng) -> Pooled | None:
        """Before the logits of classes a map and tanh."""
        d = self.d_model
        return Pooled(LastReal(), Prediction(Linear(d, d, rng=rng), ops.tanh)) if head == CLASSES else None


NAMES = """
/classification_head.dense  T  pool.prediction.dense
"""
LAST_MAP = {CLASSES: "classification_head.out_proj"}
