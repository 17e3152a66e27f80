"""Speech to text: the Transformer, with another embedding of the source. Radford et al. 2022, "Robust Speech ...".

    memory: encoder(front_end(features))
    hidden: decoder(embed(target), memory)
    logits = hidden tableᵀ

The source is sound, as a logarithm of how loud each of some pitches is, a hundred times a second. The front end, two
convolutions over time, halves their number: ideas/after/front_end. All else is the Transformer's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ...core import layers
from ...core.arrays.backend import Array, Pullback, Rng, to_device
from ...core.arrays.boundary import check_array
from ...core.models.transformer import Transformer, TransformerParts
from ..after.front_end import FrontEnd
from .position_tables import HalvesPositions
from .pre_norm import pre_norm


@dataclass(frozen=True)
class SpeechConfig:
    """Sizes of a Whisper. The defaults are those of Whisper-Tiny."""

    target_vocabulary: int
    pitches: int = 80  # numbers of a frame of sound
    n_source_positions: int = 1500  # half as many as frames
    n_positions: int = 448  # of the text
    d_model: int = 384
    n_heads: int = 6
    d_ff: int = 1536
    n_encoder_layers: int = 4
    decoder_heads: int = 6
    decoder_d_ff: int = 1536
    n_decoder_layers: int = 4
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: str = "gelu"
    tie_output: bool = True
    share_embeddings: ClassVar[bool] = False

    def build(self, rng: Rng | None = None) -> SpeechModel:
        """The model of these sizes, untrained."""
        return SpeechModel(self, rng)

    def parts(self, rng: Rng) -> TransformerParts:
        """The parts of Whisper. The map to keys has no bias: it would add the same to every score of a query."""
        d, rates = self.d_model, (self.dropout, self.attention_dropout, (True, False, True), rng)
        read = pre_norm(layers.EncoderLayer, d, self.n_heads, self.d_ff, self.activation, 1e-5, *rates)
        write = pre_norm(layers.DecoderLayer, d, self.decoder_heads, self.decoder_d_ff, self.activation, 1e-5, *rates)
        tokens = layers.Embedding(self.target_vocabulary, d, std=0.02, rng=rng)
        learned = layers.LearnedPositions(self.n_positions, d, rng=rng)
        most = 2 * self.n_source_positions
        return TransformerParts(
            embed_source=FrontEnd(self.pitches, d, most, sines(d), self.dropout, rng),  # type: ignore[arg-type]
            embed_target=layers.InputEmbedding(tokens, learned, dropout=self.dropout),
            encoder=layers.Encoder.of([read() for _ in range(self.n_encoder_layers)], layers.LayerNorm(d)),
            decoder=layers.Decoder.of([write() for _ in range(self.n_decoder_layers)], layers.LayerNorm(d)),
            output=tokens if self.tie_output else layers.Embedding(self.target_vocabulary, d, std=0.02, rng=rng),
        )


def sines(d_model: int) -> HalvesPositions:
    """Whisper's positions: the angles of the paper, so stretched that the last is p / 10000. All sines come first.

    Angle i of D/2 is p · 10000^(-i / (D/2 - 1)): the paper's formula, p · base^(-2i / D), with this base.
    """
    if d_model < 4 or d_model % 2:
        raise ValueError(f"d_model must be even and at least 4, for sines and cosines in pairs; got {d_model}")
    return HalvesPositions(d_model, 10000.0 ** (d_model / (d_model - 2)))


class SpeechModel(Transformer):
    """Features of sound and target ids to logits for the next target token.

    features: (B, pitches, T) with T up to twice n_source_positions; target: (B, T_target). There is no mask of the
    source: silence fills what is too short. encode's pullback returns dfeatures.
    """

    does = "writes down speech"
    reads = "sound"

    def encode(self, source: Array, source_mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (memory, backward). memory: (B, ⌈T / 2⌉, D); backward(dmemory) returns dfeatures."""
        check_array("SpeechModel", "features", source)
        if source.ndim != 3:
            raise ValueError(f"SpeechModel: features must be (B, {self.config.pitches}, T), got shape {source.shape}")
        if source_mask is not None:
            raise ValueError("SpeechModel: there is no mask of the sound; fill up with the features of silence")
        embedded, embed_backward = self.embed_source(source, rng=rng)
        memory, encoder_backward = self.encoder(embedded, rng=rng)

        def backward(dmemory: Array) -> Array:
            dembedded = encoder_backward(dmemory)
            dfeatures = embed_backward(dembedded)
            return dfeatures

        return memory, backward

    def drawn(self, rng: Rng) -> Callable[[], tuple[Array, Pullback]]:
        """A function that computes the loss of two short random recordings, in float64."""
        c = self.config
        features = to_device(rng.normal(size=(2, c.pitches, min(6, 2 * c.n_source_positions))), self.device)
        length = min(4, c.n_positions + 1)
        ids = to_device(rng.integers(0, c.target_vocabulary, (2, length)), self.device)
        return lambda: self.loss(features, ids[:, :-1], ids[:, 1:])
