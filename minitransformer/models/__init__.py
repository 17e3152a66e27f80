"""Models, from token ids to logits: a frozen config and a module built from it. `folder` saves and loads them."""

from .classifier import Classifier, ClassifierConfig
from .language_model import LanguageModel, LanguageModelConfig
from .transformer import Transformer, TransformerConfig

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "Transformer",
    "TransformerConfig",
]
