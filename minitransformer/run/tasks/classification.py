"""Classification: from labelled lines to an encoder with a classification head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.boundary import check_sizes
from ...core.models import ClassifierConfig
from ...core.text import Tokenizer, english
from ...core.text.text_files import read_labelled
from ...core.training.corpora import LabelledCorpus
from .task import Prepared, Task, check_share, check_tokenizer, trained


@dataclass(frozen=True)
class ClassificationData:
    """Which labelled lines to use, and how they become batches."""

    text: str | None = field(default=None, metadata={"file": "lines of label, tab, text (default: numbers)"})
    valid_text: str | None = field(default=None, metadata={"file": "lines for validation (default: part of text)"})
    held_out: float = 0.1  # share of text for validation, if there is no valid_text
    tokenizer: str = "bpe"  # bpe or words
    vocabulary: int = 4000  # number of bpe tokens
    max_length: int = 256  # tokens; longer texts are cut off
    batch_tokens: int = 2048  # rows times the longest text
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.valid_text and not self.text:
            raise ValueError("valid_text also needs text, for training")
        if not 0.0 < self.held_out < 1.0:
            raise ValueError(f"held_out must be between 0 and 1, got {self.held_out}")
        check_tokenizer(self.tokenizer, "bpe", "words")
        sizes = {"vocabulary": self.vocabulary, "max_length": self.max_length, "batch_tokens": self.batch_tokens}
        check_sizes("classify", **sizes)
        if self.max_length > self.batch_tokens:
            raise ValueError(
                f"a batch of {self.batch_tokens} tokens cannot hold a text of {self.max_length}; increase "
                "batch_tokens, or cut texts off earlier with max_length"
            )
        check_share("classify", label_smoothing=self.label_smoothing)


def prepare(
    data: ClassificationData, model: Mapping[str, Any], rng: np.random.Generator, saved: Sequence[Tokenizer] = ()
) -> Prepared:
    """Read, split, tokenize and encode the lines. Raises ValueError for unusable lines or labels."""
    lines = _numbers(rng) if data.text is None else read_labelled(Path(data.text))
    if data.valid_text is not None:
        training, valid = lines, read_labelled(Path(data.valid_text))
    else:
        mixed = [lines[i] for i in rng.permutation(len(lines))]
        cut = max(1, round(len(mixed) * data.held_out))
        training, valid = mixed[cut:], mixed[:cut]
    labels = tuple(sorted({label for label, _ in training}))
    if len(labels) < 2:
        raise ValueError(f"there must be at least two different labels, got {', '.join(labels) or 'none'}")
    unknown = sorted({label for label, _ in valid} - set(labels))
    if unknown:
        raise ValueError(f"the validation lines have labels that the training lines lack: {', '.join(unknown[:5])}")
    kind = "words" if data.text is None else data.tokenizer
    texts = [text for _, text in (training if kind == "bpe" else [*training, *valid])]
    tokenizer = saved[0] if saved else trained(kind, texts, data.vocabulary)
    corpora, cut_off = [], 0
    for part, smoothing in ((training, data.label_smoothing), (valid, 0.0)):
        encoded = [tokenizer.encode(text) for _, text in part]
        cut_off += sum(len(ids) > data.max_length for ids in encoded)
        short = [ids[: data.max_length] for ids in encoded]
        classes = [labels.index(label) for label, _ in part]
        corpora.append(LabelledCorpus(short, classes, data.batch_tokens, smoothing))
    notes = ["no file given: numbers below 100,000 in words, even or odd"] if data.text is None else []
    notes.append(
        f"{len(training):,} texts for training, {len(valid):,} for validation ({cut_off} cut off after "
        f"{data.max_length} tokens); labels {', '.join(labels[:8])}; vocabulary {len(tokenizer):,}"
    )
    sizes = {"vocabulary": len(tokenizer), "n_classes": len(labels)}
    return Prepared((tokenizer,), sizes, corpora[0], corpora[1], tuple(notes), labels)


def _numbers(rng: np.random.Generator) -> list[tuple[str, str]]:
    drawn = rng.choice(100_000, 4000, replace=False).tolist()
    return [("odd" if n % 2 else "even", " ".join(english(n))) for n in drawn]


TASK = Task(
    "classify",
    ClassificationData,
    ClassifierConfig,
    prepare,
    from_data=("vocabulary", "n_classes"),
    presets={
        "numbers": {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 2, "dropout": 0.0, "batch_tokens": 512}
        | {"steps": 300, "learning_rate": 3e-3, "warmup": 30, "validate_every": 50}  # a minute on a laptop
    },
)
