"""What is called, in the words of papers: Multi-Head Attention for MultiHeadAttention._heads."""

from __future__ import annotations

import re

_PAPERS = {
    "MultiHeadAttention": "Multi-Head Attention", "attention": "Scaled Dot-Product Attention", "linear": "Linear",
    "FeedForward": "Feed Forward", "LayerNorm": "Layer Norm", "layer_norm": "Layer Norm", "softmax": "Softmax",
    "split_heads": "Split heads", "merge_heads": "Concat heads", "RMSNorm": "RMS Norm", "rms_norm": "RMS Norm",
    "relu": "ReLU", "gelu": "GELU", "Embedding": "Embedding", "embedding": "Embedding",
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
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain.strip("_").replace("_", " "))
