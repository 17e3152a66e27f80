"""What is called, in the words of papers: Multi-Head Attention for MultiHeadAttention._heads."""

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
    "later_sums": "LaterSum", "together": "points", "with_one": "append\u00a0ones", "near": "neighbours",
    "of_near": "sum\u00a0of\u00a0parts", "collected": "sum\u00a0of\u00a0parts", "chosen_experts": "top\u00a0k",
    "tril": "lower\u00a0triangle", "turns": "rotations",
    "attend": "TileAttention", "joined": "TiledAttention", "hidden": "Stack", "plain": "plain\u00a0speeds",
}  # fmt: skip
# Drawn as what is in them: a residual connection is a line, and a model of one stack is its parts.
GROUPS = ("Residual", "ScaledDotProduct", "LanguageModel", "LanguageModel.hidden")
# What the layers of an encoder are called in a model that has none.
_BLOCKS = {"Encoder": "Transformer Blocks", "EncoderLayer": "Transformer Block"}


def in_words(name: str, without_encoder: bool = False) -> str:
    """The name of a call in words; for a class's helper, the name of the class. No other text is changed.

    without_encoder: whether the call is one of a model without an encoder, such as GPT.
    """
    if not re.fullmatch(r"[\w.]+( in backward)?", name):
        return name
    whole = name.partition(" in backward")[0]
    owner, _, own = whole.rpartition(".")
    plain = own if not own.startswith("_") or not owner else owner.rpartition(".")[2]
    if plain == own and owner and owner not in _PAPERS:  # LanguageModel.loss
        plain = f"{in_words(owner, without_encoder)} {own}"
    if without_encoder and plain in _BLOCKS:
        return _BLOCKS[plain]
    if plain in _PAPERS:
        return _PAPERS[plain]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain.strip("_").replace("_", " "))
    return words[:1].upper() + words[1:]


def as_function(name: str, without_encoder: bool = False) -> str:
    """The name of a call in a formula: MultiHead, Concat, split heads. without_encoder: as of `in_words`."""
    plain = name.removesuffix(" in backward").rpartition(".")[2].strip("_")
    if without_encoder and plain in _BLOCKS:
        return _BLOCKS[plain].replace(" ", "")
    if plain.endswith("_attention"):  # LinearAttention
        return _FUNCTIONS.get(plain, "".join(word.capitalize() for word in plain.split("_")))
    return _FUNCTIONS.get(plain, plain.replace("_", "\u00a0"))


def is_named(name: str) -> bool:
    """Whether papers have a name for what is called."""
    return name.rpartition(".")[2] in _PAPERS
