"""SmolLM3: Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner". A Llama with other positions.

Every fourth layer turns nothing (NoPE): Yang et al. 2025, "Rope to Nope and Back Again", section 4. There a score does
not depend on the distance, which helps with texts longer than those of the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.models.language_model import LanguageModelParts
from . import llama
from .decoder import decoder
from .family import WRITERS, Family, InGguf, Stored, classes
from .fields import Fields


@dataclass(frozen=True)
class SmolLM3Config(llama.LlamaConfig):
    """Sizes of a SmolLM3: those of a Llama. nope_every: every so many-th layer has no positions.

    bias: whether attention's four maps have one; ff_bias: whether the feed-forward networks' three have.
    """

    rotary_base: float = 2e6
    tie_output: bool = True
    nope_every: int = 4
    ff_bias: bool = False

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i: nothing in every nope_every-th."""
        return super().turn(i) if (i + 1) % self.nope_every else (None, None)

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of SmolLM3."""
        return decoder(self, rng, ff_bias=self.ff_bias)


def ours(fields: Fields, head: str, stored: Stored) -> SmolLM3Config:
    """The config of SmolLM3's config.json. Windows, which no published file has, are refused."""
    fields = fields.otherwise(rope_theta=2e6, num_key_value_heads=4, tie_word_embeddings=True)
    fields.only(use_sliding_window=False)
    sizes, every = llama.sizes(fields, head), fields.size("no_rope_layer_interval", 4)
    turned = fields.get("no_rope_layers")  # 1 where a layer does turn
    if turned is not None:
        every = turned.index(0) + 1 if isinstance(turned, list) and 0 in turned else max(4, sizes["n_layers"] + 1)
        if turned != [int((i + 1) % every > 0) for i in range(sizes["n_layers"])]:
            raise ValueError("no_rope_layers must have 0 for every n-th layer, and 1 for all others")
    llama.of_one_kind(fields, None)
    biases: dict[str, Any] = {"bias": fields.flag("attention_bias", False), "ff_bias": fields.flag("mlp_bias", False)}
    return SmolLM3Config(**sizes, **biases, nope_every=every)


def theirs(config: SmolLM3Config) -> dict[str, Any]:
    """SmolLM3's config.json."""
    turned = [int((i + 1) % config.nope_every > 0) for i in range(config.n_layers)]
    biases = {"attention_bias": config.bias, "mlp_bias": config.ff_bias}
    return {**llama.written_sizes(config), **biases, "no_rope_layers": turned}


FAMILY = Family(
    "smollm3", "model", classes("SmolLM3", WRITERS), ours, theirs, llama.NAMES,
    recipe=SmolLM3Config,
    adds="as Llama; every fourth layer without positions",
    small=llama.SMALL | {"no_rope_layers": [1, 0]},
    ignored="sliding_window max_window_layers no_rope_layer_interval",
    in_gguf=InGguf(llama.PAIRED_GGUF, llama.biases_in_gguf),
)  # fmt: skip
