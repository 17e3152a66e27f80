"""Stacks of two kinds of layers, as config.json has them: windows in most layers, none in every n-th.

    layer_types      ["sliding_attention", ..., "full_attention", ...], or missing: then the family's n holds
    rope_parameters  {"full_attention": {...}, "sliding_attention": {...}}: each kind turns by its own angles

Older files have rope_theta and rope_scaling for the full layers, and Gemma's rope_local_base_freq for the others.
"""

from collections.abc import Container
from typing import Any

import numpy as np

from . import angles
from .fields import Fields

FULL, SLIDING = "full_attention", "sliding_attention"
_BASES = {FULL: "rope_theta", SLIDING: "rope_local_base_freq"}


def kinds(n_layers: int, full_every: int, first: int | None = None) -> list[str]:
    """layer_types: every n-th layer is full, from layer `first` on, counted from 0; by default n - 1."""
    place = full_every - 1 if first is None else first
    return [FULL if i % full_every == place % full_every else SLIDING for i in range(n_layers)]


def full_every(
    fields: Fields, n_layers: int, default: int, name: str = "sliding_window_pattern", first: int | None = None
) -> int:
    """The n of a stack in which every n-th layer is full. Raises ValueError for any other order of layers.

    name: of the field that has it. first: see `kinds`.
    """
    given, found = fields.size(name, default), fields.get("layer_types")
    for n in (given, *range(1, n_layers + 2)):
        if found in (None, kinds(n_layers, n, first)):
            return n
    raise ValueError(f"layer_types must have {FULL!r} in every n-th layer, and {SLIDING!r} in all others")


def full_layers(fields: Fields, n_layers: int, other: str, usual: Container[int]) -> tuple[int, ...]:
    """The layers that attend, of a stack with two kinds in any order. other: the other kind. usual: without a list."""
    found = two_kinds(n_layers, other, usual) if fields.get("layer_types") is None else fields.get("layer_types")
    if not isinstance(found, list) or len(found) != n_layers or not set(found) <= {FULL, other}:
        raise ValueError(f"layer_types must be {FULL} or {other} for each layer")
    return tuple(i for i, kind in enumerate(found) if kind == FULL)


def kinds_in_gguf(fields: Fields, kind: str, n_layers: int, other: str) -> list[str]:
    """layer_types of a .gguf file, in which a layer without heads of keys is of the other kind. kind: of the file."""
    heads = fields.get(f"{kind}.attention.head_count_kv")
    return [FULL if n else other for n in np.broadcast_to(heads, n_layers)]


def two_kinds(n_layers: int, other: str, full: Container[int]) -> list[str]:
    """layer_types: the layers in `full` attend."""
    return [FULL if i in full else other for i in range(n_layers)]


def of_kind(fields: Fields, kind: str, base: float, old: str | None = None) -> Fields:
    """The fields with the angles of one kind of layer where a Llama has those of all.

    base: for a missing one. old: the field of the base in older files, if that is not Llama's or Gemma's.
    """
    found, theta = fields.get("rope_parameters"), fields.get(old or _BASES[kind])
    scaling = fields.get("rope_scaling")
    document: dict[str, Any] = {"rope_theta": base if theta is None else theta, angles.TRAINED: None}  # not read here
    if scaling and (found is not None or "rope_type" not in scaling):
        raise ValueError(
            "rope_scaling must have a rope_type here, and no rope_parameters beside it; take one of them out"
        )
    if kind == SLIDING:
        document["rope_scaling"] = None
    if found is not None:
        if not isinstance(found, dict) or not found.keys() <= {FULL, SLIDING}:
            raise ValueError(f"rope_parameters must have an object for {FULL} and one for {SLIDING}, and nothing else")
        document["rope_parameters"] = found.get(kind)
        if isinstance(found.get(kind), dict):
            Fields(found[kind]).only(truncate=True)
    return fields.instead(**document)


def base_of(fields: Fields, kind: str, width: int, base: float, old: str | None = None) -> float:
    """The base of the angles in one kind of layer. Scaled ones are refused there; the rest as in `of_kind`."""
    found = angles.read(of_kind(fields, kind, base, old), width)
    if found["scaled_angles"] is not None:
        raise ValueError(f"rope_parameters of {kind} must be of type 'default': there no angles are scaled")
    return found["rotary_base"]


def written_kinds(config: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config.json. sizes: those of a config like Llama's; config: with full_every and local_base."""
    rest = {name: value for name, value in sizes.items() if name not in ("rope_theta", "rope_scaling")}
    turns = {FULL: sizes["rope_parameters"], SLIDING: angles.one(config.local_base, None)}
    return {**rest, "layer_types": kinds(config.n_layers, config.full_every), "rope_parameters": turns}
