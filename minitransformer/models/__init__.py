"""Models, from token ids to logits: a frozen config and a module built from it.

`save` writes a model into a folder, as training does. `load` opens any model: one that `save` wrote, or one that others
published. `from_pretrained` opens only published models, and `save_pretrained` writes a model in their form.
"""

from typing import TYPE_CHECKING

from ..arrays.lazy import at_first_use
from .classifier import Classifier, ClassifierConfig
from .encoder_decoder import EncoderDecoder
from .folder import save
from .language_model import LanguageModel, LanguageModelConfig
from .transformer import Transformer, TransformerConfig

if TYPE_CHECKING:  # of other rooms, which are imported at the first use
    from ..published.opening import load
    from ..published.pretrained import from_pretrained, is_published, save_pretrained
    from ..published.text_encoder import MaskedLanguageModel, TextClassifierConfig, TextEncoder, TextEncoderConfig
else:
    __getattr__, __dir__ = at_first_use(__name__)

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "EncoderDecoder",
    "LanguageModel",
    "LanguageModelConfig",
    "MaskedLanguageModel",
    "TextClassifierConfig",
    "TextEncoder",
    "TextEncoderConfig",
    "Transformer",
    "TransformerConfig",
    "from_pretrained",
    "is_published",
    "load",
    "save",
    "save_pretrained",
]
