"""gpt-oss: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.

A learned sink in each head, a window in layers 1, 3, 5, ..., experts in place of one feed-forward network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import RMSNorm
from ...core.models.language_model import LanguageModelParts
from ..after.clamped_experts import ClampedExperts
from ..after.sink import Sink
from . import llama
from .decoder import decoder, within
from .family import WRITERS, Family, Stored, classes
from .fields import Fields, every_second, written
from .heads import TOKENS


@dataclass(frozen=True)
class GptOssConfig(llama.LlamaConfig):
    """Sizes of a gpt-oss. bias: whether attention's four maps have one. k: how many of n_experts each position uses.

    window: the window of layers 1, 3, 5, ... There is no dropout of attention weights.
    """

    bias: bool = True
    window: int | None = 128
    norm_eps: float = 1e-5
    n_experts: int = 32
    k: int = 4
    gate_alpha: float = 1.702
    gate_limit: float = 7.0

    def parts(self, rng: np.random.Generator) -> LanguageModelParts:
        """The parts of gpt-oss."""
        experts = self.n_experts, self.k, self.gate_alpha, self.gate_limit
        return decoder(
            self,
            rng,
            norm=lambda: RMSNorm(self.d_model, self.norm_eps),
            mix=lambda i: Sink(self.n_heads) if i % 2 else within(self.window, Sink(self.n_heads)),
            turn=self.turn,
            feed_forward=lambda i: ClampedExperts(self.d_model, self.d_ff, *experts, rng),
        )


_DEFAULTS: dict[str, Any] = {  # for missing fields; null is refused
    "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "rope_theta": 150000.0, "rms_norm_eps": 1e-5,
    "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    "rope_parameters": {
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}  # fmt: skip
FIELDS = """
attention_bias         flag      bias           true
sliding_window         size      window
num_local_experts      size      n_experts
num_experts_per_tok    size      k
swiglu_alpha           positive  gate_alpha
swiglu_limit           positive  gate_limit
"""


def ours(fields: Fields, head: str, stored: Stored) -> GptOssConfig:
    """The config of gpt-oss's config.json. Packed experts are refused."""
    fields = fields.otherwise(**_DEFAULTS)
    packed = fields.get("quantization_config")
    if packed is not None:
        kind = packed.get("quant_method") if isinstance(packed, dict) else packed
        raise ValueError(
            "what is missing here for this gpt-oss: experts whose numbers are packed (quantization_config, "
            f"{str(kind)[:40]})"
        )
    sizes = llama.sizes(fields, head)
    every_second(fields, sizes["n_layers"])
    return GptOssConfig(**sizes, **fields.read(FIELDS))


def theirs(config: GptOssConfig) -> dict[str, Any]:
    """gpt-oss's config.json."""
    return {**llama.written_sizes(config), **written(config, FIELDS)}


NAMES = (
    llama.NAMES
    + """
layers.*.self_attn.sinks               =  stack.layers.*.self_attention.sublayer.mix.sink
layers.*.self_attn.sinks               =  stack.layers.*.self_attention.sublayer.mix.inner.sink
layers.*.self_attn.sinks               =  stack.layers.*.self_attention.sublayer.mix.inner.inner.sink
layers.*.mlp.router                    T  stack.layers.*.feed_forward.sublayer.router
layers.*.mlp.experts.gate_up_proj      =  stack.layers.*.feed_forward.sublayer.into
layers.*.mlp.experts.gate_up_proj_bias =  stack.layers.*.feed_forward.sublayer.into_bias
layers.*.mlp.experts.down_proj         =  stack.layers.*.feed_forward.sublayer.out
layers.*.mlp.experts.down_proj_bias    =  stack.layers.*.feed_forward.sublayer.out_bias
"""
)


FAMILY = Family(
    "gpt_oss", "model", classes("GptOss", WRITERS | {"ForTokenClassification": TOKENS}), ours, theirs, NAMES,
    recipe=GptOssConfig,
    adds="a sink in each head, a window in every second layer, experts; no packed experts",
    ignored="experts_per_token initial_context_length",
    small=llama.SMALL | {"sliding_window": 3, "num_local_experts": 3, "num_experts_per_tok": 2, "swiglu_limit": 1.5},
)  # fmt: skip
