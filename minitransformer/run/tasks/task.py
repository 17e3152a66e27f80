"""What a task is: its data settings, its model, and how its files become batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.arrays.files import read_json
from ...core.text import BytePairTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from ...core.training.corpora import Corpus

RUN = "run.json"  # the settings of a run, in its folder


@dataclass(frozen=True)
class Prepared:
    """The prepared data of a task.

    tokenizers: one, or those of source and target. sizes: fields of the model's config that the data determine. notes:
    lines that say what was read and what was left out. labels: of a classifier, in the order of their numbers.
    """

    tokenizers: Sequence[Tokenizer]
    sizes: Mapping[str, Any]
    training: Corpus
    validation: Corpus
    notes: tuple[str, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """One of the tasks: its data settings, the recipe of its model, and how its data are prepared.

    config: the recipe; its `build` makes the model. prepare: called with the data settings, the model settings, a
    generator, and the saved tokenizers. A resumed run has saved tokenizers, so they need not be trained again.
    """

    name: str
    data: type[Any]
    config: type[Any]
    prepare: Callable[..., Prepared]
    from_data: tuple[str, ...]  # fields of the config that the data determine
    presets: Mapping[str, Mapping[str, Any]]


def setting(folder: Path, name: str, default: Any) -> Any:
    """A data setting from run.json, or the default if the folder has no run.json."""
    path = folder / RUN
    return read_json(path)["data"].get(name, default) if path.is_file() else default


def trained(kind: str, lines: Sequence[str], vocabulary: int) -> Tokenizer:
    """A new tokenizer of a kind, "bpe", "words" or "characters". vocabulary: the number of bpe tokens."""
    if kind == "bpe":
        return BytePairTokenizer.train(lines, vocabulary)
    return (WordTokenizer if kind == "words" else CharacterTokenizer).train(lines)


def check_tokenizer(given: str, *known: str) -> None:
    """Require one of these kinds of tokenizers."""
    if given not in known:
        raise ValueError(f"tokenizer must be {' or '.join(known)}, got {given!r}")


def check_share(where: str, **shares: float) -> None:
    """Require every named number to be at least 0 and below 1."""
    for name, share in shares.items():
        if not 0.0 <= share < 1.0:
            raise ValueError(f"{where}: {name} must be at least 0 and below 1, got {share}")
