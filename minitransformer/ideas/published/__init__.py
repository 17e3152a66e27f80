"""Published models: each family as a recipe of core and later parts, and the folders and files they come in."""

from ...core.models import load as from_pretrained  # the name that Hugging Face's users look for
from .image_text import ImageTextConfig, ImageTextModel
from .images import ImageClassifier, ImageEncoder, ImageEncoderConfig
from .pretrained import save_pretrained
from .speech import SpeechConfig, SpeechModel
from .text_encoder import MaskedLanguageModel, TextClassifierConfig, TextEncoder, TextEncoderConfig

__all__ = [
    "ImageClassifier",
    "ImageEncoder",
    "ImageEncoderConfig",
    "ImageTextConfig",
    "ImageTextModel",
    "MaskedLanguageModel",
    "SpeechConfig",
    "SpeechModel",
    "TextClassifierConfig",
    "TextEncoder",
    "TextEncoderConfig",
    "from_pretrained",
    "save_pretrained",
]
