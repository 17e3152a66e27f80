"""Translation: from sentence pairs to a model that translates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ...core.arrays.backend import to_device
from ...core.arrays.boundary import check_sizes
from ...core.generation import translate
from ...core.models import EncoderDecoder, TransformerConfig
from ...core.text import END, PAD, START, NumberTask, Tokenizer, encode_lines, english, german, padded
from ...core.text.text_files import read_pairs
from ...core.training.corpora import PairCorpus, bucketed
from .task import Prepared, Task, check_share, check_tokenizer, trained


@dataclass(frozen=True)
class TranslationData:
    """Which sentence pairs to use, and how they become batches."""

    source: str | None = field(default=None, metadata={"file": "training sentences to translate (default: numbers)"})
    target: str | None = field(default=None, metadata={"file": "their translations, line by line"})
    valid_source: str | None = field(default=None, metadata={"file": "sentences for validation"})
    valid_target: str | None = field(default=None, metadata={"file": "their translations"})
    tokenizer: str = "bpe"  # bpe or words
    vocabulary: int = 8000  # number of bpe tokens
    joint: bool = True  # one vocabulary for both sides
    max_length: int = 100  # tokens; training pairs with a longer side are left out and counted
    batch_tokens: int = 4096  # rows times the longest sentence
    label_smoothing: float = 0.1

    @property
    def files(self) -> tuple[tuple[str | None, str | None], ...]:
        """Source and target for training, and for validation."""
        return (self.source, self.target), (self.valid_source, self.valid_target)

    def __post_init__(self) -> None:
        given = [bool(path) for path in (self.source, self.target, self.valid_source, self.valid_target)]
        if any(given) and not all(given):
            raise ValueError("translate needs four files: source, target, valid-source and valid-target")
        check_tokenizer(self.tokenizer, "bpe", "words")
        sizes = {"vocabulary": self.vocabulary, "max_length": self.max_length, "batch_tokens": self.batch_tokens}
        check_sizes("translate", **sizes)
        check_share("translate", label_smoothing=self.label_smoothing)


def prepare(
    data: TranslationData, model: Mapping[str, Any], rng: np.random.Generator, saved: Sequence[Tokenizer] = ()
) -> Prepared:
    """Read, tokenize and encode the pairs. Raises ValueError for unusable settings or files."""
    if model.get("share_embeddings", TransformerConfig.share_embeddings) and not data.joint:
        fix = "give --joint, or --no-share-embeddings if the recipe has it"
        raise ValueError(f"share_embeddings needs one vocabulary for both sides; {fix}")
    if not data.source:
        task = NumberTask.draw(n_training=8000, n_unseen=500, limit=100_000, rng=rng)
        training, valid = (
            [(" ".join(english(n)), " ".join(german(n))) for n in ns] for ns in (task.training, task.unseen)
        )
        notes = ["no files given: numbers below 100,000, from English to German"]
    else:
        training, valid = (read_pairs(Path(one or ""), Path(other or "")) for one, other in data.files)
        notes = []
    tokenizers = saved or _tokenizers(data, training)

    def encode(pairs: Sequence[tuple[str, str]], files: Sequence[str | None]) -> list[tuple[list[int], list[int]]]:
        sides = zip((tokenizers[0], tokenizers[-1]), zip(*pairs, strict=True), files, strict=True)
        ids = [encode_lines(tokenizer, side, Path(file) if file else None) for tokenizer, side, file in sides]
        return list(zip(*ids, strict=True))

    encoded, valid_encoded = map(encode, (training, valid), data.files)
    kept = [(s, t) for s, t in encoded if max(len(s), len(t) + 1) <= data.max_length]
    if not kept:
        raise ValueError(f"every training pair is longer than max_length {data.max_length}")
    notes.append(
        f"{len(kept):,} training pairs ({len(encoded) - len(kept)} left out, longer than {data.max_length} tokens), "
        f"{len(valid):,} for validation; vocabulary {' and '.join(f'{len(each):,}' for each in tokenizers)}"
    )
    if longest(kept) > data.batch_tokens:
        raise ValueError(
            f"a batch of {data.batch_tokens} tokens cannot hold the longest training pair, of {longest(kept)}; "
            "increase batch_tokens, or leave long pairs out with max_length"
        )
    training_corpus, validation_corpus = (
        PairCorpus([s for s, _ in each], [t for _, t in each], tokens, smoothing)
        for each, tokens, smoothing in (
            (kept, data.batch_tokens, data.label_smoothing),
            (valid_encoded, max(data.batch_tokens, longest(valid_encoded)), 0.0),
        )
    )
    sizes = {"source_vocabulary": len(tokenizers[0]), "target_vocabulary": len(tokenizers[-1])}
    return Prepared(tokenizers, sizes, training_corpus, validation_corpus, tuple(notes))


def longest(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> int:
    """The width of the widest pair."""
    return max(max(len(s), len(t) + 1) for s, t in pairs)


def written(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    beam: int = 5,
    length_penalty: float = 1.0,
    max_length: int = 200,
    tokens: int = 1500,
    early_stopping: bool = True,
) -> list[list[int]]:
    """Translate encoded sentences by beam search, in batches of similar length with at most `tokens` source tokens.

    A translation without <end> after max_length tokens is cut off there. The order is kept. early_stopping: as in
    `beam_search`.
    """
    widths = np.array([(len(source),) for source in sources])
    found: dict[int, list[int]] = {}
    with tqdm(total=len(sources), desc="translate", unit="sentence", leave=False, disable=None) as bar:
        for rows in bucketed(widths, max(tokens, int(widths.max())), rng=None):
            source = to_device(padded([sources[row] for row in rows]), model.device)
            found |= zip(
                rows.tolist(),
                translate(
                    model,
                    source,
                    source != PAD,
                    start=START,
                    end=END,
                    max_length=max_length,
                    beam=beam,
                    length_penalty=length_penalty,
                    early_stopping=early_stopping,
                ),
                strict=True,
            )
            bar.update(len(rows))
    return [found[row] for row in range(len(sources))]


def _tokenizers(data: TranslationData, pairs: Sequence[tuple[str, str]]) -> tuple[Tokenizer, ...]:
    sides = tuple(zip(*pairs, strict=True))
    texts: Sequence[Sequence[str]] = [[*sides[0], *sides[1]]] if data.joint else sides
    return tuple(trained(data.tokenizer if data.source else "words", each, data.vocabulary) for each in texts)


# Wu et al. 2021, "Good for Misconceived Reasons", for Multi30k.
_TINY = {"d_model": 128, "n_heads": 4, "d_ff": 256, "n_encoder_layers": 4, "n_decoder_layers": 4, "dropout": 0.3}
_SMALL = {"d_model": 64, "n_heads": 4, "d_ff": 128, "n_encoder_layers": 2, "n_decoder_layers": 2, "dropout": 0.0}
TASK = Task(
    "translate",
    TranslationData,
    TransformerConfig,
    prepare,
    from_data=("source_vocabulary", "target_vocabulary"),
    presets={
        "transformer-tiny": _TINY
        | {"vocabulary": 10000, "batch_tokens": 8192, "steps": 8000, "learning_rate": 5e-3}
        | {"schedule": "inverse-sqrt", "warmup": 2000, "optimizer": "adam", "average": 10}
        | {"validate_every": 200, "save_every": 55},  # about an epoch
        # The same sizes, with settings for an hour and a half on two cores.
        "transformer-tiny-cpu": _TINY
        | {"norm_order": "pre", "vocabulary": 4000, "batch_tokens": 2048, "steps": 30000}
        | {"learning_rate": 3e-3, "warmup": 1000, "workers": 2, "validate_every": 500},
        # For the generated task: two minutes on a laptop.
        "numbers": _SMALL
        | {"norm_order": "pre", "joint": False, "share_embeddings": False, "batch_tokens": 768}
        | {"steps": 600, "learning_rate": 3e-3, "warmup": 50},
        "base": {},
        "big": TransformerConfig.BIG,
    },
)
