"""OLMo 2: OLMo Team 2024, "2 OLMo 2 Furious", section 3. A Llama with its norms elsewhere.

The norm of a sub-layer stands after it, inside the residual connection, and queries and keys have a norm over all heads
together, before the rotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import RMSNorm
from ...core.models.language_model import LanguageModelParts
from ..after.sandwich import Normed, NormedUpdate
from . import llama, qwen3
from .decoder import decoder
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields


@dataclass(frozen=True)
class Olmo2Config(llama.LlamaConfig):
    """Sizes of an OLMo 2: those of a Llama. bias: whether attention's four maps have one."""

    norm_eps: float = 1e-5

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of OLMo 2."""

        def norm(width: int = self.d_model) -> RMSNorm:
            return RMSNorm(width, self.norm_eps)

        return decoder(
            self,
            rng,
            norm=norm,
            ff_bias=False,
            residual=lambda sublayer: NormedUpdate(sublayer, norm(), self.dropout),
            around_maps=lambda part: Normed(part, norm(part.d_out)),
        )


def ours(fields: Fields, head: str, stored: Stored) -> Olmo2Config:
    """The config of OLMo 2's config.json."""
    fields.only(sliding_window=None)
    sizes = llama.sizes(fields.otherwise(rms_norm_eps=1e-5), head)
    return Olmo2Config(**sizes, bias=fields.flag("attention_bias", False))


def theirs(config: Olmo2Config) -> dict[str, Any]:
    """OLMo 2's config.json."""
    return {**llama.written_sizes(config), "attention_bias": config.bias}


NAMES = (
    llama.NAMES
    + """
layers.*.self_attn.q_proj              T  stack.layers.*.self_attention.sublayer.query.sublayer
layers.*.self_attn.k_proj              T  stack.layers.*.self_attention.sublayer.key.sublayer
layers.*.self_attn.q_norm              =  stack.layers.*.self_attention.sublayer.query.norm
layers.*.self_attn.k_norm              =  stack.layers.*.self_attention.sublayer.key.norm
layers.*.post_attention_layernorm      =  stack.layers.*.self_attention.norm
layers.*.post_feedforward_layernorm    =  stack.layers.*.feed_forward.norm
"""
)

GGUF = (
    qwen3.GGUF
    + """
blk.*.post_attention_norm  =  layers.*.post_attention_layernorm
blk.*.post_ffw_norm        =  layers.*.post_feedforward_layernorm
"""
)


FAMILY = Family(
    "olmo2", "model", classes("Olmo2", WRITERS), ours, theirs, NAMES,
    recipe=Olmo2Config,
    adds="as Llama; norms after each sub-layer, and of the queries and keys of all heads together",
    small=llama.SMALL,
    in_gguf=InGguf(GGUF),
)  # fmt: skip
