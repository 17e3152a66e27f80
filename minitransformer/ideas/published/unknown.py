"""Families that cannot be opened, unless a file here is theirs; and the part of their mathematics that is missing."""

from __future__ import annotations

_SIDE_BY_SIDE = "attention and feed-forward network side by side"
_PART = "rotary positions in only a part of each head"
_EXPERTS = "mixtures of experts in place of feed-forward networks"
_GEMMA_3 = "norms of queries and keys that multiply by 1 + γ, and another rotary base in the layers with windows"
_NAME = "only the name, because it is a {0}: write {0} into model_type, and {0}'s class into architectures"

UNKNOWN = {
    "bloom": "ALiBi with a norm after the embedding, and queries, keys and values of each head side by side",
    "camembert": _NAME.format("roberta"),
    "cohere": f"{_SIDE_BY_SIDE}, LayerNorm without β, scaled logits",
    "deberta": "separate scores for content and position",
    "deberta-v2": "separate scores for content and position",
    "deepseek_v2": f"latent attention in a whole model, {_EXPERTS}",
    "deepseek_v3": f"latent attention in a whole model, {_EXPERTS}",
    "electra": "a head that finds replaced tokens",
    "falcon": _SIDE_BY_SIDE,
    "gemma": "Gemma 2 without the caps and without the norms after each sub-layer",
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "gpt_neo": "scores that are not scaled, windows in every second layer",
    "gpt_neox": f"{_PART}, {_SIDE_BY_SIDE}",
    "gptj": f"{_PART}, {_SIDE_BY_SIDE}",
    "granite": "factors that scale token vectors, scores, residual connections and logits",
    "mamba": "a state space in place of attention",
    "mamba2": "a state space in place of attention",
    "mbart": "norms before the sub-layers together with a norm after the embedding",
    "mixtral": _EXPERTS,
    "modernbert": "rotary positions and gated feed-forward networks in an encoder, windows in some layers",
    "mpt": "ALiBi without any biases, those of LayerNorm included",
    "mt5": _NAME.format("t5"),
    "olmo": "LayerNorm without γ and β",
    "olmoe": f"{_EXPERTS}, norms of queries and keys",
    "opt": "a language model's learned positions that begin at row 2 of their table",
    "phi": f"{_PART}, {_SIDE_BY_SIDE}",
    "phi3": "queries, keys and values in one matrix, and rotary angles that are scaled",
    "qwen2_moe": _EXPERTS,
    "qwen3_moe": f"{_EXPERTS}, RMSNorm of the queries and keys of each head",
    "rwkv": "a recurrence in place of attention",
    "smollm3": "layers without positions",
    "stablelm": f"{_PART} together with LayerNorm",
    "umt5": "a relative position bias in every layer",
    "xlm-roberta": _NAME.format("roberta"),
    "xlnet": "tokens predicted in a permuted order, by two streams of attention",
}
