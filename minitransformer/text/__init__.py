"""Text: vocabularies, tokenizers, files, and generated tasks."""

from typing import TYPE_CHECKING

from ..arrays.lazy import at_first_use
from .number_words import NumberTask, english, german
from .tokenizer import (
    BytePairTokenizer,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
    encode_lines,
    load_tokenizer,
    pieces,
)
from .vocabulary import END, PAD, START, Vocabulary, padded

if TYPE_CHECKING:  # of other rooms, which are imported at the first use
    from ..published.tokenizers import PublishedTokenizer, load, load_published
else:
    __getattr__, __dir__ = at_first_use(__name__)

__all__ = [
    "END",
    "PAD",
    "START",
    "BytePairTokenizer",
    "CharacterTokenizer",
    "NumberTask",
    "PublishedTokenizer",
    "Tokenizer",
    "Vocabulary",
    "WordTokenizer",
    "encode_lines",
    "english",
    "german",
    "load",
    "load_published",
    "load_tokenizer",
    "padded",
    "pieces",
]
