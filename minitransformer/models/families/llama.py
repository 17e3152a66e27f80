"""Llama: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models"; and its kin.

Mistral (Jiang et al. 2023) looks back through a window, and Qwen2 (Yang et al. 2024) has biases of queries, keys and
values. All else is alike, names included.
"""

from __future__ import annotations

from typing import Any

from ..language_model import LanguageModelConfig
from .family import BODY, WORDS, Family, Stored
from .fields import ACTIVATIONS, Fields, renamed, their_activation

SIZES = {
    "vocabulary": "vocab_size",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
}


def _ours(fields: Fields, head: str, **particular: Any) -> LanguageModelConfig:
    sizes = fields.sizes(SIZES)
    return LanguageModelConfig(
        **sizes,
        max_length=fields.size("max_position_embeddings", 2048),
        dropout=0.0,
        **fields.rates({"attention_dropout": "attention_dropout"}),
        activation=fields.choice("hidden_act", ACTIVATIONS, "silu"),
        norm="rms_norm",
        norm_eps=fields.positive("rms_norm_eps", 1e-6),
        gated=True,
        n_key_heads=fields.size("num_key_value_heads", sizes["n_heads"]),
        d_head=fields.size("head_dim", max(1, sizes["d_model"] // sizes["n_heads"])),
        rotary_base=_rotary_base(fields),
        tie_output=fields.flag("tie_word_embeddings", False) or head == BODY,
        **particular,
    )


def _rotary_base(fields: Fields) -> float:
    """The base of the angles; it has been in three places."""
    base = fields.positive("rope_theta", 10000.0)
    for name in ("rope_parameters", "rope_scaling"):
        found = fields.document.get(name)
        if found is None:
            continue
        if not isinstance(found, dict):
            raise ValueError(f"{name} must be an object, got {type(found).__name__}")
        kind = found.get("rope_type", found.get("type", "default"))
        if kind != "default":
            raise ValueError(f"{name} of type {str(kind)[:40]!r} is not supported, only 'default' is")
        if "rope_theta" in found:
            base = Fields(found).positive("rope_theta")
    return base


def _theirs(config: LanguageModelConfig) -> dict[str, Any]:
    return {
        **renamed(config, SIZES),
        "max_position_embeddings": config.max_length,
        "attention_dropout": config.attention_dropout,
        "hidden_act": their_activation(config.activation),
        "rms_norm_eps": config.norm_eps,
        "num_key_value_heads": config.n_heads if config.n_key_heads is None else config.n_key_heads,
        "head_dim": config.d_model // config.n_heads if config.d_head is None else config.d_head,
        "rope_theta": config.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "tie_word_embeddings": config.tie_output,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def llama_ours(fields: Fields, head: str, stored: Stored) -> LanguageModelConfig:
    """The config of Llama's config.json."""
    fields.only(pretraining_tp=1)
    bias = fields.flag("attention_bias", False)
    if bias != fields.flag("mlp_bias", False):
        raise ValueError("attention_bias and mlp_bias must be equal: here all maps have biases or none has")
    return _ours(fields, head, bias=bias)


def llama_theirs(config: LanguageModelConfig) -> dict[str, Any]:
    """Llama's config.json."""
    return {**_theirs(config), "attention_bias": config.bias, "mlp_bias": config.bias}


def mistral_ours(fields: Fields, head: str, stored: Stored) -> LanguageModelConfig:
    """The config of Mistral's config.json."""
    return _ours(fields, head, bias=False, window=fields.size_or_none("sliding_window"))


def mistral_theirs(config: LanguageModelConfig) -> dict[str, Any]:
    """Mistral's config.json."""
    return {**_theirs(config), "sliding_window": config.window}


def qwen2_ours(fields: Fields, head: str, stored: Stored) -> LanguageModelConfig:
    """The config of Qwen2's config.json."""
    window = None
    if fields.flag("use_sliding_window", False):
        window = fields.size_or_none("sliding_window")
        if window is not None and fields.document.get("max_window_layers", 28) != 0:
            raise ValueError("max_window_layers must be 0 with use_sliding_window: here all layers have the window")
    kind = "full_attention" if window is None else "sliding_attention"
    if any(layer != kind for layer in fields.document.get("layer_types") or ()):
        raise ValueError(f"layer_types must all be {kind!r}")
    return _ours(fields, head, bias=False, qkv_bias=True, window=window)


def qwen2_theirs(config: LanguageModelConfig) -> dict[str, Any]:
    """Qwen2's config.json."""
    kind = "full_attention" if config.window is None else "sliding_attention"
    return {
        **_theirs(config),
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": config.n_layers if config.window is None else 0,
        "layer_types": [kind] * config.n_layers,
    }


NAMES = """
embed_tokens                           =  tokens
layers.*.input_layernorm               =  stack.layers.*.self_attention.norm
layers.*.self_attn.q_proj              T  stack.layers.*.self_attention.sublayer.query
layers.*.self_attn.k_proj              T  stack.layers.*.self_attention.sublayer.key
layers.*.self_attn.v_proj              T  stack.layers.*.self_attention.sublayer.value
layers.*.self_attn.o_proj              T  stack.layers.*.self_attention.sublayer.output
layers.*.post_attention_layernorm      =  stack.layers.*.feed_forward.norm
layers.*.mlp.gate_proj                 T  stack.layers.*.feed_forward.sublayer.gate
layers.*.mlp.up_proj                   T  stack.layers.*.feed_forward.sublayer.inner
layers.*.mlp.down_proj                 T  stack.layers.*.feed_forward.sublayer.output
norm                                   =  stack.final_norm
layers.*.self_attn.rotary_emb.inv_freq -
"""
WORDS_NAMES = """
lm_head                                =  output
lm_head                                ~  tokens
"""


def names(config: LanguageModelConfig, head: str) -> tuple[str, str]:
    """The tables of the body and of the head."""
    return NAMES, {WORDS: WORDS_NAMES}.get(head, "")


def _family(model_type: str, stem: str, ours: Any, theirs: Any) -> Family:
    architectures = {f"{stem}Model": BODY, f"{stem}ForCausalLM": WORDS}
    return Family(model_type, "model", architectures, ours, theirs, names)


LLAMA = _family("llama", "Llama", llama_ours, llama_theirs)
MISTRAL = _family("mistral", "Mistral", mistral_ours, mistral_theirs)
QWEN2 = _family("qwen2", "Qwen2", qwen2_ours, qwen2_theirs)
