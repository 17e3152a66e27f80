"""Uses of published models: continuing a text, comparing texts, filling in masked tokens."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..check.verify import Report
from ..check.verify.gradients import Progress, model_gradients
from ..core import ops
from ..core.arrays.backend import Array, Pullback, array_module, to_device, to_numpy
from ..core.arrays.boundary import check_finite
from ..core.arrays.files import read_json
from ..core.layers import Decoder, Encoder, Module
from ..core.models import Classifier, LanguageModel, Transformer, load
from ..core.models.encoder_only import EncoderOnly, MeanPool
from ..core.models.folder import vocabularies
from ..core.models.opening import Opened
from ..core.text import END, PAD, START, Tokenizer, padded
from ..ideas.published import gguf, weight_files
from ..ideas.published.family import Pretrained
from ..ideas.published.heads import FirstOfAll, Headed, LastReal
from ..ideas.published.text_encoder import MaskedLanguageModel
from ..ideas.published.tokenizers import PublishedTokenizer

# llama.cpp, include/llama.h: what the numbers of LLAMA_POOLING_TYPE_* mean.
_POOLS: dict[int, type[Module] | None] = {0: None, 1: MeanPool, 2: FirstOfAll, 3: LastReal}
_BATCH = 32  # texts that are read at once
_CHECKED = 6  # tokens of a sequence that a check reads


def check_ids(found: Opened[Any]) -> None:
    """Require the ids of our own tokenizers for padding, start and end, where a translator is published."""
    if found.published:
        about = read_json(found.path / weight_files.CONFIG)
        ids = [about.get(name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")]
        if ids != [PAD, START, END]:
            raise ValueError(
                f"{found.path}: padding, start and end have the ids {ids} there, but must have "
                f"[{PAD}, {START}, {END}]; generation.translate takes any ids"
            )


def sentence_vectors(
    model: EncoderOnly | LanguageModel, tokenizer: Tokenizer, texts: Sequence[str], pool: Module | None = None
) -> np.ndarray:
    """A vector of length 1 for each text, (N, D): what `pool` makes of its tokens' hidden states, normalised.

    pool: the mean unless given (Reimers and Gurevych 2019, "Sentence-BERT", section 3); of a decoder the last token,
    which alone has seen the whole text (Zhang et al. 2025, "Qwen3 Embedding", section 2). Raises ValueError for a text
    that is too long.
    """
    found = []
    pool = pool or (LastReal() if isinstance(model, LanguageModel) else MeanPool())
    for begin in range(0, len(texts), _BATCH):
        ids = [_checked(model, tokenizer.encode(text, special=True), text) for text in texts[begin : begin + _BATCH]]
        mask = np.arange(max(map(len, ids))) < np.array([[len(each)] for each in ids])
        real = to_device(mask, model.device)
        hidden, _ = model.hidden(to_device(padded(ids), model.device), mask=real)
        found.append(to_numpy(pool(hidden, real)[0]))
    vectors = np.concatenate(found)
    if not np.isfinite(vectors).all():
        raise ValueError("the vectors of this model are NaN or infinite; its weights are too large, or damaged")
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def pool_of(folder: Path) -> Module | None:
    """What makes one vector of a text, by the file of Sentence Transformers in a model's folder, or by a .gguf file.

    None where it is not said.
    """
    if folder.suffix == ".gguf" and folder.is_file():
        about = gguf.open_file(folder).metadata
        kind = about.get(f"{about.get('general.architecture')}.pooling_type", 0)
        if kind not in _POOLS:
            raise ValueError(f"{folder}: pooling_type must be one of {', '.join(map(str, _POOLS))}, got {kind!r}")
        pool = _POOLS[kind]
        return None if pool is None else pool()
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    known = {"mean_tokens": MeanPool, "cls_token": FirstOfAll, "lasttoken": LastReal}
    about = read_json(path)
    asked = [name.removeprefix("pooling_mode_") for name, value in about.items() if value is True]
    asked = [name for name in asked if name != "include_prompt"]
    if len(asked) != 1 or asked[0] not in known:
        raise ValueError(f"{path}: one of pooling_mode_{', pooling_mode_'.join(known)} must be true, got {asked}")
    return known[asked[0]]()


def layer_of(model: Pretrained, layer: int | None = None) -> tuple[list[Any], int, int]:
    """Find a layer by its number, from 1 on; by default the last. Returns (the list it is in, its index, its number).

    The layers of a Transformer's decoder come after those of its encoder. Raises ValueError for a number out of range.
    """
    lists = [part.layers for _, part in model.modules() if isinstance(part, Encoder | Decoder)]
    places = [(layers, i) for layers in lists for i in range(len(layers))]
    number = len(places) if layer is None else layer
    if not 1 <= number <= len(places):
        raise ValueError(f"--layer must be from 1 to {len(places)}, got {number}")
    return *places[number - 1], number


def reading(model: Any, ids: Array, mask: Array | None = None) -> Callable[[], tuple[Array, Pullback]]:
    """A function that runs the model on ids, (B, T), and returns (output, backward).

    The output is a loss. Its targets are the next tokens of the text; for a MaskedLanguageModel and a Transformer, the
    tokens themselves; for a Classifier, the first class; other heads have their own. A TextEncoder has no loss: the
    output is its hidden states and the pooled vector before them, (B, 1 + T, D).
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
    if isinstance(model, Headed):
        return functools.partial(model.loss, ids, model.some_targets(ids, mask), mask)
    if isinstance(model, Classifier):
        return functools.partial(model.loss, ids, xp.zeros(len(ids), dtype=ids.dtype), mask)
    return functools.partial(model.with_pooled, ids, mask)


def check_model(
    path: Path, layer: int | None = None, device: str | None = None, seed: int = 0, progress: Progress = iter
) -> Report:
    """Check a model against finite differences in float64: every parameter, and the inside of one layer.

    The input is two short sequences of a few random tokens, some repeated; the second sequence is padded. See
    `verify.inside.model_gradients`.
    """
    model: Any = load(path)
    layers, i, number = layer_of(model, layer)
    model.to(device, "float64")
    rng = np.random.default_rng((seed, 3))
    if hasattr(model, "drawn"):  # it reads something else than ids
        return model_gradients(model, model.drawn(rng), layers, i, number, seed, progress=progress)
    ids = rng.integers(0, vocabularies(model)[0], 4)[rng.integers(0, 4, (2, _CHECKED))]
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


def _checked(model: Any, ids: list[int], text: str) -> list[int]:
    most = getattr(model.config, "max_length", len(ids))
    if not 1 <= len(ids) <= most:
        raise ValueError(f"a text must have 1 to {most} tokens, got {len(ids)} for {text[:40]!r}")
    return ids
