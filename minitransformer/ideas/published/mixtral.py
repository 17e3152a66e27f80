"""Mixtral: Jiang et al. 2024, "Mixtral of Experts", section 2. A Mistral with experts.

Each token goes to k of the experts, which take the place of the feed-forward network; their gates are the softmax over
the k largest scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ..after.experts import MixtureOfExperts
from . import llama
from .family import WRITERS, Family, Found, InGguf, classes


@dataclass(frozen=True)
class MixtralConfig(llama.LlamaConfig):
    """Sizes of a Mixtral. k: how many of n_experts each position uses; d_ff: the width of each."""

    norm_eps: float = 1e-5
    rotary_base: float = 1e6
    n_experts: int = 8
    k: int = 2

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        experts = self.n_experts, self.k, self.activation
        return {"feed_forward": lambda i: MixtureOfExperts(self.d_model, self.d_ff, *experts, rng=rng)}


FIELDS = """
num_local_experts      size      n_experts   8
num_experts_per_tok    size      k           2
sliding_window         size_or_none  window
"""


NAMES = f"""{llama.NAMES}
layers.*.block_sparse_moe.gate                  T   stack.layers.*.feed_forward.sublayer.router
layers.*.block_sparse_moe.experts.*.(w1,w3,w2)  T   stack.layers.*.feed_forward.sublayer.experts.*.(gate,inner,output)
layers.*.mlp.gate                               |T  stack.layers.*.feed_forward.sublayer.router
layers.*.mlp.experts.gate_up_proj               |T  stack.layers.*.feed_forward.sublayer.experts.*.gate|inner
layers.*.mlp.experts.down_proj                  |T  stack.layers.*.feed_forward.sublayer.experts.*.output
"""
_IN_GGUF = """
num_local_experts    size  expert_count
num_experts_per_tok  size  expert_used_count
sliding_window       =     null
"""
FAMILY = Family(
    "mixtral", "model", MixtralConfig, classes("Mixtral", WRITERS), FIELDS, NAMES, base=llama.BASE,
    usual={"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8},
    adds="as Mistral; experts, of which each token uses the best k",
    small=llama.SMALL | {"sliding_window": 3, "num_local_experts": 3, "num_experts_per_tok": 2},
    ignored="router_jitter_noise",  # for training
    in_gguf=InGguf(
        llama.PAIRED, _IN_GGUF, "llama", when=lambda metadata, stored: bool(metadata.get("llama.expert_count"))
    ),
)  # fmt: skip
