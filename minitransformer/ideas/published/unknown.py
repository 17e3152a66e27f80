"""Families that cannot be opened, and what is missing here: a part of their mathematics, or a file of theirs alone.

A line is not read any more once a file here is the family's.
"""

from __future__ import annotations

from typing import Any

_SIDE_BY_SIDE = "attention and feed-forward network side by side"
_EXPERTS = "mixtures of experts in place of feed-forward networks"
_GEMMA_3 = "norms of queries and keys that multiply by 1 + γ, and another rotary base in the layers with windows"
_FILE = "a file in published/, though every part is here: {}"
_BETWEEN = _FILE.format("rotary positions that turn neighbouring numbers of a head")

UNKNOWN = {
    "bloom": "ALiBi with a norm after the embedding, and queries, keys and values of each head side by side",
    "cohere": f"{_SIDE_BY_SIDE}, LayerNorm without β, scaled logits",
    "deberta": "separate scores for content and position",
    "deberta-v2": "separate scores for content and position",
    "deepseek_v2": "latent attention with rotary positions, an expert that every token uses",
    "deepseek_v3": "latent attention with rotary positions, an expert that every token uses",
    "electra": "a head that finds replaced tokens; and a file in published/ for its body, a BERT with a projection",
    "ernie4_5": _BETWEEN,
    "falcon": _SIDE_BY_SIDE,
    "gemma": _FILE.format("it is Gemma 2 without the caps and without the norms after each sub-layer"),
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "glm": f"{_BETWEEN}, in a part of it",
    "gpt_neo": _FILE.format("scores that are not scaled, windows in every second layer"),
    "gpt_neox": _SIDE_BY_SIDE,
    "gptj": _SIDE_BY_SIDE,
    "helium": _BETWEEN,
    "granite": "factors that scale token vectors, scores, residual connections and logits",
    "mamba": "a state space in place of attention",
    "mamba2": "a state space in place of attention",
    "mixtral": _FILE.format(_EXPERTS),
    "modernbert": "rotary positions and gated feed-forward networks in an encoder, windows in some layers",
    "mpt": "ALiBi without any biases, those of LayerNorm included",
    "olmo": "LayerNorm without γ and β",
    "olmoe": "experts whose gates do not sum to one",
    "opt": "a language model's learned positions that begin at row 2 of their table",
    "phi": _SIDE_BY_SIDE,
    "qwen2_moe": "an expert that every token uses, beside those that a router chooses",
    "qwen3_moe": _FILE.format(f"{_EXPERTS}, RMSNorm of the queries and keys of each head"),
    "rwkv": "a recurrence in place of attention",
    "smollm3": "layers without positions",
    "stablelm": _FILE.format("rotary positions in a part of each head, LayerNorm"),
    "umt5": "a relative position bias in every layer",
    "xlnet": "tokens predicted in a permuted order, by two streams of attention",
}


def missing(family: Any) -> str:
    """What is missing for a family, as far as that is known. Another name would be a guess, so none is advised."""
    if isinstance(family, str) and family in UNKNOWN:
        return f"what is missing here: {UNKNOWN[family]}"
    return "nothing is known here about this family; CONTRIBUTING.md says how to add one"
