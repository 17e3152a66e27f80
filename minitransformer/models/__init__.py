"""Models, from token ids to logits: a frozen config and a module built from it. `folder` saves and loads trained ones.

`from_pretrained` opens published models, `save_pretrained` writes them.
"""

from .classifier import Classifier, ClassifierConfig
from .encoder import MaskedLanguageModel, TextClassifier, TextEncoder, TextEncoderConfig
from .encoder_decoder import EncoderDecoder
from .language_model import LanguageModel, LanguageModelConfig
from .pretrained import from_pretrained, is_published, save_pretrained
from .recurrent_translator import RecurrentTranslator, RecurrentTranslatorConfig
from .transformer import Transformer, TransformerConfig

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "EncoderDecoder",
    "LanguageModel",
    "LanguageModelConfig",
    "MaskedLanguageModel",
    "RecurrentTranslator",
    "RecurrentTranslatorConfig",
    "TextClassifier",
    "TextEncoder",
    "TextEncoderConfig",
    "Transformer",
    "TransformerConfig",
    "from_pretrained",
    "is_published",
    "save_pretrained",
]
