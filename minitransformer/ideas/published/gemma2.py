"""Gemma 2: Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2.

Capped scores and logits, norms before and after each sub-layer, a window in layers 1, 3, 5, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Residual, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.sandwich import Normed, OffsetRMSNorm
from ..after.softcap import CappedOutput, SoftCapped
from . import gemma, llama
from .decoder import decoder, within
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written
from .heads import TOKENS
from .layer_kinds import kinds


@dataclass(frozen=True)
class Gemma2Config(llama.LlamaConfig):
    """Sizes of a Gemma 2. bias: whether attention's four maps have one. query_scalar: scores are divided by its root.

    score_cap, logit_cap: None for no cap. window: the window of layers 1, 3, 5, ...
    """

    activation: str = "gelu_tanh"
    tie_output: bool = True
    window: int | None = 4096
    query_scalar: int = 256
    score_cap: float | None = 50.0
    logit_cap: float | None = 30.0

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values."""
        how = self.query_scalar**-0.5, self.attention_dropout
        capped = ScaledDotProduct(*how) if self.score_cap is None else SoftCapped(self.score_cap, *how)
        return capped if i % 2 else within(self.window, capped)

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Gemma 2."""
        return decoder(self, rng, **around(self))


def around(sizes: Any) -> dict[str, Any]:
    """What Gemma 2 and 3 have around attention and the feed-forward networks, for `decoder`."""

    def norm() -> OffsetRMSNorm:
        return OffsetRMSNorm(sizes.d_model, sizes.norm_eps)

    return {
        "norm": norm,
        "residual": lambda sublayer: Residual(Normed(sublayer, norm()), norm(), "pre", sizes.dropout),
        "scale": sizes.d_model**0.5,
        "output": lambda table: table if sizes.logit_cap is None else CappedOutput(table, sizes.logit_cap),
        "ff_bias": False,
    }


DEFAULTS = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True}
FIELDS = """
hidden_activation        activation  activation      "gelu_pytorch_tanh"
sliding_window           size        window
query_pre_attn_scalar    size        query_scalar    256
attention_bias           flag        bias            false
"""
_CAPS = {"attn_logit_softcapping": ("score_cap", 50.0), "final_logit_softcapping": ("logit_cap", 30.0)}


def ours(fields: Fields, head: str, stored: Stored) -> Gemma2Config:
    """The config of Gemma 2's config.json."""
    fields = fields.otherwise(**DEFAULTS)
    fields.only(use_bidirectional_attention=False)
    sizes = llama.sizes(fields, head)
    fields.only(layer_types=kinds(sizes["n_layers"], 2))
    own = fields.read(FIELDS)
    for their, (our, default) in _CAPS.items():  # null is no cap
        own[our] = fields.positive(their, default) if fields.get(their, default) is not None else None
    return Gemma2Config(**(sizes | own))


def theirs(config: Gemma2Config) -> dict[str, Any]:
    """Gemma 2's config.json."""
    sizes = llama.written_sizes(config)
    del sizes["hidden_act"]
    caps = {their: getattr(config, our) for their, (our, _) in _CAPS.items()}
    return {**sizes, **written(config, FIELDS), **caps}


NAMES = (
    llama.NAMES.replace("sublayer", "sublayer.sublayer")
    + """
layers.*.post_attention_layernorm      =  stack.layers.*.self_attention.sublayer.norm
layers.*.pre_feedforward_layernorm     =  stack.layers.*.feed_forward.norm
layers.*.post_feedforward_layernorm    =  stack.layers.*.feed_forward.sublayer.norm
/lm_head                               =  output.tokens
"""
)

GGUF = (
    gemma.GGUF
    + """
blk.*.post_attention_norm  plus1  layers.*.post_attention_layernorm
blk.*.ffn_norm             plus1  layers.*.pre_feedforward_layernorm
blk.*.post_ffw_norm        plus1  layers.*.post_feedforward_layernorm
"""
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The window, the caps, and what the scores are divided by: llama.cpp knows the model of 27B by its 46 layers."""
    by_model = config["hidden_size"] // config["num_attention_heads"]
    return {
        "sliding_window": fields.size("gemma2.attention.sliding_window", DEFAULTS["sliding_window"]),
        "attn_logit_softcapping": fields.positive("gemma2.attn_logit_softcapping", 50.0),
        "final_logit_softcapping": fields.positive("gemma2.final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": by_model if config["num_hidden_layers"] == 46 else config["head_dim"],
    }


FAMILY = Family(
    "gemma2", "model", classes("Gemma2", WRITERS | {"ForTokenClassification": TOKENS}), ours, theirs, NAMES,
    recipe=Gemma2Config,
    adds="softcapped scores and logits, norms before and after each sub-layer, a window in every second layer",
    small=llama.SMALL | {  # a width whose root is exact, since others round it to float32
        "hidden_size": 16, "num_attention_heads": 4, "sliding_window": 3, "query_pre_attn_scalar": 5,
        "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5,
    },
    ignored="sliding_window_size",
    in_gguf=InGguf(GGUF, in_gguf),
)  # fmt: skip
