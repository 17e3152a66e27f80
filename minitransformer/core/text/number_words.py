"""A generated translation task: numbers in English words to German words, with as many pairs as you like.

    4231:  four thousand two hundred and thirty one  ->  vier tausend zwei hundert ein und dreißig

German writes the number as one word, which is split into its parts here. German says the units before the tens: "thirty
one" becomes "ein und dreißig". So a model that translates word by word fails, and the cross-attention of a good one
visibly crosses.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from num2words import num2words

from ..arrays.backend import Rng
from ..arrays.boundary import check_integers, check_sizes
from .vocabulary import Vocabulary


def english(number: int) -> list[str]:
    """21 -> ["twenty", "one"]. Raises ValueError for numbers below 0 or above 999,999."""
    return re.findall("[a-z]+", _in_words(number, "en"))


def german(number: int) -> list[str]:
    """21 -> ["ein", "und", "zwanzig"]. Raises ValueError for numbers below 0 or above 999,999."""
    return _parts().findall(_in_words(number, "de").replace("einstausend", "eintausend"))  # num2words for 101000


def _in_words(number: int, language: str) -> str:
    check_integers("number words", number=number)
    if not 0 <= number < 1_000_000:
        raise ValueError(f"number words: the number must be from 0 to 999,999, got {number}")
    return _spelled(int(number), lang=language)


_spelled = functools.lru_cache(maxsize=2**16)(num2words)  # once for the vocabulary, and again for the sentence


@functools.cache
def _parts() -> re.Pattern[str]:
    simple = [num2words(n, lang="de") for n in (*range(21), *range(30, 100, 10))]
    return re.compile("|".join(sorted([*simple, "ein", "und", "hundert", "tausend"], key=len, reverse=True)))


@dataclass(frozen=True)
class NumberTask:
    """Training numbers and unseen numbers, both drawn from 0 to limit - 1, with both vocabularies."""

    training: tuple[int, ...]
    unseen: tuple[int, ...]
    source: Vocabulary
    target: Vocabulary

    @classmethod
    def draw(cls, n_training: int, n_unseen: int, limit: int, rng: Rng) -> NumberTask:
        """Draw the numbers without repetition, so that none of `unseen` is in `training`."""
        check_sizes("NumberTask", n_training=n_training, n_unseen=n_unseen, limit=limit)
        if limit > 100_000:  # num2words 0.5 spells 101000 "einhunderteinstausend"; it is einhunderteintausend
            raise ValueError(f"NumberTask: limit must be at most 100000, got {limit}")
        if n_training + n_unseen > limit:
            raise ValueError(
                f"NumberTask: {n_training} + {n_unseen} different numbers were requested, but only {limit} exist"
            )
        drawn = rng.choice(limit, n_training + n_unseen, replace=False).tolist()
        training, unseen = tuple(drawn[:n_training]), tuple(drawn[n_training:])
        vocabularies = Vocabulary(map(english, training)), Vocabulary(map(german, training))
        return cls(training, unseen, *vocabularies)
