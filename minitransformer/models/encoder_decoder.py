"""What all encoder-decoders share: the encoder's memory of the source, and logits for the target computed from it.

    memory = encode(source)
    logits = decode(target, memory)
    loss   = cross_entropy(logits, wanted)

The same loop trains each of them, and the same code decodes. Sutskever et al. 2014, "Sequence to Sequence Learning with
Neural Networks".
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from ..arrays.backend import Array, Pullback
from ..arrays.boundary import check_array, check_flags, check_kind, check_shape, check_sizes
from ..layers import Cache, Module
from ..layers.module import generator

P = TypeVar("P")


class EncoderDecoder(Module):
    """source: (B, T_src) ids; target: (B, T) ids; logits: (B, T, V) for the next token of the target."""

    config: Any

    def encode(
        self, source: Array, source_mask: Array | None = None, rng: np.random.Generator | None = None
    ) -> tuple[Array, Pullback]:
        """Return (memory, backward). memory: (B, T_src, D); backward(dmemory) returns None."""
        raise NotImplementedError

    def decode(
        self,
        target: Array,
        memory: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: Cache | None = None,
        rng: np.random.Generator | None = None,
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
        rng: np.random.Generator | None = None,
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
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the next tokens. wanted: (B, T), the target shifted by one. backward() returns None."""
        logits, model_backward = self(source, target, source_mask, target_mask, rng)
        loss, loss_backward = self.ops.cross_entropy(logits, wanted, ignore_index, label_smoothing)

        def backward(dloss: Array | float = 1.0) -> None:
            dlogits = loss_backward(dloss)
            model_backward(dlogits)

        return loss, backward


def parts_of(where: str, config: Any, kind: type, parts_kind: type[P], rng: np.random.Generator | None) -> P:
    """The parts that a config builds, which must be those of this kind of model. Errors as of `check_config`."""
    check_config(where, config, kind)
    parts = config.parts(generator(rng))
    if not isinstance(parts, parts_kind):
        raise TypeError(
            f"{where}: config must build {parts_kind.__name__}, but {type(config).__name__} builds "
            f"{type(parts).__name__}; config.build() makes the model that it is for"
        )
    return parts


def check_config(where: str, config: Any, kind: type) -> None:
    """Require the configuration of this kind of model, or another recipe. Its flags must be True or False."""
    if dataclasses.is_dataclass(config):
        given = {f: getattr(config, f.name) for f in dataclasses.fields(config)}
        check_flags(where, **{f.name: value for f, value in given.items() if f.type == "bool"})
        check_sizes(where, **{f.name: value for f, value in given.items() if f.name.endswith("_layers")})
    if hasattr(config, "parts") and hasattr(kind, "parts"):
        return
    hint = f"; make one, {kind.__name__}(...), or open a model that exists with models.load(path)"
    check_kind(where, "config", config, kind, hint)


def check_shared(where: str, config: Any) -> None:
    """Require one vocabulary for source and target where they share a table."""
    if getattr(config, "share_embeddings", False) and config.source_vocabulary != config.target_vocabulary:
        raise ValueError(
            f"{where}: share_embeddings needs one vocabulary, got {config.source_vocabulary} source and "
            f"{config.target_vocabulary} target tokens; build a joint vocabulary or set share_embeddings=False"
        )


def check_sequences(where: str, name: str, ids: Array) -> None:
    """Require a batch of sequences of ids, (B, T)."""
    check_array(where, name, ids)
    if ids.ndim != 2:
        raise ValueError(f"{where}: {name} must be a batch of sequences (B, T), got shape {ids.shape}")


def keys(where: str, name: str, mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    """(B, T_k), which tokens are real, to (B, 1, T_k): no query attends to padding."""
    if mask is None:
        return None
    check_array(where, name, mask)
    check_shape(where, name, mask, shape)
    return mask[:, None, :]
