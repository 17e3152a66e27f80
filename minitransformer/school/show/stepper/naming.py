"""What is called, in the words of papers: Multi-Head Attention for MultiHeadAttention._heads."""

from __future__ import annotations

import re

_PAPERS = {
    "MultiHeadAttention": "Multi-Head Attention", "attention": "Scaled Dot-Product Attention", "linear": "Linear",
    "FeedForward": "Feed Forward", "LayerNorm": "Layer Norm", "layer_norm": "Layer Norm", "softmax": "Softmax",
    "split_heads": "Split heads", "merge_heads": "Concat heads", "RMSNorm": "RMS Norm", "rms_norm": "RMS Norm",
    "relu": "ReLU", "gelu": "GELU", "Embedding": "Embedding", "embedding": "Embedding", "project": "Linear",
    "self_attention": "Self-attention", "cross_entropy": "Cross-entropy", "lstm_cell": "LSTM cell",
    "gru_cell": "GRU cell", "rnn_cell": "Recurrent cell", "logistic": "Sigmoid", "alibi": "ALiBi",
    "top_k_gates": "Top-k gates",
}  # fmt: skip
_FUNCTIONS = {
    "MultiHeadAttention": "MultiHead", "FeedForward": "FFN", "ScaledDotProduct": "Attention", "attention": "Attention",
    "merge_heads": "Concat", "layer_norm": "LayerNorm", "rms_norm": "RMSNorm", "lstm_cell": "LSTM", "gru_cell": "GRU",
    "rnn_cell": "RNN", "logistic": "sigmoid", "relu": "ReLU", "gelu": "GELU", "self_attention": "SelfAttention",
    "cross_entropy": "CrossEntropy", "scores_of": "S", "features": "φ", "causal_sums": "CausalSum",
    "together": "points", "with_one": "append ones",
}  # fmt: skip
GROUPS = ("Residual", "ScaledDotProduct")  # drawn as what is in them: a residual connection is a line


def in_words(name: str) -> str:
    """The name of a call in words; for a class's helper, the name of the class. No other text is changed."""
    if not re.fullmatch(r"[\w.]+( in backward)?", name):
        return name
    whole = name.partition(" in backward")[0]
    owner, _, own = whole.rpartition(".")
    plain = own if not own.startswith("_") or not owner else owner.rpartition(".")[2]
    if plain == own and owner and owner not in _PAPERS:  # LanguageModel.loss
        plain = f"{in_words(owner)} {own}"
    if plain in _PAPERS:
        return _PAPERS[plain]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain.strip("_").replace("_", " "))
    return words[:1].upper() + words[1:]


def as_function(name: str) -> str:
    """The name of a call in a formula: MultiHead, Concat, split heads."""
    plain = name.removesuffix(" in backward").rpartition(".")[2].strip("_")
    return _FUNCTIONS.get(plain, plain.replace("_", "\u00a0"))


def is_named(name: str) -> bool:
    """Whether papers have a name for what is called."""
    return name.rpartition(".")[2] in _PAPERS
