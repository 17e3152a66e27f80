"""Families that cannot be opened, and what is missing here: a part of their mathematics, or a file of theirs alone.

A line is not read any more once a file here is the family's.
"""

from __future__ import annotations

from typing import Any

_SIDE_BY_SIDE = "attention and feed-forward network side by side"
_FILE = "a file in published/, though every part is here: {}"
_BETWEEN = _FILE.format("rotary positions that turn neighbouring numbers of a head")

UNKNOWN = {
    "bloom": "ALiBi with a norm after the embedding, and queries, keys and values of each head side by side",
    "cohere": f"{_SIDE_BY_SIDE}, LayerNorm without β, scaled logits",
    "deberta": "separate scores for content and position",
    "deberta-v2": "separate scores for content and position",
    "electra": "a head that finds replaced tokens; and a file in published/ for its body, a BERT with a projection",
    "ernie4_5": _BETWEEN,
    "falcon": _SIDE_BY_SIDE,
    "gemma3": "images before the text; a Gemma 3 without images, whose model_type is gemma3_text, opens",
    "gemma3n": "embeddings of tokens for each layer, and layers that share keys and values",
    "glm": f"{_BETWEEN}, in a part of it",
    "gpt_neo": _FILE.format("scores that are not scaled, windows in every second layer"),
    "gpt_neox": _SIDE_BY_SIDE,
    "gptj": _SIDE_BY_SIDE,
    "helium": _BETWEEN,
    "granite": "factors that scale token vectors, scores, residual connections and logits",
    "mamba": "a state space in place of attention",
    "mamba2": "a state space in place of attention",
    "modernbert": "rotary positions and gated feed-forward networks in an encoder, windows in some layers",
    "mpt": "ALiBi without any biases, those of LayerNorm included",
    "olmo": "LayerNorm without γ and β",
    "opt": "a language model's learned positions that begin at row 2 of their table",
    "phi": _SIDE_BY_SIDE,
    "qwen2_moe": "a gate for the expert that every token uses",
    "rwkv": "a recurrence in place of attention",
    "stablelm": _FILE.format("rotary positions in a part of each head, LayerNorm"),
    "umt5": "a relative position bias in every layer",
    "xlnet": "tokens predicted in a permuted order, by two streams of attention",
}


def missing(family: Any) -> str:
    """What is missing for a family, as far as that is known. Another name would be a guess, so none is advised."""
    if isinstance(family, str) and family in UNKNOWN:
        return f"what is missing here: {UNKNOWN[family]}"
    return "nothing is known here about this family; CONTRIBUTING.md says how to add one"
