"""Uses of published models: continuing a text, comparing texts, filling in masked tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..check.verify import Report
from ..check.verify.gradients import Progress
from ..check.verify.large_models import model_gradients
from ..core import ops
from ..core.arrays.backend import Array, Pullback, array_module, to_device, to_numpy
from ..core.arrays.boundary import check_finite
from ..core.arrays.files import read_json
from ..core.layers import Decoder, Encoder
from ..core.models import Classifier, EncoderDecoder, LanguageModel, Transformer, folder
from ..core.models.encoder_only import EncoderOnly
from ..core.text import END, PAD, START, Tokenizer, padded
from ..ideas.published import weight_files
from ..ideas.published.family import Pretrained
from ..ideas.published.pretrained import TARGET_TOKENIZER, from_pretrained, is_published
from ..ideas.published.text_encoder import MaskedLanguageModel
from ..ideas.published.tokenizers import PublishedTokenizer, load_published
from .tasks.classification import load_classifier
from .tasks.language import load_writer
from .tasks.translation import load_translator

_BATCH = 32  # texts that are read at once
_CHECKED = 6  # tokens of a sequence that a check reads


def open_published(path: Path) -> tuple[Pretrained, PublishedTokenizer]:
    """A published model and its tokenizer. Raises ValueError if the tokenizer has more tokens than the model."""
    if not is_published(path):
        raise ValueError(f"{path} is not a published model: it has no config.json that names its family (model_type)")
    model, tokenizer = from_pretrained(path), load_published(path)
    vocabulary = model.config.source_vocabulary if isinstance(model, Transformer) else model.config.vocabulary
    if len(tokenizer) > vocabulary:
        raise ValueError(f"{path}: the tokenizer has {len(tokenizer)} tokens, but the model {vocabulary}")
    return model, tokenizer


def open_any(path: Path) -> tuple[Any, tuple[Tokenizer, ...]]:
    """A model, from a run or published, and its tokenizers: one, or those of source and target."""
    if is_published(path):
        found: tuple[Any, ...] = open_published(path)
        if (second := path / TARGET_TOKENIZER).is_dir():
            found += (load_published(second),)
    elif (kind := folder.kind(path)) == "LanguageModel":
        found = load_writer(path)
    else:
        found = load_classifier(path)[:2] if kind == "Classifier" else load_translator(path)
    model, *tokenizers = found
    return model, tuple(dict.fromkeys(tokenizers))


def as_translator(
    path: Path, model: Any, tokenizers: Sequence[Tokenizer]
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """The model of `open_any` as a translator, with its tokenizers of source and target.

    Raises ValueError for a model of another kind, and for one with other ids for padding, start or end.
    """
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"{path} holds a {type(model).__name__}, but only an encoder-decoder translates")
    if is_published(path):
        about = read_json(path / weight_files.CONFIG)
        ids = [about.get(name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")]
        if ids != [PAD, START, END]:
            raise ValueError(
                f"{path}: padding, start and end have the ids {ids} there, but must have [{PAD}, {START}, {END}]; "
                "generation.translate takes any ids"
            )
    return model, tokenizers[0], tokenizers[-1]


def load_published_writer(path: Path) -> tuple[LanguageModel, PublishedTokenizer]:
    """A published language model and its tokenizer. Raises ValueError for a model of another kind."""
    model, tokenizer = open_published(path)
    if not isinstance(model, LanguageModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, but only a LanguageModel continues a text")
    return model, tokenizer


def load_encoder(path: Path) -> tuple[EncoderOnly, PublishedTokenizer]:
    """A published encoder of texts, with or without a head, and its tokenizer.

    Raises ValueError for a model of another kind, or if its folder says that it pools in another way than by the mean.
    """
    model, tokenizer = open_published(path)
    if not isinstance(model, EncoderOnly):
        raise ValueError(f"{path} holds a {type(model).__name__}, but only an encoder makes vectors of texts")
    pooling = path / "1_Pooling" / "config.json"  # a file of Sentence Transformers
    if pooling.is_file() and not read_json(pooling).get("pooling_mode_mean_tokens", False):
        raise ValueError(f"{pooling}: only the mean over the tokens is supported (pooling_mode_mean_tokens)")
    return model, tokenizer


def sentence_vectors(model: EncoderOnly, tokenizer: PublishedTokenizer, texts: Sequence[str]) -> np.ndarray:
    """A vector of length 1 for each text, (N, D): the mean of its tokens' hidden states, normalised.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3. Raises ValueError for a text that is too long.
    """
    found = []
    for begin in range(0, len(texts), _BATCH):
        ids = [_checked(model, tokenizer.encode(text, special=True), text) for text in texts[begin : begin + _BATCH]]
        mask = np.arange(max(map(len, ids))) < np.array([[len(each)] for each in ids])
        real = to_device(mask, model.device)
        hidden, _ = model.hidden(to_device(padded(ids), model.device), real)
        found.append(to_numpy(ops.mean_pool(hidden, real)[0]))
    vectors = np.concatenate(found)
    if not np.isfinite(vectors).all():
        raise ValueError("the vectors of this model are NaN or infinite; its weights are too large, or damaged")
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def layer_of(model: Pretrained, layer: int | None = None) -> tuple[list[Any], int, int]:
    """Find a layer by its number, from 1 on; by default the last. Returns (the list it is in, its index, its number).

    The layers of a Transformer's decoder come after those of its encoder. Raises ValueError for a number out of range.
    """
    lists = [part.layers for _, part in model.children() if isinstance(part, Encoder | Decoder)]
    places = [(layers, i) for layers in lists for i in range(len(layers))]
    number = len(places) if layer is None else layer
    if not 1 <= number <= len(places):
        raise ValueError(f"--layer must be from 1 to {len(places)}, got {number}")
    return *places[number - 1], number


def reading(model: Pretrained, ids: Array, mask: Array | None = None) -> Callable[[], tuple[Array, Pullback]]:
    """A function that runs the model on ids, (B, T), and returns (output, backward).

    The output is a loss. Its targets are the next tokens of the text; for a MaskedLanguageModel and a Transformer, the
    tokens themselves; for a Classifier, the first class. A TextEncoder has no loss: the output is its hidden states
    and the pooled vector before them, (B, 1 + T, D).
    mask: boolean (B, T), True where a token is real.
    """
    xp = array_module(ids)
    wanted = ids if mask is None else xp.where(mask, ids, -100)
    if isinstance(model, LanguageModel):
        seen = None if mask is None else mask[:, :-1]
        return functools.partial(model.loss, ids[:, :-1], wanted[:, 1:], mask=seen)
    if isinstance(model, Transformer):
        return functools.partial(model.loss, ids, ids[:, :-1], wanted[:, 1:], mask)
    if isinstance(model, MaskedLanguageModel):
        return functools.partial(model.loss, ids, wanted, mask)
    if isinstance(model, Classifier):
        return functools.partial(model.loss, ids, xp.zeros(len(ids), dtype=ids.dtype), mask)
    return functools.partial(model.with_pooled, ids, mask)


def check_model(
    path: Path, layer: int | None = None, device: str | None = None, seed: int = 0, progress: Progress = iter
) -> Report:
    """Check a published model against finite differences in float64: every parameter, and the inside of one layer.

    The input is two short sequences of a few random tokens, some repeated; the second sequence is padded. See
    `verify.inside.model_gradients`.
    """
    model = from_pretrained(path)
    layers, i, number = layer_of(model, layer)
    model.to(device, "float64")
    vocabulary = model.config.source_vocabulary if isinstance(model, Transformer) else model.config.vocabulary
    rng = np.random.default_rng((seed, 3))
    ids = rng.integers(0, vocabulary, 4)[rng.integers(0, 4, (2, _CHECKED))]
    mask = np.arange(_CHECKED) < np.array([[_CHECKED], [_CHECKED - 2]])
    run = reading(model, to_device(ids, model.device), to_device(mask, model.device))
    return model_gradients(model, run, layers, i, number, seed, progress=progress)


@dataclass(frozen=True)
class Guess:
    """A token for a masked place, and its probability in the model."""

    token: str
    probability: float


def fill_mask(
    model: MaskedLanguageModel, tokenizer: PublishedTokenizer, text: str, n_guesses: int = 5
) -> list[list[Guess]]:
    """The most probable tokens for each mask in a text, best first. Write "[MASK]" for a mask, for every model."""
    mask = tokenizer.id_of("mask_token")
    whole = text.replace("[MASK]", tokenizer.special["mask_token"])
    ids = _checked(model, tokenizer.encode(whole, special=True), text)
    places = [place for place, i in enumerate(ids) if i == mask]
    if not places:
        raise ValueError("the text has no [MASK]; write [MASK] in place of the token to be found")
    logits = to_numpy(model(to_device(np.array([ids]), model.device))[0])[0, places].astype(np.float64)
    check_finite("fill_mask", logits.max(axis=-1))
    best = np.argsort(-logits, axis=-1, kind="stable")[:, :n_guesses].tolist()
    rows = zip(ops.softmax(logits)[0], best, strict=True)
    return [[Guess(tokenizer.decode([i]).strip(), float(row[i])) for i in tokens] for row, tokens in rows]


def _checked(model: EncoderOnly, ids: list[int], text: str) -> list[int]:
    if not 1 <= len(ids) <= model.config.max_length:
        raise ValueError(f"a text must have 1 to {model.config.max_length} tokens, got {len(ids)} for {text[:40]!r}")
    return ids
