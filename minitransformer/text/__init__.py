"""Text: vocabularies, tokenizers, files, batches, and generated tasks."""

from .bleu import Bleu, bleu
from .number_words import NumberTask, english, german
from .tokenizer import BytePairTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer, encode_lines, load_tokenizer
from .vocabulary import END, PAD, START, Vocabulary, padded

__all__ = [
    "END",
    "PAD",
    "START",
    "Bleu",
    "BytePairTokenizer",
    "CharacterTokenizer",
    "NumberTask",
    "Tokenizer",
    "Vocabulary",
    "WordTokenizer",
    "bleu",
    "encode_lines",
    "english",
    "german",
    "load_tokenizer",
    "padded",
]
