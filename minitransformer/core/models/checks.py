"""What models require of a config, of ids and of masks.

A model's mask is of another kind than attention's: (B, T), True where a token is real and not padding. `padding_keys`
makes the mask of the attention from it.
"""

import dataclasses
from typing import Any, TypeVar

import numpy as np

from ..arrays.backend import Array, Rng
from ..arrays.boundary import check_array, check_flags, check_kind, check_shape, check_sizes
from ..layers.module import generator

P = TypeVar("P")


def parts_of(where: str, config: Any, kind: type, parts_kind: type[P], rng: Rng | None) -> P:
    """The parts that a config builds, which must be those of this kind of model. Errors as of `check_config`."""
    check_config(where, config, kind)
    parts = config.parts(generator(rng))
    if not isinstance(parts, parts_kind):
        found = f"{type(config).__name__} builds {type(parts).__name__}; config.build() makes the model that it is for"
        raise TypeError(f"{where}: config must build {parts_kind.__name__}, but {found}")
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


def check_batch(where: str, name: str, ids: Array) -> None:
    """Require a batch of sequences of ids, (B, T)."""
    if type(ids) is not np.ndarray or not ids.size:
        check_array(where, name, ids)
    if ids.ndim != 2:
        raise ValueError(f"{where}: {name} must be a batch of sequences (B, T), got shape {ids.shape}")


def padding_keys(where: str, name: str, mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    """From which tokens are real, (B, T_k), to which keys a query may attend to, (B, 1, T_k): not to padding."""
    if mask is None:
        return None
    check_array(where, name, mask)
    check_shape(where, name, mask, shape)
    return mask[:, None, :]
