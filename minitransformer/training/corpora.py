"""Corpora: encoded texts, cut into batches, each with the loss of its model on a batch.

A batch is an array of rows, integers that say which sentences (or, in running text, which windows) it holds; only
`loss` makes arrays of tokens from it, padded to the longest. So a batch can be shared out among workers as rows[i::n].

    batches(rng)           the batches of one epoch: shuffled by rng, or in order for rng=None
    count(rows)            how many predictions the loss of these rows is the mean of
    loss(model, rows, rng) (loss, backward); with dropout from rng, none for rng=None

Sentences of about the same length share a batch, whose size is counted in tokens: one long sentence in a batch of short
ones would make most of it padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..arrays.backend import Array, Pullback, to_device
from ..arrays.boundary import check_ids, check_sizes, ids_looked_at
from ..layers import Module
from ..models import Classifier, LanguageModel, Transformer
from ..text.vocabulary import END, PAD, START, padded

_MOST = 1 << 24  # tokens in a batch


class Corpus(Protocol):
    """What training needs of a corpus."""

    def batches(self, rng: np.random.Generator | None) -> list[np.ndarray]:
        """The batches of one epoch."""

    def count(self, rows: np.ndarray) -> int:
        """How many predictions the loss is the mean of."""

    def loss(self, model: Any, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Array, Pullback]:
        """The loss and its pullback."""


class PairCorpus:
    """Sentence pairs, for a Transformer. tokens: how many a batch holds at most, counted as rows times longest side."""

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        tokens: int,
        label_smoothing: float = 0.0,
    ) -> None:
        self.sources, self.targets = sources, targets
        self.tokens, self.label_smoothing = tokens, label_smoothing
        self._widths = np.array([(max(len(s), len(t) + 1), len(t)) for s, t in zip(sources, targets, strict=True)])

    def batches(self, rng: np.random.Generator | None) -> list[np.ndarray]:
        """Pairs of similar lengths together, in batches of at most `tokens`."""
        return bucketed(self._widths, self.tokens, rng)

    def count(self, rows: np.ndarray) -> int:
        """The target tokens, the end of each sentence among them."""
        return sum(len(self.targets[row]) + 1 for row in rows)

    def loss(self, model: Transformer, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Array, Pullback]:
        """The mean cross-entropy of the target tokens, smoothed only in training, where there is an rng."""
        n_source, n_target = model.config.source_vocabulary, model.config.target_vocabulary
        source = _on_device(model, padded([self.sources[row] for row in rows]), n_source, "source ids")
        target = _on_device(model, padded([[START, *self.targets[row]] for row in rows]), n_target, "target ids")
        wanted = _on_device(model, padded([[*self.targets[row], END] for row in rows]), n_target, "target ids")
        smoothing = 0.0 if rng is None else self.label_smoothing
        mask = source != PAD
        with ids_looked_at():
            return model.loss(source, target, wanted, mask, ignore_index=PAD, label_smoothing=smoothing, rng=rng)


class TextCorpus:
    """One running text, for a LanguageModel: windows of `length` tokens, `rows` of them in a batch.

    An epoch has as many windows as fit into the text; with an rng each starts anywhere, without one they follow each
    other, so that every token but the first is predicted once.
    """

    def __init__(self, ids: Sequence[int], length: int, rows: int) -> None:
        check_sizes("TextCorpus", length=length, rows=rows)
        if rows * length > _MOST:
            raise ValueError(f"a batch must be of at most {_MOST:,} tokens, got {rows} windows of {length}; take fewer")
        self.ids = np.asarray(ids, dtype=np.int64)
        if len(self.ids) <= length:
            raise ValueError(f"the text must be longer than a window of {length} tokens, it has {len(self.ids)}")
        self.length, self.rows = length, rows

    def batches(self, rng: np.random.Generator | None) -> list[np.ndarray]:
        """Where each window starts."""
        if rng is None:
            starts = np.arange(0, len(self.ids) - 1, self.length)
            whole, rest = starts[starts + self.length < len(self.ids)], starts[starts + self.length >= len(self.ids)]
            parts = [whole[i : i + self.rows] for i in range(0, len(whole), self.rows)]
            return [*parts, rest] if len(rest) else parts  # the last window is shorter and stands alone
        n_batches = max(1, (len(self.ids) - 1) // (self.length * self.rows))
        return list(rng.integers(0, len(self.ids) - self.length, (n_batches, self.rows)))

    def count(self, rows: np.ndarray) -> int:
        """The tokens after each of the window's."""
        return sum(min(self.length, len(self.ids) - 1 - int(start)) for start in rows)

    def loss(self, model: LanguageModel, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Array, Pullback]:
        """The mean cross-entropy of each next token."""
        windows = np.stack([self.ids[start : start + self.length + 1] for start in rows])
        ids, wanted = (_on_device(model, x, model.config.vocabulary) for x in (windows[:, :-1], windows[:, 1:]))
        with ids_looked_at():
            return model.loss(ids, wanted, rng=rng)


class LabelledCorpus:
    """Texts with labels, for a Classifier. tokens: how many a batch holds at most, counted as rows times longest."""

    def __init__(
        self, texts: Sequence[Sequence[int]], labels: Sequence[int], tokens: int, label_smoothing: float = 0.0
    ) -> None:
        self.texts, self.labels = texts, np.asarray(labels, dtype=np.int64)
        self.tokens, self.label_smoothing = tokens, label_smoothing
        self._widths = np.array([(len(text),) for text in texts])

    def batches(self, rng: np.random.Generator | None) -> list[np.ndarray]:
        """Texts of similar lengths together, in batches of at most `tokens`."""
        return bucketed(self._widths, self.tokens, rng)

    def count(self, rows: np.ndarray) -> int:
        """One prediction for each text."""
        return len(rows)

    def loss(self, model: Classifier, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Array, Pullback]:
        """The mean cross-entropy of the labels, smoothed only in training, where there is an rng."""
        ids = _on_device(model, padded([self.texts[row] for row in rows]), model.config.vocabulary)
        labels = _on_device(model, self.labels[rows], model.config.n_classes, "labels")
        smoothing = 0.0 if rng is None else self.label_smoothing
        with ids_looked_at():
            return model.loss(ids, labels, ids != PAD, label_smoothing=smoothing, rng=rng)


def bucketed(widths: np.ndarray, tokens: int, rng: np.random.Generator | None) -> list[np.ndarray]:
    """Rows in batches of similar width, where rows times the widest is at most `tokens`; shuffled if there is an rng.

    widths: (N, k) lengths; the first counts, the others order the rows that are equal in it. Rows that are equal in all
    come in random order, and so do the batches. A row that is wider than `tokens` raises ValueError.
    """
    widest = int(widths[:, 0].max())
    if widest > tokens:
        raise ValueError(f"a batch of {tokens} tokens cannot hold a sentence of {widest}; allow more tokens")
    order = np.arange(len(widths)) if rng is None else rng.permutation(len(widths))
    order = order[np.lexsort(widths[order].T[::-1])]
    batches, start = [], 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or (stop + 1 - start) * widths[order[stop], 0] > tokens:
            batches.append(order[start:stop])
            start = stop
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def _on_device(model: Module, ids: np.ndarray, size: int, name: str = "ids") -> Array:
    """Check ids here on the host, where nobody has to wait for it, and move them to the model."""
    check_ids(type(model).__name__, name, ids, size, like=ids)
    return to_device(ids, model.device)
