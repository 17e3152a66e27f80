"""Models with each kind of tokenizer, and the texts that their copies for Hugging Face must read alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from minitransformer.models import LanguageModel, LanguageModelConfig, Transformer, TransformerConfig
from minitransformer.published.llama import LlamaConfig
from minitransformer.text import END, PAD, START, BytePairTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer

KINDS = ("characters", "words", "bpe")
# White space of many kinds, special tokens as text, the marks of spaces of other tokenizers, characters of many bytes.
LEARNED = [
    "Zwei junge Männer, die im\u00a0Garten  stehen.\n",
    "two young men stand in the garden, near 12 bushes.\r\n\t\x1f\u3000 x",
    "two men<pad> and <end>s, [UNK] 🙂 e\u0301 ▁ Ġ \x00",
]
TEXTS = [*LEARNED, *(each.strip() for each in LEARNED), "two men", "two\x1fmen", " two  men ", "two\n\nmen\n", "  ", ""]
# What only some can read: unknown characters and words, and special tokens as whole words.
PERHAPS = ["two Ω men", "womn", "two <start> men", "<end>", "<unknown> <special>", "men <pad> <end>s", "none of these"]

LLAMA = {"kind": LlamaConfig, "tie_output": True}


def made(kind: str) -> Tokenizer:
    if kind == "bpe":
        return BytePairTokenizer.train(LEARNED, 120)
    return (WordTokenizer if kind == "words" else CharacterTokenizer).train(LEARNED)


def writer(tokenizer: Tokenizer, kind: Any = LanguageModelConfig, **changes: Any) -> LanguageModel:
    """A small language model whose most probable tokens differ from place to place."""
    sizes = {"max_length": 64, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2} | changes
    model = LanguageModel(kind(len(tokenizer), **sizes), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _, parameter in model.parameters():
        parameter.value += rng.normal(0.0, 0.3, parameter.value.shape).astype(np.float32)
    return model


def translator(source: Tokenizer, target: Tokenizer, **changes: Any) -> Transformer:
    """A small translator as the paper has it, in float64: sines and cosines in turns, one table where both are one."""
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 2, "n_decoder_layers": 2}
    sizes |= {"share_embeddings": source is target} | changes
    model = Transformer(TransformerConfig(len(source), len(target), **sizes), np.random.default_rng(0))
    rng = np.random.default_rng(2)
    for _, parameter in model.parameters():
        parameter.value = parameter.value + rng.normal(0.0, 0.4, parameter.value.shape)
    return model.to(dtype="float64")


def with_special(ids: list[int]) -> list[int]:
    """Ids as a decoder meets them: begun, filled up, and ended."""
    return [START, *ids, PAD, END]


def outcome(function: Any, *arguments: Any) -> Any:
    """What a function returns, or that it raises an error."""
    try:
        return function(*arguments)
    except Exception:  # of any kind: the library's are plain
        return "an error"
