"""Published models: each family as a recipe of core and later parts, and the folders and files they come in."""

from ...core.models import load as from_pretrained  # the name that Hugging Face's users look for
from .heads import AnswerFinder, ReplacedTokenFinder, TokenClassifier
from .image_text import ImageTextConfig, ImageTextModel
from .images import ImageClassifier, ImageEncoder, ImageEncoderConfig
from .pretrained import save_pretrained
from .speech import SpeechConfig, SpeechModel
from .text_encoder import MaskedLanguageModel, TextClassifierConfig, TextEncoder, TextEncoderConfig

__all__ = [
    "AnswerFinder",
    "ImageClassifier",
    "ImageEncoder",
    "ImageEncoderConfig",
    "ImageTextConfig",
    "ImageTextModel",
    "MaskedLanguageModel",
    "ReplacedTokenFinder",
    "SpeechConfig",
    "SpeechModel",
    "TextClassifierConfig",
    "TextEncoder",
    "TextEncoderConfig",
    "TokenClassifier",
    "from_pretrained",
    "save_pretrained",
]
