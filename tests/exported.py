"""Models with each kind of tokenizer, and the texts that their copies for Hugging Face must read alike."""

import dataclasses
import functools
from typing import Any

import numpy as np

from minitransformer.ideas.published.bart import BartConfig
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.family import CLASSES, Family
from minitransformer.ideas.published.heads import HeadConfig
from minitransformer.ideas.published.modernbert import ModernBertConfig
from minitransformer.ideas.published.t5 import T5Config
from minitransformer.models import (
    LanguageModel,
    LanguageModelConfig,
    MaskedLanguageModel,
    TextClassifierConfig,
    TextEncoderConfig,
    Transformer,
    TransformerConfig,
)
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

_BART = {"kind": BartConfig, "n_positions": 64, "position_offset": 2, "embedding_norm": True}
_T5 = {"kind": T5Config, "d_head": 8, "buckets": 8, "max_distance": 12}


def resized(name: str, vocabulary: int, **sizes: Any) -> Any:
    """The config of a family's small model, in other sizes."""
    config = FAMILIES[name].example()[0]
    window = {} if getattr(config, "window", None) is None else {"window": 9}
    known = {field.name for field in dataclasses.fields(config)}
    sizes = {name: value for name, value in sizes.items() if name in known}
    return dataclasses.replace(config, vocabulary=vocabulary, **window, **sizes)


def _small(family: Family) -> Any:
    config, head = family.example()
    return family.build(config, head, np.random.default_rng(0))


def _sizes_of_a_writer(name: str) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(FAMILIES[name].recipe)}
    wanted = {"n_key_heads": 1, "tie_output": True}
    return {"kind": functools.partial(resized, name)} | {key: wanted[key] for key in wanted.keys() & fields}


# One model at least of each family that we write, by its name in config.json. What is written is the first family that
# can hold the model: no text tells a Llama from a Mistral whose window is never left.
WRITERS: dict[str, dict[str, Any]] = {
    name: _sizes_of_a_writer(name) for name, family in FAMILIES.items() if isinstance(_small(family), LanguageModel)
}
WRITERS |= {"gpt2": {}}
del WRITERS["ministral"]  # it is written as the Mistral that it is
WRITERS["bloom"]["d_ff"] = 64  # theirs has four times the width
WRITERS["kimi_linear"]["tie_output"] = False  # theirs has two tables
WRITERS["olmoe"]["d_head"] = None  # theirs has no heads of another width than d_model / n_heads
TRANSLATORS: dict[str, dict[str, Any]] = {
    "marian": {},
    "pegasus": {"norm_order": "pre"},
    "bart": _BART,
    "mbart": _BART | {"norm_order": "pre"},
    "t5": _T5,
    "mt5": _T5 | {"activation": "gelu_tanh", "gated": True, "scale_logits": False},
    "t5 gated": _T5 | {"activation": "gelu_tanh", "gated": True, "tie_output": False, "scale_logits": False},
}
# Which translator, of which tokenizer or two, and changes: each family with each kind, and apart the paper's alone.
APART = (("words", "bpe"), ("bpe", "characters"), ("characters", "words"))
TRANSLATED: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    *((family, (kind,), {}) for family in TRANSLATORS for kind in KINDS),
    *(("marian", kinds, {"tie_output": kinds[0] != "characters"}) for kinds in APART),
]
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"types": 1, "position_offset": 1, "count_real": True},
    "distilbert": {"types": 0},
    "albert": {"shared": True, "width": 12},
    "electra": {"width": 12},
    "modernbert": {"window": 9},
}


def made(kind: str) -> Tokenizer:
    if kind == "bpe":
        return BytePairTokenizer.train(LEARNED, 120)
    return (WordTokenizer if kind == "words" else CharacterTokenizer).train(LEARNED)


def writer(tokenizer: Tokenizer, kind: Any = LanguageModelConfig, **changes: Any) -> LanguageModel:
    """A small language model whose most probable tokens differ from place to place."""
    sizes = {"max_length": 64, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2} | changes
    model = kind(len(tokenizer), **sizes).build(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _, parameter in model.parameters():
        parameter.value += rng.normal(0.0, 0.3, parameter.value.shape).astype(np.float32)
    return model


def translator(source: Tokenizer, target: Tokenizer, kind: Any = TransformerConfig, **changes: Any) -> Transformer:
    """A small translator in float64, one table where both tokenizers are one; by default as the paper has it."""
    sizes: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 2, "n_decoder_layers": 2}
    if "share_embeddings" in {field.name for field in dataclasses.fields(kind)}:
        sizes |= {"share_embeddings": source is target}
    sizes |= changes
    model = Transformer(kind(len(source), len(target), **sizes), np.random.default_rng(0))
    return _stirred(model, 2)


def encoder(tokenizer: Tokenizer, family: str, classes: int = 0) -> Any:
    """A small encoder of text in float64, which tells masked tokens or, with classes, what a text belongs to."""
    sizes = {"max_length": 160, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2} | ENCODERS[family]
    rng = np.random.default_rng(0)
    if family == "modernbert":
        body = ModernBertConfig(len(tokenizer), **sizes)
        head = HeadConfig.of(body, CLASSES, classes).build(rng) if classes else MaskedLanguageModel(body, rng)
        return _stirred(head, 3)
    if not classes:
        return _stirred(MaskedLanguageModel(TextEncoderConfig(len(tokenizer), **sizes, pooler=None), rng), 3)
    pooler = {"distilbert": "relu", "electra": "gelu"}.get(family, "tanh")
    return _stirred(TextClassifierConfig(len(tokenizer), **sizes, pooler=pooler, n_classes=classes).build(rng), 3)


def _stirred(model: Any, seed: int) -> Any:
    """With weights whose outputs differ from place to place, in float64."""
    rng = np.random.default_rng(seed)
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
