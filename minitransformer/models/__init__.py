"""Models, from token ids to logits: a frozen config and a module built from it. `folder` saves and loads them."""

from .classifier import Classifier, ClassifierConfig
from .encoder import MaskedLanguageModel, TextClassifier, TextEncoder, TextEncoderConfig
from .language_model import LanguageModel, LanguageModelConfig
from .pretrained import from_pretrained, is_published, save_pretrained
from .transformer import Transformer, TransformerConfig

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "MaskedLanguageModel",
    "TextClassifier",
    "TextEncoder",
    "TextEncoderConfig",
    "Transformer",
    "TransformerConfig",
    "from_pretrained",
    "is_published",
    "save_pretrained",
]
