"""Published models: each family as a recipe of core and later parts, and the folders and files they come in."""

from .opening import load
from .pretrained import from_pretrained, is_published, save_pretrained
from .text_encoder import MaskedLanguageModel, TextClassifierConfig, TextEncoder, TextEncoderConfig

__all__ = [
    "MaskedLanguageModel",
    "TextClassifierConfig",
    "TextEncoder",
    "TextEncoderConfig",
    "from_pretrained",
    "is_published",
    "load",
    "save_pretrained",
]
