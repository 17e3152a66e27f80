"""Corpora: encoded texts, split into batches, with the model's loss on a batch.

A batch is an array of row numbers: integers that say which sentences it contains or, in running text, where each
window starts. Only `loss` turns it into arrays of tokens, padded to the longest. So n workers can share a batch as
rows[i::n].

    batches(rng)           the batches of one epoch: shuffled by rng, or in order for rng=None
    count(rows)            the number of predictions in the mean that is the loss of these rows
    loss(model, rows, rng) (loss, backward); with dropout from rng, without dropout for rng=None

A batch contains sentences of similar length, and its size is counted in tokens. One long sentence in a batch
of short ones would make most of it padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..arrays.backend import Array, Pullback, Rng, to_device
from ..arrays.boundary import check_ids, check_sizes, ids_looked_at
from ..layers import Module
from ..models import Classifier, EncoderDecoder, LanguageModel
from ..text.vocabulary import END, PAD, START, padded

_MOST = 1 << 24  # tokens in a batch


class Stored(Protocol):
    """Token ids that stay on the disk: their number, and any slice of them as an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, stretch: slice) -> np.ndarray: ...


Ids: TypeAlias = Sequence[int] | np.ndarray | Stored


class Corpus(Protocol):
    """What training needs of a corpus."""

    def batches(self, rng: Rng | None) -> Sequence[np.ndarray]:
        """The batches of one epoch."""

    def count(self, rows: np.ndarray) -> int:
        """The number of predictions that the loss averages."""

    def loss(self, model: Any, rows: np.ndarray, rng: Rng | None) -> tuple[Array, Pullback]:
        """The loss and its pullback."""


class PairCorpus:
    """Sentence pairs, for an encoder-decoder. tokens: the most in a batch, counted as rows times longest side."""

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

    def batches(self, rng: Rng | None) -> list[np.ndarray]:
        """Pairs of similar lengths together, in batches of at most `tokens`."""
        return bucketed(self._widths, self.tokens, rng)

    def count(self, rows: np.ndarray) -> int:
        """The number of target tokens, including the end of each sentence."""
        return sum(len(self.targets[row]) + 1 for row in rows)

    def loss(self, model: EncoderDecoder, rows: np.ndarray, rng: Rng | None) -> tuple[Array, Pullback]:
        """The mean cross-entropy of the target tokens. Labels are smoothed only in training, when rng is given."""
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

    An epoch has as many windows as fit into the text. With an rng each starts at a random place. Without one they are
    consecutive, so every token except the first is predicted once. ids may stay on the disk, as `Stored` says.
    """

    def __init__(self, ids: Ids, length: int, rows: int) -> None:
        check_sizes("TextCorpus", length=length, rows=rows)
        if rows * length > _MOST:
            raise ValueError(f"a batch must be of at most {_MOST:,} tokens, got {rows} windows of {length}; use fewer")
        self.ids = np.asarray(ids, dtype=np.int64) if isinstance(ids, Sequence | np.ndarray) else ids
        if len(self.ids) <= length:
            raise ValueError(f"the text must be longer than a window of {length} tokens, but has {len(self.ids)}")
        self.length, self.rows = length, rows

    def batches(self, rng: Rng | None) -> Sequence[np.ndarray]:
        """The starts of the windows of each batch."""
        if rng is None:
            return _Consecutive(len(self.ids) - 1, self.length, self.rows)
        n_batches = max(1, (len(self.ids) - 1) // (self.length * self.rows))
        return list(rng.integers(0, len(self.ids) - self.length, (n_batches, self.rows)))

    def count(self, rows: np.ndarray) -> int:
        """The number of tokens in the windows that have a successor in the text."""
        return sum(min(self.length, len(self.ids) - 1 - int(start)) for start in rows)

    def loss(self, model: LanguageModel, rows: np.ndarray, rng: Rng | None) -> tuple[Array, Pullback]:
        """The mean cross-entropy of each next token."""
        windows = np.stack([self.ids[start : start + self.length + 1] for start in rows])
        ids, wanted = (_on_device(model, x, model.config.vocabulary) for x in (windows[:, :-1], windows[:, 1:]))
        with ids_looked_at():
            return model.loss(ids, wanted, rng=rng)


class _Consecutive(Sequence[np.ndarray]):
    """The starts of consecutive windows that together predict n tokens. A shorter last one is a batch of its own."""

    def __init__(self, n: int, length: int, rows: int) -> None:
        self._whole, self._rest, self._length, self._rows = n // length, n % length, length, rows

    def __len__(self) -> int:
        return -(-self._whole // self._rows) + (self._rest > 0)

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < len(self):
            raise IndexError(i)
        first = i * self._rows
        if first >= self._whole:
            return np.array([self._whole * self._length])
        return np.arange(first, min(first + self._rows, self._whole)) * self._length


class LabelledCorpus:
    """Texts with labels, for a Classifier. tokens: the most in a batch, counted as rows times longest."""

    def __init__(
        self, texts: Sequence[Sequence[int]], labels: Sequence[int], tokens: int, label_smoothing: float = 0.0
    ) -> None:
        self.texts, self.labels = texts, np.asarray(labels, dtype=np.int64)
        self.tokens, self.label_smoothing = tokens, label_smoothing
        self._widths = np.array([(len(text),) for text in texts])

    def batches(self, rng: Rng | None) -> list[np.ndarray]:
        """Texts of similar lengths together, in batches of at most `tokens`."""
        return bucketed(self._widths, self.tokens, rng)

    def count(self, rows: np.ndarray) -> int:
        """One prediction for each text."""
        return len(rows)

    def loss(self, model: Classifier, rows: np.ndarray, rng: Rng | None) -> tuple[Array, Pullback]:
        """The mean cross-entropy of the labels. Labels are smoothed only in training, when rng is given."""
        ids = _on_device(model, padded([self.texts[row] for row in rows]), model.config.vocabulary)
        labels = _on_device(model, self.labels[rows], model.config.n_classes, "labels")
        smoothing = 0.0 if rng is None else self.label_smoothing
        with ids_looked_at():
            return model.loss(ids, labels, ids != PAD, label_smoothing=smoothing, rng=rng)


def bucketed(widths: np.ndarray, tokens: int, rng: Rng | None) -> list[np.ndarray]:
    """Rows in batches of similar width. Rows times the widest is at most `tokens`. An rng shuffles the batches.

    widths: (N, k) lengths. The first length is the width; the others order rows of equal width. Rows that are equal in
    all lengths come in random order, and so do the batches. A row that is wider than `tokens` raises ValueError.
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
    """Check ids on the host, where the check needs no wait for a device, and move them to the model's device."""
    check_ids(type(model).__name__, name, ids, size, like=ids)
    return to_device(ids, model.device)
