"""The task of a translator. Its model may also be convolutional or recurrent."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from ..models import EncoderDecoder, TransformerConfig
from ..tasks import translation
from .convolutional import ConvolutionalConfig
from .recurrent_translator import RecurrentTranslatorConfig

KINDS = ("transformer", "convolution", "lstm", "lstm-attention")


@dataclass(frozen=True)
class TranslatorConfig(TransformerConfig):
    """The kind of encoder-decoder, and its sizes.

    transformer; convolution: the same with a convolution in place of each self-attention; lstm: recurrent, with one
    vector for the whole source; lstm-attention: recurrent, with attention to the source. A recurrent model uses only
    these settings: d_model, the numbers of layers, dropout and share_embeddings.
    """

    model: str = "transformer"  # transformer, convolution, lstm or lstm-attention

    def __post_init__(self) -> None:
        if self.model not in KINDS:
            raise ValueError(f"model must be one of {', '.join(KINDS)}, got {self.model!r}")

    @property
    def plain(self) -> TransformerConfig | RecurrentTranslatorConfig:
        """The config of the model itself."""
        sizes = asdict(self)
        kind = sizes.pop("model")
        if kind == "transformer":
            return TransformerConfig(**sizes)
        if kind == "convolution":
            return ConvolutionalConfig(**sizes)
        used = {name: sizes[name] for name in (f.name for f in fields(RecurrentTranslatorConfig)) if name in sizes}
        return RecurrentTranslatorConfig(**used, attention="multiplicative" if kind == "lstm-attention" else "none")


def translator(config: TranslatorConfig, rng: np.random.Generator | None = None) -> EncoderDecoder:
    """The untrained model of a config."""
    return config.plain.build(rng)


TASK = replace(translation.TASK, config=TranslatorConfig, model=translator)
