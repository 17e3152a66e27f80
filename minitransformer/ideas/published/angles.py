"""The angles of rotary positions in a config.json: `read` and `written` serve every family.

Configs have kept them in three places. Llama's first ones have `rope_theta` alone; later ones add `rope_scaling`, an
object with `type` or `rope_type`; those of today have one object, `rope_parameters`, with `rope_theta` inside, and some
one such object for each kind of layer (layer_kinds.py). What is read has our names, those of ideas/after/scaled_angles.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..after.scaled_angles import ScaledRotary
from ..after.scaled_angles.angles import sharper
from .fields import Fields

_PLACES = ("rope_scaling", "rope_parameters")  # the first that is there counts, as in the library transformers
TRAINED = "original_max_position_embeddings"
_PART = "partial_rotary_factor"


def read(fields: Fields, width: int, partial: bool = False) -> dict[str, Any]:
    """The fields `rotary_base`, `scaled_angles` and `d_rotary` of a config like Llama's, and what changes max_length.

    width: of a head. partial: whether the family rotates a part of each head, if its config asks for it; another
    family is refused then.
    """
    there = [name for name in _PLACES if fields.get(name)]
    place = there[0] if there else _PLACES[-1]
    given: Any = fields.get(place, {}) or {}
    if not isinstance(given, dict):
        raise ValueError(f"{place} must be an object, got {type(given).__name__}")
    beside = {name: value for name in ("rope_theta", _PART, TRAINED) if (value := fields.get(name)) is not None}
    trained = {name: value for name, value in beside.items() if name == TRAINED}  # this one counts more than one inside
    inside = Fields({**beside, **given, **trained})
    inside.asked |= {"rope_type", "type", TRAINED}
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _READ:
        raise ValueError(f"{place} of type {str(kind)[:40]!r} is not supported; one of {', '.join(_READ)} is")
    if not partial:
        inside.only(**{_PART: 1.0})
    longest = fields.size("max_position_embeddings", 2048)
    angles = _READ[kind](inside, longest)
    base, rotated = inside.positive("rope_theta", 10000.0), _part(inside, width)
    inside.nothing_else(place=place)
    result = {"rotary_base": base, "scaled_angles": angles, "d_rotary": rotated}
    if angles is not None:
        ScaledRotary(base, angles)(np.zeros((1, rotated or width)))  # refuses what does not fit this width
    if angles is not None and kind == "dynamic":
        result["max_length"] = int(angles["factor"] * longest)
    return result


def _part(inside: Fields, width: int) -> int | None:
    """The width of what is rotated, or None for all of it."""
    part = inside.positive(_PART, 1.0)
    rotated = int(width * part)
    if part != 1.0 and (rotated % 2 or not 0 < rotated <= width):
        raise ValueError(f"{_PART} must leave an even number of a head's {width} numbers to rotate, got {rotated}")
    return None if rotated == width else rotated


def _plain(inside: Fields, longest: int) -> None:
    return None


def _linear(inside: Fields, longest: int) -> dict[str, Any]:
    return {"kind": "linear", "factor": inside.positive("factor")}


def _dynamic(inside: Fields, longest: int) -> dict[str, Any]:
    return {"kind": "dynamic", "factor": inside.positive("factor"), "trained": longest}


def _yarn(inside: Fields, longest: int) -> dict[str, Any]:
    trained = inside.size(TRAINED, longest)
    factor = inside.positive("factor", longest / trained)
    weights = [inside.positive(name, 0.0) for name in ("mscale", "mscale_all_dim") if inside.get(name)]
    usual = sharper(factor, weights[0]) / sharper(factor, weights[1]) if len(weights) == 2 else sharper(factor)
    return {
        "kind": "yarn", "factor": factor, "trained": trained, "fast": inside.positive("beta_fast", 32.0),
        "slow": inside.positive("beta_slow", 1.0),
        "truncate": inside.get("truncate", True) is not None and inside.flag("truncate", True),  # null means false
        "attention": inside.positive("attention_factor", usual),
    }  # fmt: skip


def _llama3(inside: Fields, longest: int) -> dict[str, Any]:
    return {
        "kind": "llama3", "factor": inside.positive("factor"), "trained": inside.size(TRAINED, longest),
        "low": inside.positive("low_freq_factor"), "high": inside.positive("high_freq_factor"),
    }  # fmt: skip


def _longrope(inside: Fields, longest: int) -> dict[str, Any]:
    trained = inside.size(TRAINED, longest)
    factor = inside.positive("factor", longest / trained)
    if trained == 1:
        raise ValueError(f"longrope needs {TRAINED} of at least 2, got 1")
    usual = math.sqrt(1.0 + math.log(factor) / math.log(trained)) if factor > 1.0 else 1.0
    return {
        "kind": "longrope", "short": inside.positives("short_factor"), "long": inside.positives("long_factor"),
        "trained": trained, "attention": inside.positive("attention_factor", usual),
    }  # fmt: skip


_READ: dict[str, Callable[[Fields, int], dict[str, Any] | None]] = {
    "default": _plain, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "llama3": _llama3,
    "longrope": _longrope, "su": _longrope,
}  # fmt: skip
_THEIRS = {
    "kind": "rope_type", "factor": "factor", "trained": TRAINED, "fast": "beta_fast", "slow": "beta_slow",
    "truncate": "truncate", "attention": "attention_factor", "low": "low_freq_factor", "high": "high_freq_factor",
    "short": "short_factor", "long": "long_factor",
}  # fmt: skip


def one(base: float, scaled: Mapping[str, Any] | None, part: float = 1.0) -> dict[str, Any]:
    """The object `rope_parameters` of these angles. part: how much of each head is rotated."""
    options = {_THEIRS[name]: value for name, value in (scaled or {"kind": "default"}).items()}
    if options["rope_type"] == "dynamic":
        del options[TRAINED]  # they take max_position_embeddings
    return {**options, "rope_theta": base} | ({} if part == 1.0 else {_PART: part})


def part_of(rotated: int, width: int) -> float:
    """The factor that leaves so many of a head's numbers to rotate."""
    part = rotated / width
    return part if int(width * part) == rotated else math.nextafter(part, 2.0)  # one rounding away


def written(config: Any) -> dict[str, Any]:
    """What `read` reads of a config like Llama's, in the place of today and, for older readers, in the earlier ones."""
    part = part_of(config.d_rotary or config.d_head, config.d_head)
    now = one(config.rotary_base, config.scaled_angles, part)
    fields = {"rope_theta": config.rotary_base, "rope_parameters": now} | ({} if part == 1.0 else {_PART: part})
    if config.scaled_angles is None:
        return fields
    if config.scaled_angles["kind"] == "dynamic":
        fields["max_position_embeddings"] = config.scaled_angles["trained"]
    return {**fields, "rope_scaling": {name: value for name, value in now.items() if name not in ("rope_theta", _PART)}}
