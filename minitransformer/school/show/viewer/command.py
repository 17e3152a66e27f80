"""Show where a saved model looks in a text: the commands `minitransformer view` and `plot attention`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....core.arrays.backend import to_device
from ....core.models import Classifier, LanguageModel, Transformer
from ....core.models.opening import with_article
from ....core.text import START
from ....ideas.published import MaskedLanguageModel
from ...inspect.heads import heads
from ...inspect.watch import attentions
from ..reading import read_text, visible
from .viewer import MOST_TOKENS, AttentionView, view


@dataclass(frozen=True)
class Look:
    """A model, the sequences that it reads, and the names of all tokens (and classes) by id, as `view` takes them."""

    model: Any
    sequences: Sequence[Sequence[int]]
    names: Sequence[Sequence[str]]
    title: str

    def weights(self, kind: str) -> np.ndarray:
        """The attention weights of a kind, (layers, heads, T_q, T_k). Raises ValueError where one is not finite."""
        batch = [to_device(np.array([row]), self.model.device) for row in self.sequences]
        found = heads(self.model, *batch, kind=kind).weights[:, 0]
        if not np.isfinite(found).all():
            raise ValueError("the attention weights are NaN or infinite; the model's weights are too large, or damaged")
        return found

    def tokens(self) -> list[list[str]]:
        """The sequences in words."""
        return [[names[i] for i in row] for row, names in zip(self.sequences, self.names, strict=False)]


def look_at(path: Path, text: str, device: str | None = None) -> Look:
    """What there is to see of the model in a folder when it reads a text. An encoder-decoder writes first, greedily.

    path: also the folder, or .gguf file, of a published model that predicts tokens.
    """
    read = read_text(path, text, device, most=MOST_TOKENS)
    model, source, target = read.opened.model, read.opened.tokenizers[0], read.opened.tokenizers[-1]
    if read.opened.published and not isinstance(model, LanguageModel | MaskedLanguageModel | Transformer):
        raise ValueError(
            f"{path} holds {with_article(type(model))}; only published models that predict tokens can be shown: a "
            "LanguageModel, a MaskedLanguageModel or a Transformer"
        )
    if isinstance(model, Transformer):
        start = START if read.start is None else read.start
        names = [_all(source, model.config.source_vocabulary), _all(target, model.config.target_vocabulary)]
        title = f"{text} → {target.decode(read.said) or '(nothing)'}"
        return Look(model, [read.ids, [start, *read.said]], names, title)
    labels = [read.opened.labels] if isinstance(model, Classifier) else []
    return Look(model, [read.ids], [_all(source, model.config.vocabulary), *labels], text)


def _all(tokenizer: Any, vocabulary: int) -> tuple[str, ...]:
    """The names of all tokens of a model, which may know more than its tokenizer."""
    return (*map(visible, tokenizer.tokens), *(f"<{i}>" for i in range(len(tokenizer), vocabulary)))


def view_text(path: Path, text: str, device: str | None = None, layer: int | None = None) -> AttentionView:
    """The attention of the model in a folder on a text. layer: the only one to be shown, counted from 1."""
    look = look_at(path, text, device)
    n_layers = max(map(len, attentions(look.model).values()))
    if layer is not None and not 1 <= layer <= n_layers:
        raise ValueError(f"--layer must be from 1 to {n_layers}, got {layer}")
    layers = None if layer is None else [layer - 1]
    shown = view(look.model, *look.sequences, names=look.names, title=look.title, layers=layers)
    if isinstance(look.model, Classifier):
        return dataclasses.replace(shown, title=f"{text} → {shown.choices[0].name}")
    return shown
