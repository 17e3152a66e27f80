"""What a decoder has read so far, kept in its key-value cache: a new token costs one step, not the whole prefix again.

Greedy, sampled and beam decoding all use a model through the two methods of a `Prefix`. So each is written only once
for both translation and continuing a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..arrays.backend import Array, array_module, device_of, to_device
from ..arrays.boundary import check_flags, check_integers
from ..layers import Cache
from ..models import EncoderDecoder, LanguageModel


class Prefix(Protocol):
    """The texts of a batch, as far as a model has read them. vocabulary: the number of tokens that it can write."""

    vocabulary: int

    def read(self, tokens: np.ndarray) -> Array:
        """Read the next tokens of each row, (N, T). Returns the logits (N, V) that follow, on the model's device."""

    def select(self, rows: np.ndarray, same_source: bool = False) -> None:
        """Continue with these rows of the batch, in this order; a row may occur more than once. rows: (N,) integers.

        same_source: there are as many rows as before, and each replaces a row that translates the same source.
        """


class Translation:
    """The prefix of a translation. source: (B, T_src); source_mask: (B, T_src), True where a token is real."""

    def __init__(self, model: EncoderDecoder, source: Array, source_mask: Array | None = None) -> None:
        self.vocabulary = model.config.target_vocabulary
        self._device = device_of(source).name
        self._model, self._mask = model, source_mask
        self._memory = model.encode(source, source_mask)[0]
        self._cache = model.new_cache()

    def read(self, tokens: np.ndarray) -> Array:
        """Read the next target tokens (N, T). Returns logits (N, V)."""
        if len(tokens) != len(self._memory):
            raise ValueError(
                f"Translation: there must be one prompt for each source, got {len(tokens)} prompts "
                f"and {len(self._memory)} sources"
            )
        target = to_device(tokens, self._device)
        return self._model.decode(target, self._memory, self._mask, cache=self._cache)[0][:, -1]

    def select(self, rows: np.ndarray, same_source: bool = False) -> None:
        """Continue with these rows; see Prefix. Rows of the same source share the cross-attention's keys and values."""
        check_flags("Translation.select", same_source=same_source)
        chosen = to_device(rows, self._device)
        if same_source:
            self._cache.select(chosen)
            return
        self._memory = self._memory[chosen]
        self._mask = None if self._mask is None else self._mask[chosen]
        self._cache.select(chosen, self._memory)


class Continuation:
    """The prefix of a text that a language model continues, of any length.

    The model has learned max_length positions, so it can look back no further than that. When its context of
    L = max_length tokens is full, the model starts again: it reads the last ⌊(L + 1) / 2⌋ tokens a second time, and has
    room for about as many new ones. So a token is read about twice. It would be read L times if the context moved by
    one token at a time. With n tokens in all, the context begins at token

        0 for n ≤ L,  otherwise  s ⌈(n - L) / s⌉  with  s = ⌊L / 2⌋ + 1

    which depends only on n: a text is continued in the same way, whatever other texts its batch contains.
    """

    def __init__(self, model: LanguageModel) -> None:
        if not isinstance(model, LanguageModel):
            raise TypeError(f"Continuation: model must be a LanguageModel, got {type(model).__name__}")
        self.vocabulary = model.config.vocabulary
        self._model = model
        self._device = model.device
        self._ids: Array | None = None  # all that was read, (N, n)
        self._begin = 0  # of the context
        self._cache: Cache | None = None

    def read(self, tokens: np.ndarray) -> Array:
        """Read the next tokens (N, T). Returns logits (N, V)."""
        new = to_device(tokens, self._device)
        self._ids = new if self._ids is None else array_module(new).concatenate([self._ids, new], axis=1)
        limit = self._model.config.max_length
        step = limit // 2 + 1
        begin = max(0, step * -(-(self._ids.shape[1] - limit) // step))
        if self._cache is None or begin > self._begin:
            self._begin, self._cache, new = begin, self._model.new_cache(), self._ids[:, begin:]
        return self._model(new, cache=self._cache, last=True)[0][:, -1]

    def select(self, rows: np.ndarray, same_source: bool = False) -> None:
        """Continue with these rows; see Prefix. There is no source here, so same_source changes nothing."""
        check_flags("Continuation.select", same_source=same_source)
        if self._ids is None or self._cache is None:
            raise ValueError("Continuation: no tokens were read yet, so there are no rows to select")
        chosen = to_device(rows, self._device)
        self._ids = self._ids[chosen]
        self._cache.select(chosen)


_MOST = 1 << 27  # tokens of a batch of texts


def laid_out(
    where: str, prompts: Sequence[Sequence[int]], n_new: int, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Prompts with room for n_new tokens after each, (B, longest + n_new), and the length of each prompt, (B,).

    Raises ValueError or TypeError if there are no prompts, or if one is empty or contains anything but ids below
    vocabulary.
    """
    if isinstance(prompts, str) or not isinstance(prompts, Sequence | np.ndarray):
        raise TypeError(f"{where}: prompts must be a list of lists of ids, got {type(prompts).__name__}")
    if len(prompts) == 0:
        raise ValueError(f"{where}: there must be at least one prompt")
    rows = [np.asarray(prompt) for prompt in prompts]
    lengths = np.array([ids.size for ids in rows])
    if len(rows) * (int(lengths.max()) + n_new) > _MOST:
        raise ValueError(f"{where}: {n_new:,} tokens after each of {len(rows)} prompts are more than {_MOST:,} in all")
    texts = np.zeros((len(rows), lengths.max() + n_new), dtype=np.int64)
    for i, ids in enumerate(rows):
        if ids.size == 0:
            raise ValueError(f"{where}: prompt {i} is empty; a text must begin with at least one token")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise TypeError(f"{where}: prompt {i} must be a list of integers, got {prompts[i]!r}")
        if ids.min() < 0 or ids.max() >= vocabulary:
            worst = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(f"{where}: ids must be from 0 to {vocabulary - 1}, but prompt {i} holds {worst}")
        texts[i, : lengths[i]] = ids
    return texts, lengths


def check_end(where: str, end: int | None, vocabulary: int) -> int:
    """Require the id of a token, or None for a text without an end. Returns the id, or -1, which no token equals."""
    if end is None:
        return -1
    check_integers(where, end=end)
    if not 0 <= end < vocabulary:
        raise ValueError(f"{where}: end must be from 0 to {vocabulary - 1}, or None, got {end}")
    return int(end)
