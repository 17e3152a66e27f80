"""What published models are for: continuing a text, comparing texts, filling in what is hidden in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import ops
from ..arrays.backend import to_device, to_numpy
from ..arrays.files import read_json
from ..models import (
    LanguageModel,
    MaskedLanguageModel,
    TextClassifier,
    TextEncoder,
    Transformer,
    from_pretrained,
    is_published,
)
from ..models.families.family import Pretrained
from ..text import PublishedTokenizer, load_published, padded

_BATCH = 32  # texts that are read at once


def open_published(path: Path) -> tuple[Pretrained, PublishedTokenizer]:
    """A published model and its tokenizer. Raises ValueError if that has more tokens than the model."""
    if not is_published(path):
        raise ValueError(f"{path} is no published model: there is no config.json that names its family (model_type)")
    model, tokenizer = from_pretrained(path), load_published(path)
    vocabulary = model.config.source_vocabulary if isinstance(model, Transformer) else model.config.vocabulary
    if len(tokenizer) > vocabulary:
        raise ValueError(f"{path}: the tokenizer has {len(tokenizer)} tokens, but the model {vocabulary}")
    return model, tokenizer


def load_published_writer(path: Path) -> tuple[LanguageModel, PublishedTokenizer]:
    """A published language model and its tokenizer. Raises ValueError for a model of another kind."""
    model, tokenizer = open_published(path)
    if not isinstance(model, LanguageModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, but only a LanguageModel continues a text")
    return model, tokenizer


def load_encoder(path: Path) -> tuple[TextEncoder, PublishedTokenizer]:
    """A published encoder of texts, without its head, and its tokenizer.

    Raises ValueError for a model of another kind, or one whose folder says that its vectors are not means.
    """
    model, tokenizer = open_published(path)
    if isinstance(model, MaskedLanguageModel | TextClassifier):
        model = model.encoder
    if not isinstance(model, TextEncoder):
        raise ValueError(f"{path} holds a {type(model).__name__}, but only an encoder makes vectors of texts")
    pooling = path / "1_Pooling" / "config.json"  # of Sentence Transformers
    if pooling.is_file() and not read_json(pooling).get("pooling_mode_mean_tokens", False):
        raise ValueError(f"{pooling}: only the mean over the tokens is supported (pooling_mode_mean_tokens)")
    return model, tokenizer


def sentence_vectors(model: TextEncoder, tokenizer: PublishedTokenizer, texts: Sequence[str]) -> np.ndarray:
    """A vector of length 1 for each text, (N, D): the mean of its tokens' hidden states, normalised.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3. Raises ValueError for a text that is too long.
    """
    found = []
    for begin in range(0, len(texts), _BATCH):
        ids = [_checked(model, tokenizer.encode(text, special=True), text) for text in texts[begin : begin + _BATCH]]
        mask = np.arange(max(map(len, ids))) < np.array([[len(each)] for each in ids])
        real = to_device(mask, model.device)
        hidden, _ = model(to_device(padded(ids), model.device), real)
        found.append(to_numpy(ops.mean_pool(hidden, real)[0]))
    vectors = np.concatenate(found)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class Guess:
    """A token for a hidden place, and how probable the model finds it."""

    token: str
    probability: float


def fill_mask(
    model: MaskedLanguageModel, tokenizer: PublishedTokenizer, text: str, n_guesses: int = 5
) -> list[list[Guess]]:
    """The most probable tokens for each mask in a text, best first. "[MASK]" is a mask, whatever the model calls it."""
    mask = tokenizer.id_of("mask_token")
    whole = text.replace("[MASK]", tokenizer.special["mask_token"])
    ids = _checked(model.encoder, tokenizer.encode(whole, special=True), text)
    places = [place for place, i in enumerate(ids) if i == mask]
    if not places:
        raise ValueError("the text has no [MASK], which stands for the token to be found")
    logits = to_numpy(model(to_device(np.array([ids]), model.device))[0])[0, places].astype(np.float64)
    return [
        [
            Guess(tokenizer.decode([i]).strip(), float(row[i]))
            for i in np.argsort(-row, kind="stable")[:n_guesses].tolist()
        ]
        for row in ops.softmax(logits)[0]
    ]


def _checked(model: TextEncoder, ids: list[int], text: str) -> list[int]:
    if not 1 <= len(ids) <= model.config.max_length:
        raise ValueError(f"a text must have 1 to {model.config.max_length} tokens, got {len(ids)} for {text[:40]!r}")
    return ids
