"""What all encoder-decoders share: the encoder's memory of the source, and logits for the target computed from it.

    memory = encode(source)
    logits = decode(target, memory)
    loss   = cross_entropy(logits, wanted)

The same loop trains each of them, and the same code decodes. Sutskever et al. 2014, "Sequence to Sequence Learning with
Neural Networks".
"""

from __future__ import annotations

from typing import Any

from ..arrays.backend import Array, Pullback, Rng
from ..layers import Cache, Module


class EncoderDecoder(Module):
    """source: (B, T_src) ids; target: (B, T) ids; logits: (B, T, V) for the next token of the target."""

    config: Any
    named_by = "target_tokens"
    does = "translates"  # what no other kind of model does

    def encode(self, source: Array, source_mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (memory, backward). memory: (B, T_src, D); backward(dmemory) returns None."""
        raise NotImplementedError

    def decode(
        self,
        target: Array,
        memory: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: Cache | None = None,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns dmemory.

        With a cache, target holds only the tokens that come after those read before, and there is no backward.
        """
        raise NotImplementedError

    def new_cache(self) -> Cache:
        """An empty cache for `decode`."""
        raise NotImplementedError

    def __call__(
        self,
        source: Array,
        target: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None, since ids have no gradient."""
        memory, encode_backward = self.encode(source, source_mask, rng)
        logits, decode_backward = self.decode(target, memory, source_mask, target_mask, rng=rng)

        def backward(dlogits: Array) -> None:
            dmemory = decode_backward(dlogits)
            encode_backward(dmemory)

        return logits, backward

    def loss(
        self,
        source: Array,
        target: Array,
        wanted: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the next tokens. wanted: (B, T), the target shifted by one. backward() returns None."""
        logits, model_backward = self(source, target, source_mask, target_mask, rng)
        loss, loss_backward = self.ops.cross_entropy(logits, wanted, ignore_index, label_smoothing)

        def backward(dloss: Array | float = 1.0) -> None:
            dlogits = loss_backward(dloss)
            model_backward(dlogits)

        return loss, backward
