"""Text: vocabularies, tokenizers, files, batches, and generated tasks."""

from .number_words import NumberTask, english, german
from .published import PublishedTokenizer, load, load_published, pieces
from .tokenizer import BytePairTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer, encode_lines, load_tokenizer
from .vocabulary import END, PAD, START, Vocabulary, padded

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
