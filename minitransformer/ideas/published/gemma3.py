"""Gemma 3: Gemma Team 2025, "Gemma 3 Technical Report", section 2. A Gemma 2 with other attention.

Norms of queries and keys, which multiply by 1 + γ, in place of the cap; of six layers, five have a window and turn by
angles of a smaller base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.qk_norm import qk_norm
from ..after.rotary import rotary_turn
from ..after.sandwich import OffsetRMSNorm
from . import gemma2, llama
from .decoder import decoder, within
from .family import Family, InGguf, Stored, Whole
from .fields import Fields, written
from .layer_kinds import FULL, SLIDING, base_of, full_every, of_kind, written_kinds


@dataclass(frozen=True)
class Gemma3Config(llama.LlamaConfig):
    """Sizes of a Gemma 3. bias: whether attention's four maps have one. query_scalar: scores are divided by its root.

    window: of all layers but every full_every-th; local_base: of the angles there. logit_cap: None for no cap.
    """

    activation: str = "gelu_tanh"
    tie_output: bool = True
    rotary_base: float = 1e6
    local_base: float = 1e4
    window: int = 4096
    full_every: int = 6
    query_scalar: int = 256
    logit_cap: float | None = None

    def is_full(self, i: int) -> bool:
        """Whether layer i sees everything."""
        return (i + 1) % self.full_every == 0

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i: after a norm, by the angles of its kind."""
        then = super().turn(i) if self.is_full(i) else rotary_turn(self.local_base)
        return qk_norm(self.d_head or 1, self.norm_eps, then=then, kind=OffsetRMSNorm)

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values: within a window, unless it is full."""
        plain = ScaledDotProduct(self.query_scalar**-0.5, self.attention_dropout)
        return plain if self.is_full(i) else within(self.window, plain)

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Gemma 3."""
        return decoder(self, rng, **gemma2.around(self))


def ours(fields: Fields, head: str, stored: Stored) -> Gemma3Config:
    """The config of Gemma 3's config.json. A cap of the scores stands in some files and is not used."""
    fields = fields.otherwise(**gemma2.DEFAULTS)
    fields.only(use_bidirectional_attention=False)
    sizes = llama.sizes(of_kind(fields, FULL, 1e6), head)
    own = fields.read(gemma2.FIELDS) | {"full_every": full_every(fields, sizes["n_layers"], 6)}
    own["local_base"] = base_of(fields, SLIDING, sizes["d_head"], 1e4)
    cap = fields.get("final_logit_softcapping")
    own["logit_cap"] = None if cap is None else fields.positive("final_logit_softcapping")
    return Gemma3Config(**(sizes | own))


def theirs(config: Gemma3Config) -> dict[str, Any]:
    """Gemma 3's config.json."""
    sizes = written_kinds(config, llama.written_sizes(config))
    del sizes["hidden_act"]
    return {**sizes, **written(config, gemma2.FIELDS), "final_logit_softcapping": config.logit_cap}


NAMES = (
    gemma2.NAMES
    + """
layers.*.self_attn.q_norm              =  stack.layers.*.self_attention.sublayer.sublayer.turn_query.norm
layers.*.self_attn.k_norm              =  stack.layers.*.self_attention.sublayer.sublayer.turn_key.norm
"""
)

GGUF = (
    gemma2.GGUF
    + """
blk.*.attn_q_norm          plus1  layers.*.self_attn.q_norm
blk.*.attn_k_norm          plus1  layers.*.self_attn.k_norm
"""
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The window, the cap, and what the scores are divided by: llama.cpp knows the model of 27B by its 62 layers."""
    by_model = config["hidden_size"] // config["num_attention_heads"]
    return {
        "sliding_window": fields.size("gemma3.attention.sliding_window"),
        "rope_local_base_freq": fields.positive("gemma3.rope.freq_base_swa", 10000.0),
        "final_logit_softcapping": fields.get("gemma3.final_logit_softcapping"),
        "query_pre_attn_scalar": by_model if config["num_hidden_layers"] == 62 else config["head_dim"],
    }


_TURNS = {
    FULL: {"rope_type": "linear", "rope_theta": 500.0, "factor": 8.0},
    SLIDING: {"rope_type": "default", "rope_theta": 50.0},
}
FAMILY = Family(
    "gemma3_text", "model", {"Gemma3TextModel": "body", "Gemma3ForCausalLM": "words"}, ours, theirs, NAMES,
    recipe=Gemma3Config,
    adds="as Gemma 2 without capped scores; norms of queries and keys, other rotary angles in layers with windows",
    small=llama.SMALL | {  # a width whose root is exact, since others round it to float32
        "hidden_size": 16, "num_attention_heads": 4, "sliding_window": 3, "query_pre_attn_scalar": 5,
        "final_logit_softcapping": 2.5, "layer_types": [SLIDING, FULL], "rope_parameters": _TURNS,
    },
    ignored="attn_logit_softcapping sliding_window_size",
    whole=Whole(
        "gemma3", "Gemma3ForConditionalGeneration",
        "*vision_tower.* *multi_modal_projector.*",
        {"vocab_size": 262208, "num_attention_heads": 8, "max_position_embeddings": 131072},
    ),
    in_gguf=InGguf(GGUF, in_gguf, "gemma3"),
)  # fmt: skip
