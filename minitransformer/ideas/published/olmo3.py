"""OLMo 3: OLMo Team 2025, "Olmo 3", section 3. An OLMo 2 with a window in three of four layers.

For long texts YaRN scales the angles of the fourth, which sees everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.layers import ScaledDotProduct
from ..after.rotary import rotary_turn
from . import llama, olmo2
from .decoder import within
from .family import WRITERS, Family, Found, InGguf, Stored, classes
from .fields import Fields
from .layer_kinds import FULL, SLIDING, base_of, full_every, of_kind, written_kinds


@dataclass(frozen=True)
class Olmo3Config(olmo2.Olmo2Config):
    """Sizes of an OLMo 3: those of a Llama. bias: whether attention's four maps have one.

    window: of all layers but every full_every-th; local_base: of the angles there.
    """

    rotary_base: float = 5e5
    local_base: float = 5e5
    window: int = 4096
    full_every: int = 4

    def is_full(self, i: int) -> bool:
        """Whether layer i sees everything."""
        return (i + 1) % self.full_every == 0

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i: angles that are scaled in full layers alone."""
        return super().turn(i) if self.is_full(i) else rotary_turn(self.local_base)

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values: within a window, unless it is full."""
        plain = ScaledDotProduct(dropout=self.attention_dropout)
        return plain if self.is_full(i) else within(self.window, plain)


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    local_base = base_of(fields, SLIDING, found["d_head"], 5e5)
    return {"full_every": full_every(fields, found["n_layers"], 4), "local_base": local_base}


def in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """The windows. llama.cpp scales the angles of full layers alone, too."""
    found: Found = {
        "sliding_window": fields.size(_WINDOW),
        "rope_local_base_freq": fields.positive("olmo2.rope.freq_base_swa", config["rope_theta"]),
    }
    if (pattern := fields.get(name := f"{_WINDOW}_pattern")) is not None:
        if not isinstance(pattern, list):
            raise ValueError(f"{name} must say of each layer whether it has a window, got {pattern}")
        found["layer_types"] = [SLIDING if windowed else FULL for windowed in pattern]
    return found


_WINDOW = "olmo2.attention.sliding_window"
_YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 8}
_TURNS = {FULL: _YARN, SLIDING: {"rope_type": "default", "rope_theta": 50.0}}
FAMILY = Family(
    "olmo3", "model", Olmo3Config, classes("Olmo3", WRITERS), f"sliding_window size window\n{llama.BIAS}", olmo2.NAMES,
    base=(
        lambda fields: llama.sizes(of_kind(fields, FULL, 5e5)),
        lambda config: written_kinds(config, llama.written_sizes(config)),
    ),
    usual={"rms_norm_eps": 1e-5, "sliding_window": 4096}, more_ours=_ours,
    adds="as OLMo 2; a window in three of four layers, YaRN's angles in the fourth",
    small=llama.SMALL | {"sliding_window": 3, "layer_types": [SLIDING, FULL], "rope_parameters": _TURNS},
    in_gguf=InGguf(olmo2.GGUF, "", "olmo2", in_gguf, when=lambda metadata, stored: bool(metadata.get(_WINDOW))),
)  # fmt: skip
