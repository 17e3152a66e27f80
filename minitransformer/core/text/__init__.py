"""Text: vocabularies, tokenizers, files, and generated tasks."""

from .number_words import NumberTask, english, german
from .tokenizer import BytePairTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer, encode_lines, pieces
from .vocabulary import END, PAD, START, Vocabulary, padded

__all__ = [
    "END",
    "PAD",
    "START",
    "BytePairTokenizer",
    "CharacterTokenizer",
    "NumberTask",
    "Tokenizer",
    "Vocabulary",
    "WordTokenizer",
    "encode_lines",
    "english",
    "german",
    "padded",
    "pieces",
]
