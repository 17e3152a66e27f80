"""gpt-oss: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.

A learned sink in each head, a window in layers 1, 3, 5, ..., experts in place of one feed-forward network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays.backend import Rng
from ..after.clamped_experts import ClampedExperts
from ..after.sink import Sink
from . import llama
from .decoder import within
from .family import WRITERS, Family, Found, InGguf, classes
from .fields import Fields
from .gguf import Changed, Packed
from .heads import TOKENS
from .layer_kinds import kinds
from .weight_files import Tensor


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

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        experts = self.n_experts, self.k, self.gate_alpha, self.gate_limit
        return {
            "mix": lambda i: Sink(self.n_heads) if i % 2 else within(self.window, Sink(self.n_heads)),
            "feed_forward": lambda i: ClampedExperts(self.d_model, self.d_ff, *experts, rng),
        }


FIELDS = """
attention_bias         flag      bias           true
sliding_window         size      window
num_local_experts      size      n_experts
num_experts_per_tok    size      k
swiglu_alpha           positive  gate_alpha
swiglu_limit           positive  gate_limit
"""


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    fields.only(layer_types=kinds(found["n_layers"], 2))
    return {}


def _unpacked(fields: Fields) -> Fields:
    """Refuse packed experts."""
    if (packed := fields.get("quantization_config")) is not None:
        kind = packed.get("quant_method") if isinstance(packed, dict) else packed
        raise ValueError(
            "what is missing here for this gpt-oss: experts whose numbers are packed (quantization_config, "
            f"{str(kind)[:40]})"
        )
    return fields


NAMES = f"""{llama.NAMES}
layers.*.self_attn.sinks                   =  stack.layers.*.self_attention.sublayer.mix.sink
layers.*.self_attn.sinks                   =  stack.layers.*.self_attention.sublayer.mix.inner.sink
layers.*.self_attn.sinks                   =  stack.layers.*.self_attention.sublayer.mix.inner.inner.sink
layers.*.mlp.router                        T  stack.layers.*.feed_forward.sublayer.router
layers.*.mlp.experts.gate_up_proj(,_bias)  =  stack.layers.*.feed_forward.sublayer.into(,_bias)
layers.*.mlp.experts.down_proj(,_bias)     =  stack.layers.*.feed_forward.sublayer.out(,_bias)
"""

# llama.cpp, convert_hf_to_gguf.py, GptOssModel: gates and inner maps of the experts, which alternate in a folder, are
# two tensors, and each expert's maps are stored (out, in).
GGUF = """
blk.*.post_attention_norm          =  layers.*.post_attention_layernorm
blk.*.attn_sinks.weight            =  layers.*.self_attn.sinks
blk.*.ffn_gate_exps.(weight,bias)  =  layers.*.mlp.experts.gate_proj(,_bias)
blk.*.ffn_up_exps.(weight,bias)    =  layers.*.mlp.experts.up_proj(,_bias)
blk.*.ffn_down_exps.weight         T  layers.*.mlp.experts.down_proj
blk.*.ffn_down_exps.bias           =  layers.*.mlp.experts.down_proj_bias
"""


_IN_GGUF = """
num_local_experts    size  expert_count
num_experts_per_tok  size  expert_used_count
sliding_window       size  attention.sliding_window
"""


def _in_gguf(fields: Fields, stored: Any, config: Found) -> Found:
    """That the ends of YaRN's ramp are not rounded stands in no file."""
    fields.only(**{"gpt-oss.expert_feed_forward_length": config["intermediate_size"]})
    angles = config.get("rope_scaling")
    return {"rope_scaling": angles | {"truncate": False} if angles else {"rope_type": "default"}}


def joined(found: dict[str, Tensor], config: Found) -> dict[str, Tensor]:
    """Gate and inner map of each expert alternate in one tensor."""

    def join(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return np.stack((gate, up), axis=2).reshape(len(gate), -1, *gate.shape[2:]).swapaxes(1, -1)

    for name in [name for name in found if ".experts.gate_proj" in name]:
        gate, up = found[name], found.get(other := name.replace("gate", "up"))
        if not isinstance(gate, Packed) or not isinstance(up, Packed) or gate.shape != up.shape or len(gate.shape) < 2:
            continue
        del found[name], found[other]
        n, width, *of_input = gate.shape
        whole, shape = name.replace("gate", "gate_up"), (n, *of_input, 2 * width)
        found[whole] = Changed(whole, gate.path, gate.dtype, shape, gate.start, (gate, up), join)
    return found


FAMILY = Family(
    "gpt_oss", "model", GptOssConfig, classes("GptOss", WRITERS | {"ForTokenClassification": TOKENS}), FIELDS, NAMES,
    as_today=_unpacked, base=llama.BASE,
    usual={  # of missing fields; null is refused
        "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "rope_theta": 150000.0, "rms_norm_eps": 1e-5,
        "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    },
    more_ours=_ours,
    adds="a sink in each head, a window in every second layer, experts; no packed experts",
    in_gguf=InGguf(GGUF, _IN_GGUF, "gpt-oss", _in_gguf, joined=joined),
    ignored="experts_per_token initial_context_length",
    small=llama.SMALL | {"sliding_window": 3, "num_local_experts": 3, "num_experts_per_tok": 2, "swiglu_limit": 1.5},
)  # fmt: skip
