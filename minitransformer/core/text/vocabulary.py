"""A vocabulary: from tokens to ids and back, and from sentences to padded batches."""

import difflib
from collections.abc import Iterable, Sequence

import numpy as np

PAD, START, END = 0, 1, 2  # ids: PAD fills short sentences; START opens a target; END closes it
_SPECIAL = ("<pad>", "<start>", "<end>")


class Vocabulary:
    """The tokens that occur in some sentences, each with an id, after <pad> = 0, <start> = 1 and <end> = 2."""

    def __init__(self, sentences: Iterable[Sequence[str]]) -> None:
        seen = sorted({token for sentence in sentences for token in sentence} - set(_SPECIAL))
        self.tokens: tuple[str, ...] = (*_SPECIAL, *seen)
        self._ids = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, sentence: Sequence[str]) -> list[int]:
        """The ids of a sentence's tokens. Raises ValueError for a token that is not in the vocabulary."""
        unknown = [token for token in sentence if token not in self._ids]
        if unknown:
            near = difflib.get_close_matches(unknown[0], self.tokens[len(_SPECIAL) :])
            hint = f"; the nearest: {' and '.join(map(repr, near))}" if near else ""
            raise ValueError(f"the vocabulary does not hold {unknown[0]!r}; it has {len(self)} tokens{hint}")
        return [self._ids[token] for token in sentence]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids up to <end>, without <pad> and <start>. Raises ValueError for an unknown id."""
        return [self.tokens[i] for i in without_special(ids, len(self))]


def without_special(ids: Iterable[int], size: int) -> list[int]:
    """The ids up to <end>, without <pad> and <start>. Raises ValueError for one that is not below size."""
    kept: list[int] = []
    for i in ids:
        if i == END:
            break
        if not 0 <= i < size:
            raise ValueError(f"ids must be from 0 to {size - 1}, got {i}")
        if i not in (PAD, START):
            kept.append(i)
    return kept


def padded(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Sequences of ids as an array (B, longest), with <pad> at the end of shorter ones."""
    if not any(len(sequence) > 0 for sequence in sequences):
        raise ValueError(f"padded: expected at least one non-empty sequence, got {sequences!r}")
    ids = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return ids
