"""SmolLM3: Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner". A Llama with other positions.

Every fourth layer turns nothing (NoPE): Yang et al. 2025, "Rope to Nope and Back Again", section 4. There a score does
not depend on the distance, which helps with texts longer than those of the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from . import llama
from .family import WRITERS, Family, Found, InGguf, classes
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

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return {"ff_bias": self.ff_bias}


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    """Windows, which no published file has, are refused."""
    every, n_layers = fields.size("no_rope_layer_interval", 4), found["n_layers"]
    given = fields.get("no_rope_layers")  # 1 where a layer does turn
    if given is not None:
        every = given.index(0) + 1 if isinstance(given, list) and 0 in given else max(4, n_layers + 1)
        if given != _turned(n_layers, every):
            raise ValueError("no_rope_layers must have 0 for every n-th layer, and 1 for all others")
    llama.of_one_kind(fields, {"window": None})
    return {"nope_every": every}


def _turned(n_layers: int, every: int) -> list[int]:
    return [int((i + 1) % every > 0) for i in range(n_layers)]


FIELDS = """
attention_bias  flag  bias     false
mlp_bias        flag  ff_bias  false
"""
FAMILY = Family(
    "smollm3", "model", SmolLM3Config, classes("SmolLM3", WRITERS), FIELDS, llama.NAMES, base=llama.BASE,
    usual={"rope_theta": 2e6, "num_key_value_heads": 4, "tie_word_embeddings": True},
    only={"use_sliding_window": False}, more_ours=_ours,
    more_theirs=lambda config: {"no_rope_layers": _turned(config.n_layers, config.nope_every)},
    adds="as Llama; every fourth layer without positions",
    small=llama.SMALL | {"no_rope_layers": [1, 0]},
    ignored="sliding_window max_window_layers no_rope_layer_interval",
    in_gguf=InGguf(llama.PAIRED, llama.BIASES_IN_GGUF),
)  # fmt: skip
