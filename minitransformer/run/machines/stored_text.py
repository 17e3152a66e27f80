"""The task of a language model, whose text may also be a prepared folder: see shards.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.text.tokenizer import Tokenizer, read_tokenizer
from ..tasks import language
from ..tasks.task import Prepared
from .shards import TOKENIZER, Shards


@dataclasses.dataclass(frozen=True)
class StoredLanguageData(language.LanguageData):
    """Which text or prepared folder to use, and how it becomes batches."""

    data: str | None = dataclasses.field(
        default=None, metadata={"file": "a folder of `minitransformer prepare`, instead of text"}
    )


def prepare(
    data: StoredLanguageData, model: Mapping[str, Any], rng: np.random.Generator, saved: Sequence[Tokenizer] = ()
) -> Prepared:
    """Like `tasks.language.prepare`. A prepared folder is read as it is, with its own tokenizer."""
    if data.data is None:
        return language.prepare(data, model, rng, saved)
    if data.text is not None:
        raise ValueError("lm takes text or data, not both; leave one of them out")
    shards, tokenizer = Shards(Path(data.data)), read_tokenizer(Path(data.data) / TOKENIZER)
    cut = round(len(shards) * (1.0 - data.held_out))
    return language.prepared(data, model, tokenizer, shards.part(0, cut), shards.part(cut, len(shards)), [])


TASK = dataclasses.replace(language.TASK, data=StoredLanguageData, prepare=prepare)
