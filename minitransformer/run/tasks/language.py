"""Continuing a text: from a running text to a LanguageModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.boundary import check_sizes
from ...core.models import LanguageModelConfig
from ...core.text import Tokenizer, english
from ...core.text.text_files import read_text
from ...core.text.tokenizer import read_tokenizer
from ...core.training.corpora import Ids, TextCorpus
from .shards import TOKENIZER, Shards
from .task import Prepared, Task, check_tokenizer, trained


@dataclass(frozen=True)
class LanguageData:
    """Which text or prepared folder to use, and how it becomes batches."""

    text: str | None = field(default=None, metadata={"file": "the text (default: numbers in words)"})
    held_out: float = 0.1  # last share of the text, for validation
    tokenizer: str = "characters"  # characters or bpe
    vocabulary: int = 8000  # number of bpe tokens
    batch_rows: int = 12  # windows of max_length tokens in a batch
    data: str | None = field(default=None, metadata={"file": "a folder of `minitransformer prepare`, instead of text"})

    def __post_init__(self) -> None:
        if not 0.0 < self.held_out < 1.0:
            raise ValueError(f"held_out must be between 0 and 1, got {self.held_out}")
        check_tokenizer(self.tokenizer, "characters", "bpe")
        check_sizes("lm", vocabulary=self.vocabulary, batch_rows=self.batch_rows)


def prepare(
    data: LanguageData, model: Mapping[str, Any], rng: np.random.Generator, saved: Sequence[Tokenizer] = ()
) -> Prepared:
    """Read and encode the text, and cut off the validation part. A prepared folder is read as it is.

    Raises ValueError for both at once, and if a part is shorter than a window.
    """
    if data.text is not None and data.data is not None:
        raise ValueError("lm takes text or data, not both; leave one of them out")
    tokenizer, training, valid = _of_text(data, rng, saved) if data.data is None else _stored(data)
    notes = ["no file given: numbers below 100,000 in words"] if data.text is None and data.data is None else []
    notes.append(
        f"{len(training):,} tokens for training and the last {len(valid):,} for validation; "
        f"vocabulary {len(tokenizer):,}"
    )
    length = model.get("max_length", LanguageModelConfig.max_length)
    if min(len(training), len(valid)) <= length:
        raise ValueError(
            f"there are {len(training)} tokens for training and {len(valid)} for validation; both must be more than a "
            f"window of max_length {length}; give a longer text or a smaller max_length"
        )
    training_corpus, validation_corpus = (TextCorpus(ids, length, data.batch_rows) for ids in (training, valid))
    sizes = {"vocabulary": len(tokenizer)}
    return Prepared((tokenizer,), sizes, training_corpus, validation_corpus, tuple(notes))


def _of_text(data: LanguageData, rng: np.random.Generator, saved: Sequence[Tokenizer]) -> tuple[Tokenizer, Ids, Ids]:
    """The bpe tokenizer learns from the part for training alone; an alphabet reveals nothing about the other."""
    text = _numbers(rng) if data.text is None else read_text(Path(data.text))
    cut = round(len(text) * (1.0 - data.held_out))
    lines = [text] if data.tokenizer == "characters" else text[:cut].splitlines(keepends=True)
    tokenizer = saved[0] if saved else trained(data.tokenizer, lines, data.vocabulary)
    return tokenizer, tokenizer.encode(text[:cut]), tokenizer.encode(text[cut:])


def _stored(data: LanguageData) -> tuple[Tokenizer, Ids, Ids]:
    """With the tokenizer of the folder."""
    folder = Path(data.data or "")
    shards = Shards(folder)
    cut = round(len(shards) * (1.0 - data.held_out))
    return read_tokenizer(folder / TOKENIZER), shards.part(0, cut), shards.part(cut, len(shards))


def _numbers(rng: np.random.Generator) -> str:
    return "".join(f"{n}: {' '.join(english(n))}\n" for n in rng.choice(100_000, 5000, replace=False).tolist())


_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
_DECAY = {"eps": 1e-8, "weight_decay": 0.1, "validate_every": 250}
TASK = Task(
    "lm",
    LanguageData,
    LanguageModelConfig,
    prepare,
    from_data=("vocabulary",),
    presets={
        "numbers": {"n_layers": 2, "n_heads": 4, "d_model": 64, "d_ff": 256, "max_length": 64, "batch_rows": 16}
        | _NO_DROPOUT
        | {"steps": 300, "learning_rate": 3e-3, "warmup": 30},  # for the generated text: a minute on a laptop
        # The sizes and the budget of nanoGPT's example for a laptop without a GPU, which has a learning rate of 1e-3
        # down to 1e-4, 100 steps of warm-up and beta2 0.99.
        "nanogpt-cpu": {"n_layers": 4, "n_heads": 4, "d_model": 128, "d_ff": 512, "max_length": 64, "batch_rows": 12}
        | _NO_DROPOUT
        | {"steps": 2000, "learning_rate": 4e-3, "warmup": 200, "beta2": 0.95}
        | _DECAY,
        # The same for a GPU.
        "nanogpt-gpu": {"n_layers": 6, "n_heads": 6, "d_model": 384, "d_ff": 1536, "max_length": 256, "batch_rows": 64}
        | {"dropout": 0.2, "attention_dropout": 0.2}
        | {"steps": 5000, "learning_rate": 1e-3, "floor": 1e-4, "beta2": 0.99}
        | _DECAY,
        "gpt2": {"tokenizer": "bpe", "vocabulary": 50257},
    },
)
