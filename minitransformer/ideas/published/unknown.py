"""Families that cannot be opened, and what is missing here: a part of their mathematics, or a file of theirs alone.

A line is not read any more once a file here is the family's. Of a family without a line, the fields of its config.json
may say something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FILE = "a file in published/, though every part is here: {}"
_BETWEEN = _FILE.format("rotary positions that turn neighbouring numbers of a head")
_BESIDE = "attention and feed-forward network side by side"
_STATES = "a state space in place of attention"
_SOME_STATES = "a state space in place of attention in most layers"
_DELTA = "layers of the gated delta rule with a short convolution, between layers of attention"
_IMAGES = "images, and positions of three coordinates: time, height and width"
_PER_LAYER = "embeddings of tokens for each layer, and layers that share keys and values"
_CHUNKS = "attention in chunks, queries scaled by their position, experts whose gates scale what they read"

UNKNOWN = {
    "bamba": _SOME_STATES,
    "codegen": f"{_BETWEEN}, {_BESIDE}",
    "cohere": f"{_BETWEEN}, {_BESIDE}, scaled logits, LayerNorm without β",
    "cohere2": f"{_BETWEEN}, {_BESIDE}, scaled logits, LayerNorm without β, windows in most layers",
    "dbrx": "limits on the numbers of queries, keys and values",
    "deberta": "separate scores for content and position",
    "deberta-v2": "separate scores for content and position",
    "ernie4_5": _BETWEEN,
    "exaone4": _FILE.format("norms after each sub-layer and of queries and keys, layers without positions"),
    "falcon": _FILE.format(f"{_BESIDE}, shared key heads in one matrix"),
    "falcon_mamba": _STATES,
    "fnet": "a Fourier transform in place of attention",
    "gemma3n": _PER_LAYER,
    "gemma3n_text": _PER_LAYER,
    "glm": f"{_BETWEEN}, in a part of it",
    "glm4": f"{_BETWEEN}, in a part of it, norms before and after each sub-layer",
    "gpt_bigcode": _FILE.format("a GPT-2 whose heads share keys and values"),
    "gpt_neo": _FILE.format("scores that are not scaled, windows in every second layer"),
    "gptj": _BETWEEN,
    "granitemoe": _FILE.format("factors as in Granite, experts in every layer"),
    "helium": _BETWEEN,
    "jamba": _SOME_STATES,
    "kimi_linear": "a decay for each entry of a key in the gated delta rule, between layers of latent attention",
    "llama4": f"images before the text, {_CHUNKS}",
    "llama4_text": _CHUNKS,
    "mamba": _STATES,
    "mamba2": "layers without a feed-forward network",
    "minimax": "linear attention that forgets, in most layers",
    "mpt": _FILE.format("ALiBi without any biases, those of LayerNorm included"),
    "nemotron": _FILE.format("a gain of LayerNorm that counts from 1, ReLU², rotary positions in a part of each head"),
    "olmo": "LayerNorm without γ and β",
    "olmo_hybrid": _FILE.format(_DELTA),
    "phimoe": "experts that are chosen one after the other, each from those whose scores are near the largest",
    "qwen2_5_vl": _IMAGES,
    "qwen2_moe": "a gate for the expert that every token uses",
    "qwen2_vl": _IMAGES,
    "recurrent_gemma": "a gated linear recurrence in place of attention in most layers",
    "rwkv": "a recurrence in place of attention",
    "stablelm": _FILE.format("a Llama with LayerNorm and rotary positions in a part of each head"),
    "starcoder2": _FILE.format("a Llama with LayerNorm, biases, and a feed-forward network without a gate"),
    "umt5": "a relative position bias in every layer",
    "xlnet": "tokens predicted in a permuted order, by two streams of attention",
    "zamba2": _SOME_STATES,
}
_SIGNS = {  # fields of config.json that say what a family has, whatever its name is
    "vision_config": "images beside the text",
    "audio_config": "sound beside the text",
    "hidden_size_per_layer_input": "embeddings of tokens for each layer",
    "linear_conv_kernel_dim": _DELTA,
    "mamba_d_state": _SOME_STATES,
    "ssm_state_size": _STATES,
    "state_size": _STATES,
    "attention_window": "windows beside tokens that see the whole text",
}


def missing(family: Any, document: Mapping[str, Any] | None = None) -> str:
    """What is missing for a family, as far as its name says it, or else the fields of its config.json.

    Another name would be a guess, so none is advised.
    """
    if isinstance(family, str) and family in UNKNOWN:
        return f"what is missing here: {UNKNOWN[family]}"
    signs = [f"{what} ({name})" for name, what in _SIGNS.items() if (document or {}).get(name)]
    if signs:
        return f"what is missing here, by its fields: {', '.join(signs)}"
    return "nothing is known here about this family; CONTRIBUTING.md says how to add one"
