"""A second table of tokens, for the values of attention: an idea in one folder."""

from .layer import ValueAttention, ValueEmbedding
from .model import ValueLanguageModel

__all__ = ["ValueAttention", "ValueEmbedding", "ValueLanguageModel"]
