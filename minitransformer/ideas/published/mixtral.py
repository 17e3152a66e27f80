"""Mixtral: Jiang et al. 2024, "Mixtral of Experts", section 2. A Mistral with experts.

Each token goes to k of the experts, which take the place of the feed-forward network; their gates are the softmax over
the k largest scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.models.language_model import LanguageModelParts
from ..after.experts import MixtureOfExperts
from . import llama
from .decoder import decoder
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields, written


@dataclass(frozen=True)
class MixtralConfig(llama.LlamaConfig):
    """Sizes of a Mixtral. k: how many of n_experts each position uses; d_ff: the width of each."""

    norm_eps: float = 1e-5
    rotary_base: float = 1e6
    n_experts: int = 8
    k: int = 2

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of Mixtral."""
        experts = self.n_experts, self.k, self.activation
        return decoder(self, rng, feed_forward=lambda i: MixtureOfExperts(self.d_model, self.d_ff, *experts, rng=rng))


FIELDS = """
num_local_experts      size      n_experts   8
num_experts_per_tok    size      k           2
"""


def ours(fields: Fields, head: str, stored: Stored) -> MixtralConfig:
    """The config of Mixtral's config.json. The noise of its router is for training."""
    fields = fields.otherwise(rms_norm_eps=1e-5, rope_theta=1e6, num_key_value_heads=8)
    window = fields.size_or_none("sliding_window")
    return MixtralConfig(**llama.sizes(fields, head), **fields.read(FIELDS), window=window)


def theirs(config: MixtralConfig) -> dict[str, Any]:
    """Mixtral's config.json."""
    return {**llama.mistral_theirs(config), **written(config, FIELDS)}


NAMES = (
    llama.NAMES
    + """
layers.*.block_sparse_moe.gate         T  stack.layers.*.feed_forward.sublayer.router
layers.*.block_sparse_moe.experts.*.w1 T  stack.layers.*.feed_forward.sublayer.experts.*.gate
layers.*.block_sparse_moe.experts.*.w3 T  stack.layers.*.feed_forward.sublayer.experts.*.inner
layers.*.block_sparse_moe.experts.*.w2 T  stack.layers.*.feed_forward.sublayer.experts.*.output
layers.*.mlp.gate                     |T  stack.layers.*.feed_forward.sublayer.router
layers.*.mlp.experts.gate_up_proj     |T  stack.layers.*.feed_forward.sublayer.experts.*.gate|inner
layers.*.mlp.experts.down_proj        |T  stack.layers.*.feed_forward.sublayer.experts.*.output
"""
)

GGUF = (
    llama.PAIRED_GGUF
    + """
blk.*.ffn_gate_inp   =  layers.*.block_sparse_moe.gate
blk.*.ffn_gate_exps  =  layers.*.block_sparse_moe.experts.*.w1
blk.*.ffn_up_exps    =  layers.*.block_sparse_moe.experts.*.w3
blk.*.ffn_down_exps  =  layers.*.block_sparse_moe.experts.*.w2
"""
)


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """The experts. A file says nothing of a window."""
    found = {"num_local_experts": "llama.expert_count", "num_experts_per_tok": "llama.expert_used_count"}
    return {name: fields.size(theirs) for name, theirs in found.items()} | {"sliding_window": None}


FAMILY = Family(
    "mixtral", "model", classes("Mixtral", WRITERS), ours, theirs, NAMES,
    recipe=MixtralConfig,
    adds="as Mistral; experts, of which each token uses the best k",
    small=llama.SMALL | {"sliding_window": 3, "num_local_experts": 3, "num_experts_per_tok": 2},
    ignored="router_jitter_noise",
    in_gguf=InGguf(GGUF, in_gguf, "llama", when=lambda metadata, stored: bool(metadata.get("llama.expert_count"))),
)  # fmt: skip
