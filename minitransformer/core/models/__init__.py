"""Models, from token ids to logits: a frozen config and a module built from it.

`save` writes a model into a folder, as training does. `load` opens any model: one that `save` wrote, or one that others
published; `save_pretrained` writes a model in their form.
"""

from .classifier import Classifier, ClassifierConfig
from .encoder_decoder import EncoderDecoder
from .folder import save
from .language_model import LanguageModel, LanguageModelConfig
from .opening import load
from .transformer import Transformer, TransformerConfig

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "EncoderDecoder",
    "LanguageModel",
    "LanguageModelConfig",
    "Transformer",
    "TransformerConfig",
    "load",
    "save",
]
