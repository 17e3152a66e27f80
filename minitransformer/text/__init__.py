"""Text: vocabularies, batches, and tasks that are generated."""

from .number_words import NumberTask, english, german
from .vocabulary import END, PAD, START, Vocabulary, padded

__all__ = ["END", "PAD", "START", "NumberTask", "Vocabulary", "english", "german", "padded"]
