"""Kimi Linear: Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture", section 4.

Three of four layers keep a memory by Kimi Delta Attention, where each channel fades at its own rate. The fourth attends
as in DeepSeek-V3, from latent vectors, but without positions: the memories tell the order. The experts are DeepSeek's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module
from ..after.channel_delta import KimiDeltaAttention
from ..after.latent_attention import Unturned
from . import deepseek, deepseek_v3, llama
from .family import WRITERS_ALONE, Family, Found, InGguf, Stored, classes
from .fields import Fields
from .layer_kinds import full_layers, kinds_in_gguf, two_kinds
from .names import in_gguf, lines


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

    def attention(self, i: int, rng: Rng) -> Module:
        """What mixes the positions in layer i, from 0 on."""
        if i in (self.full or ()):
            return super().attention(i, rng)
        sizes = self.n_memories, self.d_memory, self.kernel, self.norm_eps, self.activation
        return KimiDeltaAttention(self.d_model, *sizes, rng=rng)


FIELDS = f"""{llama.LLAMA}
model_max_length        size      max_length   2048
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
q_lora_rank             size_or_none  d_query
"""
_OTHER = "linear_attention"
_IN_ONE = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
_IN_ONE["short_conv_kernel_size"] = "linear_conv_kernel_dim"


def as_today(fields: Fields) -> Fields:
    """The published config.json has the sizes of memories, and the layers that attend, in linear_attn_config."""
    memories: Found = fields.get("linear_attn_config") or {}
    inside = {name: memories[given] for given, name in _IN_ONE.items() if given in memories}
    counted, n = memories.get("full_attn_layers"), fields.size("num_hidden_layers")
    full = range(4, n, 4) if counted is None else [i - 1 for i in counted]
    given = fields.get("layer_types")
    return fields.instead(**inside, layer_types=two_kinds(n, _OTHER, full) if given is None else given)


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    fields.only(num_key_value_heads=found["n_heads"])
    n, dense = found["n_layers"], fields.count("first_k_dense_replace", 1)
    kinds = fields.get("mlp_layer_types") or ["dense"] * min(dense, n) + ["sparse"] * (n - dense)
    if kinds != ["dense"] * (n_dense := kinds.count("dense")) + ["sparse"] * (n - n_dense):
        raise ValueError(f"mlp_layer_types must be 'dense' in the first layers and 'sparse' in the rest, {n} in all")
    groups = fields.otherwise(n_group=fields.get("num_expert_group"))
    return {
        **deepseek.in_groups(groups, found["n_experts"], found["k"], 2), "n_dense": n_dense,
        "full": full_layers(fields, n, _OTHER, ()),
    }  # fmt: skip


def _theirs(config: KimiLinearConfig) -> Found:
    return {
        "num_key_value_heads": config.n_heads, "tie_word_embeddings": False,
        "layer_types": two_kinds(config.n_layers, _OTHER, config.full or ()),
        "mlp_layer_types": ["dense"] * config.n_dense + ["sparse"] * (config.n_layers - config.n_dense),
        "num_expert_group": config.n_groups, "topk_group": config.groups,
    }  # fmt: skip


MEMORIES = """
layers.*.self_attn.(q,k,v)_conv1d.weight taps stack.layers.*.self_attention.sublayer.convolution.(query,key,value)
layers.*.self_attn.b_proj                      T      stack.layers.*.self_attention.sublayer.rate
layers.*.self_attn.f_(a,b)_proj                T      stack.layers.*.self_attention.sublayer.step.(down,up)
layers.*.self_attn.A_log                       1x1    stack.layers.*.self_attention.sublayer.log_rate
layers.*.self_attn.dt_bias                     =      stack.layers.*.self_attention.sublayer.shift
layers.*.self_attn.g_(a,b)_proj                T      stack.layers.*.self_attention.sublayer.gate.(down,up)
layers.*.self_attn.conv1d.weight               |taps  stack.layers.*.self_attention.sublayer.convolution.query|key|value
layers.*.self_attn.forget_gate.f_(a,b)_proj    |T     stack.layers.*.self_attention.sublayer.step.(down,up)
layers.*.self_attn.forget_gate.A_log           |1x1   stack.layers.*.self_attention.sublayer.log_rate
layers.*.self_attn.forget_gate.dt_bias         |=     stack.layers.*.self_attention.sublayer.shift
layers.*.block_sparse_moe.(gate,up,down)_proj  |T     stack.layers.*.feed_forward.sublayer.(gate,inner,output)
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
GGUF = in_gguf(deepseek.NAMES, f"""{deepseek.GGUF}
blk.*.attn_(k,v)          =        layers.*.self_attn.(k,v)_proj
blk.*.ssm_conv1d_(q,k,v)  taps     layers.*.self_attn.(q,k,v)_conv1d
blk.*.ssm_(beta,f_a,f_b)  =        layers.*.self_attn.(b,f_a,f_b)_proj
blk.*.ssm_a               log+1x1  layers.*.self_attn.A_log
blk.*.ssm_dt.bias         =        layers.*.self_attn.dt_bias
blk.*.ssm_(g_a,g_b,norm)  =        layers.*.self_attn.(g_a_proj,g_b_proj,o_norm)
""")  # fmt: skip
IN_GGUF = f"""{deepseek.LATENT_IN_GGUF}
num_experts             size  expert_count
num_experts_per_token   size  expert_used_count
num_shared_experts      size  expert_shared_count
num_expert_group        size  expert_group_count   1
linear_head_dim         size  kda.head_dim
linear_conv_kernel_dim  size  ssm.conv_kernel
"""


def _in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """The widths of heads, and the memories. llama.cpp lets the gates of the chosen experts sum to one."""
    kind = "kimi-linear"
    fields.only(**{f"{kind}.expert_gating_func": deepseek.SIGMOID, f"{kind}.expert_weights_norm": True})
    rate = next((x.shape for name, x in stored.items() if name.endswith(".ssm_beta.weight")), (1,))
    return {
        **deepseek.widths_in_gguf(fields, kind), "num_key_value_heads": config["num_attention_heads"],
        "layer_types": kinds_in_gguf(fields, kind, config["num_hidden_layers"], _OTHER), "linear_num_heads": rate[0],
    }  # fmt: skip


FAMILY = Family(
    "kimi_linear", "model", KimiLinearConfig, classes("KimiLinear", WRITERS_ALONE), FIELDS, names,
    only={
        "mla_use_nope": True, "moe_router_activation_func": "sigmoid", "moe_layer_freq": 1,
        "tie_word_embeddings": False, "num_nextn_predict_layers": 0, "pretraining_tp": 1,
    },
    as_today=as_today,
    usual={"rms_norm_eps": 1e-5, "model_max_length": 1 << 20, "num_expert_group": 1, "topk_group": 1},
    more_ours=_ours, more_theirs=_theirs,
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
    in_gguf=InGguf(GGUF, IN_GGUF, "kimi-linear", _in_gguf, joined=deepseek.joined),
    ignored="head_dim qk_head_dim rope_* use_grouped_topk first_k_dense_replace",
)  # fmt: skip
