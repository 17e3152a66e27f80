"""Kimi Linear: Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture", section 4.

Three of four layers keep a memory by Kimi Delta Attention, where each channel fades at its own rate. The fourth attends
as in DeepSeek-V3, from latent vectors, but without positions: the memories tell the order. The experts are DeepSeek's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.layers import Module
from ..after.channel_delta import KimiDeltaAttention
from ..after.latent_attention import Unturned
from . import deepseek, deepseek_gguf, deepseek_v3, llama
from .family import BODY, WORDS, Family, InGguf, Stored
from .fields import Fields, written
from .layer_kinds import full_layers, two_kinds
from .names import lines


@dataclass(frozen=True)
class KimiLinearConfig(deepseek_v3.DeepseekV3Config):
    """Sizes of a Kimi Linear: those of a DeepSeek-V3. full: the layers that attend, from 0 on; by default every fourth.

    n_memories: memories of a layer; d_memory: width of their keys and values; kernel: of the convolution.
    """

    full: tuple[int, ...] | None = None
    n_memories: int = 32
    d_memory: int = 128
    kernel: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "full", tuple(range(4, self.n_layers, 4)) if self.full is None else self.full)

    def turn(self, interleaved: bool | None = None) -> Any:
        """Nothing turns."""
        return Unturned()

    def attention(self, i: int, rng: np.random.Generator) -> Module:
        """What mixes the positions in layer i, from 0 on."""
        if i in (self.full or ()):
            return super().attention(i, rng)
        sizes = self.n_memories, self.d_memory, self.kernel, self.norm_eps, self.activation
        return KimiDeltaAttention(self.d_model, *sizes, rng=rng)


_SIZES = deepseek.SIZES.replace("max_position_embeddings", "model_max_length")
FIELDS = """
qk_nope_head_dim        size      d_head       128
qk_rope_head_dim        size      d_rotary     64
v_head_dim              size      d_value      128
kv_lora_rank            size      d_latent     512
moe_intermediate_size   size      d_expert     1024
num_experts             size      n_experts    256
num_experts_per_token   size      k            8
num_shared_experts      size      n_shared     1
moe_renormalize         flag      gates_sum    true
routed_scaling_factor   positive  gate_factor  2.446
attention_bias          flag      bias         false
linear_num_heads        size      n_memories   32
linear_head_dim         size      d_memory     128
linear_conv_kernel_dim  size      kernel       4
"""
_OTHER = "linear_attention"
_IN_ONE = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
_IN_ONE["short_conv_kernel_size"] = "linear_conv_kernel_dim"


def ours(fields: Fields, head: str, stored: Stored) -> KimiLinearConfig:
    """The config of Kimi Linear's config.json. The published one has the sizes of memories in linear_attn_config."""
    fields.only(mla_use_nope=True, moe_router_activation_func="sigmoid", moe_layer_freq=1, tie_word_embeddings=False)
    fields.only(num_nextn_predict_layers=0, num_key_value_heads=fields.get("num_attention_heads"), pretraining_tp=1)
    memories: dict[str, Any] = fields.get("linear_attn_config") or {}
    inside = {name: memories[given] for given, name in _IN_ONE.items() if given in memories}
    fields = Fields({"rms_norm_eps": 1e-5, "model_max_length": 1 << 20, **fields.document, **inside}, fields.asked)
    found = {**fields.read(_SIZES, head), **fields.read(FIELDS)}
    n, counted = found["n_layers"], memories.get("full_attn_layers")
    full = full_layers(fields, n, _OTHER, range(4, n, 4) if counted is None else [i - 1 for i in counted])
    dense = fields.count("first_k_dense_replace", 1)
    kinds = fields.get("mlp_layer_types") or ["dense"] * min(dense, n) + ["sparse"] * (n - dense)
    if kinds != ["dense"] * (n_dense := kinds.count("dense")) + ["sparse"] * (n - n_dense):
        raise ValueError(f"mlp_layer_types must be 'dense' in the first layers and 'sparse' in the rest, {n} in all")
    groups = fields.otherwise(num_expert_group=1, topk_group=1)
    found |= deepseek.in_groups(
        groups.otherwise(n_group=groups.get("num_expert_group")), found["n_experts"], found["k"], 2
    )
    return KimiLinearConfig(**found, full=full, n_dense=n_dense, d_query=fields.size_or_none("q_lora_rank"))


def theirs(config: KimiLinearConfig) -> dict[str, Any]:
    """Kimi Linear's config.json."""
    return {
        **written(config, _SIZES), **written(config, FIELDS),
        "q_lora_rank": config.d_query, "num_key_value_heads": config.n_heads,
        "layer_types": two_kinds(config.n_layers, _OTHER, config.full or ()), "tie_word_embeddings": False,
        "mlp_layer_types": ["dense"] * config.n_dense + ["sparse"] * (config.n_layers - config.n_dense),
        "num_expert_group": config.n_groups, "topk_group": config.groups,
    }  # fmt: skip


MEMORIES = """
layers.*.self_attn.q_conv1d.weight   taps  stack.layers.*.self_attention.sublayer.convolution.query
layers.*.self_attn.k_conv1d.weight   taps  stack.layers.*.self_attention.sublayer.convolution.key
layers.*.self_attn.v_conv1d.weight   taps  stack.layers.*.self_attention.sublayer.convolution.value
layers.*.self_attn.b_proj            T     stack.layers.*.self_attention.sublayer.rate
layers.*.self_attn.f_a_proj          T     stack.layers.*.self_attention.sublayer.step.down
layers.*.self_attn.f_b_proj          T     stack.layers.*.self_attention.sublayer.step.up
layers.*.self_attn.A_log             1x1   stack.layers.*.self_attention.sublayer.log_rate
layers.*.self_attn.dt_bias           =     stack.layers.*.self_attention.sublayer.shift
layers.*.self_attn.g_a_proj          T     stack.layers.*.self_attention.sublayer.gate.down
layers.*.self_attn.g_b_proj          T     stack.layers.*.self_attention.sublayer.gate.up
layers.*.self_attn.conv1d.weight     |taps stack.layers.*.self_attention.sublayer.convolution.query|key|value
layers.*.self_attn.forget_gate.f_a_proj    |T    stack.layers.*.self_attention.sublayer.step.down
layers.*.self_attn.forget_gate.f_b_proj    |T    stack.layers.*.self_attention.sublayer.step.up
layers.*.self_attn.forget_gate.A_log       |1x1  stack.layers.*.self_attention.sublayer.log_rate
layers.*.self_attn.forget_gate.dt_bias     |=    stack.layers.*.self_attention.sublayer.shift
layers.*.block_sparse_moe.gate_proj        |T    stack.layers.*.feed_forward.sublayer.gate
layers.*.block_sparse_moe.up_proj          |T    stack.layers.*.feed_forward.sublayer.inner
layers.*.block_sparse_moe.down_proj        |T    stack.layers.*.feed_forward.sublayer.output
"""


def _experts() -> str:
    """DeepSeek's lines of the experts in two spellings: as published, and as in the library's models."""
    found = ""
    for theirs, mark, ours in lines(deepseek.EXPERTS):
        found += f"{theirs} |{mark.strip('|')} {ours}\n"
        if mark[0] != "|":
            theirs = theirs.replace(".mlp.", ".block_sparse_moe.")
            for number, part in (("1", "gate_proj"), ("2", "down_proj"), ("3", "up_proj")):
                theirs = theirs.replace(f"experts.*.{part}", f"experts.*.w{number}")
            found += f"{theirs} {mark} {ours}\n"
    return found


def names(config: KimiLinearConfig) -> str:
    """The table of names. The norm inside a sub-layer has another one in layers that do not attend."""
    norm = "layers.*.self_attn.o_norm = stack.layers.*.self_attention.sublayer.norm\n"
    norms = [norm.replace("*", str(i)) for i in range(config.n_layers) if i not in (config.full or ())]
    return llama.NAMES + deepseek.ATTENTION + MEMORIES + _experts() + "".join(norms)


# llama.cpp, convert_hf_to_gguf.py, KimiLinearModel.
GGUF = (
    deepseek_gguf.GGUF
    + """
blk.*.attn_k        =        layers.*.self_attn.k_proj
blk.*.attn_v        =        layers.*.self_attn.v_proj
blk.*.ssm_conv1d_q  taps     layers.*.self_attn.q_conv1d
blk.*.ssm_conv1d_k  taps     layers.*.self_attn.k_conv1d
blk.*.ssm_conv1d_v  taps     layers.*.self_attn.v_conv1d
blk.*.ssm_beta      =        layers.*.self_attn.b_proj
blk.*.ssm_f_a       =        layers.*.self_attn.f_a_proj
blk.*.ssm_f_b       =        layers.*.self_attn.f_b_proj
blk.*.ssm_a         log+1x1  layers.*.self_attn.A_log
blk.*.ssm_dt.bias   =        layers.*.self_attn.dt_bias
blk.*.ssm_g_a       =        layers.*.self_attn.g_a_proj
blk.*.ssm_g_b       =        layers.*.self_attn.g_b_proj
blk.*.ssm_norm      =        layers.*.self_attn.o_norm
"""
)
GGUF_FIELDS = """
hidden_size          =  hidden_size
num_attention_heads  =  num_attention_heads
intermediate_size    =  intermediate_size
num_hidden_layers    =  num_hidden_layers
model_max_length     =  max_position_embeddings
rms_norm_eps         =  rms_norm_eps
"""
_OF_DEEPSEEK = """
qk_rope_head_dim qk_nope_head_dim v_head_dim num_key_value_heads kv_lora_rank q_lora_rank moe_intermediate_size
topk_group routed_scaling_factor first_k_dense_replace
""".split()
_UNDER_OTHER_NAMES = {
    "num_experts": "n_routed_experts", "num_experts_per_token": "num_experts_per_tok", "num_expert_group": "n_group",
    "num_shared_experts": "n_shared_experts",
}  # fmt: skip


def in_gguf(fields: Fields, stored: Stored, config: Mapping[str, Any]) -> dict[str, Any]:
    """What DeepSeek-V3 has, and the memories. llama.cpp lets the gates of the chosen experts sum to one."""
    kind = "kimi-linear"
    fields.only(**{f"{kind}.expert_gating_func": deepseek_gguf.SIGMOID, f"{kind}.expert_weights_norm": True})
    found = deepseek_gguf.in_gguf(fields, stored, config, kind)
    rate = next((x.shape for name, x in stored.items() if name.endswith(".ssm_beta.weight")), (1,))
    heads = np.broadcast_to(fields.get(f"{kind}.attention.head_count_kv"), config["num_hidden_layers"])
    return {
        **{name: found[name] for name in _OF_DEEPSEEK},
        **{name: found[theirs] for name, theirs in _UNDER_OTHER_NAMES.items()},
        "layer_types": ["full_attention" if n else _OTHER for n in heads], "linear_num_heads": rate[0],
        "linear_head_dim": fields.size(f"{kind}.kda.head_dim"),
        "linear_conv_kernel_dim": fields.size(f"{kind}.ssm.conv_kernel"),
    }  # fmt: skip


FAMILY = Family(
    "kimi_linear", "model", {"KimiLinearModel": BODY, "KimiLinearForCausalLM": WORDS}, ours, theirs, names,
    recipe=KimiLinearConfig,
    adds="a memory whose channels fade apart in three of four layers; latent attention without positions; experts",
    small={
        "vocab_size": 13, "hidden_size": 12, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4,
        "intermediate_size": 8, "num_hidden_layers": 3, "model_max_length": 32, "bos_token_id": None,
        "eos_token_id": None, "pad_token_id": None, "q_lora_rank": 5, "kv_lora_rank": 6, "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 6, "v_head_dim": 5, "num_experts": 6, "num_expert_group": 2, "topk_group": 1,
        "num_experts_per_token": 2, "moe_intermediate_size": 7, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-2,
        "layer_types": [_OTHER, "full_attention", _OTHER], "mlp_layer_types": ["dense", "sparse", "sparse"],
        "linear_num_heads": 3, "linear_head_dim": 5, "linear_conv_kernel_dim": 3,
    },
    in_gguf=InGguf(GGUF, in_gguf, "kimi-linear", fields=GGUF_FIELDS, joined=deepseek_gguf.joined),
    ignored="head_dim qk_head_dim rope_* use_grouped_topk first_k_dense_replace",
)  # fmt: skip
