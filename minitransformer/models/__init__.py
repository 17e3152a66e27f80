"""Models, from token ids to logits: a frozen config and a module built from it.

`load` opens whatever is a model: what `folder.save` wrote, as training does, and what others published.
`from_pretrained` opens the latter alone, and `save_pretrained` writes a model as others publish theirs.
"""

from importlib import import_module
from typing import Any

from .classifier import Classifier, ClassifierConfig
from .encoder_decoder import EncoderDecoder
from .language_model import LanguageModel, LanguageModelConfig
from .transformer import Transformer, TransformerConfig

# These names live in published/, which plugs in from outside; here so that users find all models in one place.
_PUBLISHED = (
    "MaskedLanguageModel",
    "TextClassifier",
    "TextEncoder",
    "TextEncoderConfig",
    "from_pretrained",
    "is_published",
    "load",
    "save_pretrained",
)


def __getattr__(name: str) -> Any:
    if name in _PUBLISHED:
        return getattr(import_module("minitransformer.published"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Classifier",
    "ClassifierConfig",
    "EncoderDecoder",
    "LanguageModel",
    "LanguageModelConfig",
    "Transformer",
    "TransformerConfig",
]
