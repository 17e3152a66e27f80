"""Families that cannot be opened, and what is missing here: a part of their mathematics, or a file of theirs alone.

A line is not read any more once a file here is the family's.
"""

from __future__ import annotations

from typing import Any

_FILE = "a file in published/, though every part is here: {}"
_BETWEEN = _FILE.format("rotary positions that turn neighbouring numbers of a head")

UNKNOWN = {
    "cohere": f"{_BETWEEN}, scaled logits, LayerNorm without β",
    "deberta": "separate scores for content and position",
    "deberta-v2": "separate scores for content and position",
    "ernie4_5": _BETWEEN,
    "falcon": _FILE.format("attention and feed-forward network side by side, shared key heads in one matrix"),
    "gemma3": "images before the text; a Gemma 3 of text alone opens",
    "gemma3n": "embeddings of tokens for each layer, and layers that share keys and values",
    "glm": f"{_BETWEEN}, in a part of it",
    "gpt_neo": _FILE.format("scores that are not scaled, windows in every second layer"),
    "gptj": _BETWEEN,
    "helium": _BETWEEN,
    "mamba": "a state space in place of attention",
    "mamba2": "a state space in place of attention",
    "mpt": _FILE.format("ALiBi without any biases, those of LayerNorm included"),
    "olmo": "LayerNorm without γ and β",
    "qwen2_moe": "a gate for the expert that every token uses",
    "rwkv": "a recurrence in place of attention",
    "stablelm": _FILE.format("a Llama with LayerNorm and rotary positions in a part of each head"),
    "umt5": "a relative position bias in every layer",
    "xlnet": "tokens predicted in a permuted order, by two streams of attention",
}


def missing(family: Any) -> str:
    """What is missing for a family, as far as that is known. Another name would be a guess, so none is advised."""
    if isinstance(family, str) and family in UNKNOWN:
        return f"what is missing here: {UNKNOWN[family]}"
    return "nothing is known here about this family; CONTRIBUTING.md says how to add one"
