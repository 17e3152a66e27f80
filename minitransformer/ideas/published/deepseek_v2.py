"""DeepSeek-V2: DeepSeek-AI 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts ...", section 2.

Keys and values come from a latent vector, which is all that a cache keeps, beside a rotated key that the heads share.
After the first layers experts take the place of the feed-forward network: some that every token uses, and others of
which each token uses the best k, all or those of the best groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module, RMSNorm, ScaledDotProduct
from ...core.models.language_model import LanguageModelParts
from ..after.experts import MixtureOfExperts
from ..after.gated import GatedFeedForward
from ..after.latent_attention import LatentAttention
from ..after.rotary import RotaryPositions
from ..after.routing import SharedExperts, SoftmaxRouting
from ..after.scaled_angles import ScaledRotary
from ..after.scaled_angles.angles import sharper
from . import deepseek, llama
from .decoder import DecoderSizes, decoder_of
from .family import WRITERS, Family, Found, classes
from .fields import Fields


@dataclass(frozen=True)
class DeepseekV2Config(DecoderSizes):
    """Sizes of a DeepSeek-V2.

    d_head, d_rotary, d_value, d_latent, d_query: see LatentAttention; d_query None: no narrow vector. d_ff: of the
    first n_dense layers; d_expert: of each of n_experts, of which each position uses k; n_shared: how many times
    d_expert the shared one is wide. n_groups, groups: of experts, and how many of them may be chosen from.
    """

    d_head: int = 128
    d_rotary: int = 64
    d_value: int = 128
    d_latent: int = 512
    d_query: int | None = 1536
    d_expert: int = 1407
    n_experts: int = 64
    k: int = 6
    n_shared: int = 2
    n_groups: int = 1
    groups: int = 1
    n_dense: int = 0
    gate_factor: float = 1.0
    mlp_bias: bool = False
    sharpness: float = 0.0  # how much scores grow with the factor of the angles

    def route(self) -> SoftmaxRouting:
        """What chooses experts."""
        return SoftmaxRouting(self.k, self.n_groups, self.groups, self.gate_factor)

    def turn(self, interleaved: bool = True) -> Any:
        """What turns the rotated part of queries and keys."""
        if self.scaled_angles is None:
            return RotaryPositions(self.rotary_base, interleaved)
        return ScaledRotary(self.rotary_base, self.scaled_angles, interleaved=interleaved)

    def scale(self) -> float:
        """The factor of the scores. YaRN's is larger, since a longer text needs sharper weights."""
        factor = sharper((self.scaled_angles or {}).get("factor", 1.0), self.sharpness)
        return factor**2 / math.sqrt(self.d_head + self.d_rotary)

    def attention(self, i: int, rng: Rng) -> Module:
        """What mixes the positions in layer i, from 0 on."""
        widths = self.d_head, self.d_latent, self.d_rotary
        mix = ScaledDotProduct(self.scale(), self.attention_dropout)
        options: dict[str, Any] = {"d_value": self.d_value, "d_query": self.d_query, "bias": self.bias}
        return LatentAttention(self.d_model, self.n_heads, *widths, rng=rng, mix=mix, turn=self.turn(), **options)

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of DeepSeek-V2."""

        def network(width: int) -> GatedFeedForward:
            return GatedFeedForward(self.d_model, width, self.activation, self.mlp_bias, rng)

        def feed_forward(i: int) -> Module:
            if i < self.n_dense:
                return network(self.d_ff)
            sizes = self.d_model, self.d_expert, self.n_experts
            routed = MixtureOfExperts(*sizes, activation=self.activation, rng=rng, route=self.route())
            return SharedExperts(network(self.n_shared * self.d_expert), routed)

        return decoder_of(
            self,
            rng,
            norm=lambda: RMSNorm(self.d_model, self.norm_eps),
            attention=lambda i: self.attention(i, rng),
            feed_forward=feed_forward,
        )


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    grouped = fields.choice("topk_method", {"greedy": False, "group_limited_greedy": True}, "greedy")
    fields.asked |= {"n_group", "topk_group"}  # they change nothing where all groups take part
    return deepseek.in_groups(fields, found["n_experts"], found["k"], 1) if grouped else {}


def _theirs(config: DeepseekV2Config) -> Found:
    return {"topk_method": "greedy" if config.n_groups == 1 else "group_limited_greedy"}


SMALL = {
    name: value for name, value in llama.SMALL.items() if name not in ("num_key_value_heads", "head_dim")
} | {
    "q_lora_rank": 5, "kv_lora_rank": 6, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
    "n_routed_experts": 6, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 7,
    "num_attention_heads": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
FAMILY = Family(
    "deepseek_v2", "model", DeepseekV2Config, classes("DeepseekV2", WRITERS),
    "mlp_bias flag mlp_bias false", deepseek.NAMES,
    base=deepseek.BASE, usual={"q_lora_rank": 1536, "norm_topk_prob": False},
    only={"norm_topk_prob": False, "scoring_func": "softmax", "seq_aux": True},  # the first has no effect there
    more_ours=_ours, more_theirs=_theirs,
    adds="keys and values from a latent vector, shared experts beside those that are chosen",
    small=SMALL | {"topk_method": "group_limited_greedy"},
    ignored="aux_loss_alpha",
    in_gguf=deepseek.IN_GGUF,
)  # fmt: skip
