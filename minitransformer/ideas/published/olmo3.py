"""OLMo 3: OLMo Team 2025, "Olmo 3", section 3. An OLMo 2 with a window in three of four layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import RMSNorm, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.gated import GatedFeedForward
from ..after.rotary import rotary_turn
from ..after.sandwich import Normed, NormedUpdate
from . import llama, olmo2
from .decoder import decoder, within
from .family import WRITERS, Family, Stored, classes
from .fields import Fields
from .layer_kinds import FULL, SLIDING, full_every, of_kind, written_kinds


@dataclass(frozen=True)
class Olmo3Config(llama.LlamaConfig):
    """Sizes of an OLMo 3: those of a Llama. bias: whether attention's four maps have one.

    window: of all layers but every full_every-th; local_base: of the angles there.
    """

    norm_eps: float = 1e-5
    rotary_base: float = 5e5
    local_base: float = 5e5
    window: int = 4096
    full_every: int = 4

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of OLMo 3."""

        def norm(width: int = self.d_model) -> RMSNorm:
            return RMSNorm(width, self.norm_eps)

        def is_full(i: int) -> bool:
            return (i + 1) % self.full_every == 0

        return decoder(
            self,
            rng,
            norm=norm,
            mix=lambda i: within(None if is_full(i) else self.window, ScaledDotProduct(dropout=self.attention_dropout)),
            turn=lambda i: rotary_turn(self.rotary_base if is_full(i) else self.local_base),
            feed_forward=lambda: GatedFeedForward(self.d_model, self.d_ff, self.activation, bias=False, rng=rng),
            residual=lambda sublayer: NormedUpdate(sublayer, norm(), self.dropout),
            around_maps=lambda part: Normed(part, norm(part.d_out)),
        )


def ours(fields: Fields, head: str, stored: Stored) -> Olmo3Config:
    """The config of OLMo 3's config.json."""
    fields = fields.otherwise(rms_norm_eps=1e-5, sliding_window=4096)
    sizes = llama.sizes(of_kind(fields, FULL, 5e5), head)
    own = {"window": fields.size("sliding_window"), "full_every": full_every(fields, sizes["n_layers"], 4)}
    local = llama.sizes(of_kind(fields, SLIDING, 5e5), head)["rotary_base"]
    return Olmo3Config(**sizes, **own, local_base=local, bias=fields.flag("attention_bias", False))


def theirs(config: Olmo3Config) -> dict[str, Any]:
    """OLMo 3's config.json."""
    sizes = llama.written_sizes(config)
    del sizes["rope_theta"]
    turns = {FULL: sizes["rope_parameters"], SLIDING: {"rope_type": "default", "rope_theta": config.local_base}}
    own = {"sliding_window": config.window, "attention_bias": config.bias}
    return {**sizes, **own, **written_kinds(config.n_layers, config.full_every, **turns)}


_TURNS = {FULL: {"rope_type": "default", "rope_theta": 500.0}, SLIDING: {"rope_type": "default", "rope_theta": 50.0}}
FAMILY = Family(
    "olmo3", "model", classes("Olmo3", WRITERS), ours, theirs, olmo2.NAMES,
    recipe=Olmo3Config,
    adds="as OLMo 2; a window in three of four layers",
    small=llama.SMALL | {"sliding_window": 3, "layer_types": [SLIDING, FULL], "rope_parameters": _TURNS},
)  # fmt: skip
